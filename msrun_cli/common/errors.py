"""Errors that users see: one paragraph saying what, where, which values are allowed and what to do."""

from __future__ import annotations


class UserError(Exception):
    """Base of all errors caused by input or environment; the command line prints the text and exits with
    `exit_code`.
    """

    exit_code = 1


class ConfigError(UserError):
    """A wrong option, key, type or combination."""

    exit_code = 2


class DataError(UserError):
    """A dataset that cannot be read or does not fit the model."""

    exit_code = 3


class DataWarning(UserError):
    """A dataset can be used, but something about it should be looked at; only where that was asked to be an error."""

    exit_code = 1


class DeviceError(UserError):
    """The requested device or its software is not usable."""

    exit_code = 4


class CheckpointError(UserError):
    """A weight file that is missing, damaged, unsafe or does not fit the network."""

    exit_code = 5


class TrainingError(UserError):
    """Training cannot go on (NaN loss, endless overflow)."""

    exit_code = 1


class LaunchError(UserError):
    """A process of a job of several processes failed; the text tells which one and why."""

    exit_code = 1


class Interrupted(UserError):
    """A signal stopped the job; its state was saved. The exit code is 128 + the signal's number: 130 for Ctrl-C."""

    def __init__(self, text: str, signal_number: int, saved: bool = True) -> None:
        super().__init__(text)
        self.saved = saved
        self.exit_code = 128 + signal_number
