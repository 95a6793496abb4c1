"""Environment variables that must stand before mindspore is imported. Imports nothing heavy itself."""

from __future__ import annotations

import os

ONEDNN_ISA = "ONEDNN_MAX_CPU_ISA"

# What this process set itself, so that the log can tell it from the user's own settings.
set_here: dict[str, str] = {}


def prepare_process() -> None:
    """Set defaults that the user has not set.

    ONEDNN_MAX_CPU_ISA=AVX2: the bundled oneDNN falls to a reference convolution on AVX-512 processors, which makes a
    training step many times slower. GLOG_v=3: MindSpore's own log shows errors only.
    """
    for name, value in ((ONEDNN_ISA, "AVX2"), ("GLOG_v", "3")):
        if name not in os.environ:
            os.environ[name] = set_here[name] = value


def onednn_sentence() -> str:
    """One line for the log about the instruction set of CPU kernels."""
    value = os.environ.get(ONEDNN_ISA)
    if value is None:
        return f"{ONEDNN_ISA} is not set: convolutions on an AVX-512 processor may be many times slower"
    owner = "set by msrun, since AVX-512 kernels are slower here" if ONEDNN_ISA in set_here else "your own setting"
    return f"{ONEDNN_ISA}={value} ({owner})"
