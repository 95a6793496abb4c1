"""What a process prints when it dies in a library."""

from __future__ import annotations

import signal
import subprocess
import sys

from msrun_cli.environment.explain import explain_lines

CODE = """
import ctypes
from msrun_cli.runtime.process import prepare_process, tell_of_crashes
tell_of_crashes()
prepare_process()
def broken_library():
    ctypes.string_at(0)
broken_library()
"""


def test_a_crash_names_the_python_call():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == -signal.SIGSEGV
    assert "in broken_library" in done.stderr
    assert [found.error.id for found in explain_lines(done.stderr.splitlines())] == ["segfault"]
