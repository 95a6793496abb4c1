"""Entry point. `msrun` is also the name of MindSpore's launcher: words that are not ours are handed to it untouched."""

from __future__ import annotations

import difflib
import importlib.util
import os
import sys
from collections.abc import Sequence

from msrun_cli.runtime.process import is_on_path, names_on_path, unblock_signals

COMMANDS = ("train", "eval", "check-data", "check-env", "profile")
_PROGRAM_OPTIONS = ("-h", "--help", "--version", "--install-completion", "--show-completion")
_COMMAND_OPTIONS = {"-m", "--multirun", "-c", "--cfg", "--resolve", "-p", "--package", "-i", "--info", "--debug"}
_COMMAND_OPTIONS |= {"-cn", "--config-name", "-cd", "--config-dir"}
_CHECK_DATA_OPTIONS = {"--save", "--json", "--strict", "--deep"}
_CHECK_ENV_OPTIONS = {"--only", "--skip", "--list", "--quick", "--device", "--report", "--root", "--explain"}
_PROFILE_OPTIONS = {"--compare"}
_OWN_OPTIONS = {"check-data": _CHECK_DATA_OPTIONS, "check-env": _CHECK_ENV_OPTIONS, "profile": _PROFILE_OPTIONS}
_PROGRAMS = ("python", "python3", "pytest")  # what MindSpore's launcher takes for a program, not for a script
_LAUNCHER = "mindspore.parallel.cluster.run"


def main(arguments: Sequence[str] | None = None) -> int:
    """arguments: words behind the program's name; None = those of this process."""
    unblock_signals()
    words = list(sys.argv[1:] if arguments is None else arguments)
    completing = any(name.endswith("_COMPLETE") and name.startswith("_") for name in os.environ)
    if not words and not completing:
        words = ["--help"]
    if completing or words[0] in COMMANDS or words[0] in _PROGRAM_OPTIONS:
        return _own(words)
    complaint = misspelt(words)
    if complaint:
        print(f"error: {complaint}", file=sys.stderr)
        return 2
    return _hand_over(words)


def misspelt(words: Sequence[str]) -> str | None:
    """What to say when the words look like ours with a slip; None when they are meant for MindSpore's launcher."""
    first = words[0]
    option = first.partition("=")[0]
    if option in _COMMAND_OPTIONS.union(*_OWN_OPTIONS.values()):
        named = [word for word in words if word in COMMANDS]
        rest = " ".join(word for word in words if word not in named[:1])
        usual = next((command for command, own in _OWN_OPTIONS.items() if option in own), "train")
        return f"options stand behind the command: msrun {named[0] if named else usual} {rest}"
    if first.startswith("-") or os.path.exists(first) or os.path.splitext(first)[1] == ".py":
        return None
    if "=" in first:
        return f"the command is missing. Did you mean: msrun train {' '.join(words)}"
    close = difflib.get_close_matches(first.lower(), COMMANDS, n=1, cutoff=0.6)
    if close:
        return f'there is no command "{first}". Did you mean "{close[0]}"? Commands: {", ".join(COMMANDS)}.'
    return None


def _own(words: list[str]) -> int:
    from msrun_cli.cli.app import app

    try:
        app(words)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 0 if leave.code is None else 1
    return 0


def _hand_over(words: list[str]) -> int:
    """Replace this process by MindSpore's launcher; it starts `python` from PATH, which must be this one."""
    if importlib.util.find_spec("mindspore") is None:
        commands = ", ".join(COMMANDS)
        print(
            f'error: "{words[0]}" is no command of msrun ({commands}), and MindSpore, whose launcher would take it, '
            "is not installed.",
            file=sys.stderr,
        )
        return 2
    _lead_to_this_python(next((word for word in words if word in _PROGRAMS), "python"))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", _LAUNCHER, *words])


def _lead_to_this_python(program: str) -> None:
    """Put this interpreter's folder first on PATH, unless what the launcher starts is another one there."""
    names = names_on_path()
    if program in names or program == "pytest" and names:
        os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    elif program != "pytest" and not is_on_path(program):
        print(
            f"warning: MindSpore's launcher starts `{program}` from PATH, which is not {sys.executable}; activate a "
            "virtual environment.",
            file=sys.stderr,
        )
