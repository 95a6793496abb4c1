"""Config-driven training command line over MindSpore."""

__version__ = "0.1.0"
