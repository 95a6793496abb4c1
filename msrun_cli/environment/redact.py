"""Taking secrets and names out of text that is going to be published."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msrun_cli.environment.host import Host

HIDDEN = "***"
_SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASSW|PWD_|_PWD|CREDENTIAL|API_?KEY|ACCESS|PRIVATE|AUTH|COOKIE|SESSION|_KEY$|^KEY_|SIGNATURE|LICENSE",
    re.IGNORECASE,
)
_SHOWN_PREFIXES = (
    "ASCEND", "MS_", "MINDSPORE", "HCCL_", "MSRUN_", "GLOG_", "ONEDNN_", "OMP_", "TE_", "TBE_", "RANK_", "DEVICE_",
    "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "VIRTUAL_ENV", "LD_", "PYTHON", "PATH", "NPU_", "PROTOCOL_BUFFERS", "SLURM_N",
    "TOOLCHAIN_HOME", "LANG", "LC_",
)  # fmt: skip
_TOKENS = re.compile(
    r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{15,}|hf_\w{20,}|sk-[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*|pypi-[\w-]{20,})"
)
_LOGIN = re.compile(r"(?<=://)[^/\s@]+@")
_GIVEN = re.compile(
    r"(?P<name>[\w-]*(?:secret|token(?!iz)|passw(?:or)?d|api[_-]?key|access[_-]?key|credential|authorization)[\w-]*)"
    r"(?P<sign>\s*[=:]\s*|(?<=\w)\s+(?=\S))(?P<value>(?:bearer\s+)?[^\s&;,'\"]+)",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\.\d)(?!\w)")
_ADDRESS_6 = re.compile(r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F]{1,4}(?![\w:.])|(?<![\w:])fe80::[\w:]+")
_HARDWARE = re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b")
_MAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_LOCAL = ("127.0.0.1", "0.0.0.0")


class Redactor:
    """versions: texts that look like addresses but are none (4.11.0.86) and stay."""

    def __init__(self, host: Host, versions: Iterable[str] = ()) -> None:
        self.facts = host.facts
        self.kept = {*versions, *_LOCAL}
        secrets = (value for name, value in host.environ.items() if is_secret(name))
        self.secrets = sorted({value for value in secrets if len(value) >= 6}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        text = _LOGIN.sub(f"{HIDDEN}@", text)
        text = _TOKENS.sub(HIDDEN, text)
        text = _GIVEN.sub(_hide, text)
        text = _MAIL.sub("<mail>", text)
        text = self._without_names(text)
        text = _HARDWARE.sub("<hardware address>", text)
        text = _ADDRESS_6.sub("<address>", text)
        return _ADDRESS.sub(lambda match: match[0] if match[0] in self.kept else "<address>", text)

    def _without_names(self, text: str) -> str:
        """The home folder, the user and the host."""
        home = self.facts.home.rstrip("/")
        if home:
            text = re.sub(rf"{re.escape(home)}(?=/|\b|$)", "~", text)
        text = re.sub(r"(?<=/home/)[^/\s:;,'\"]+|(?<=/Users/)[^/\s:;,'\"]+", "<user>", text)
        for name, shown in ((self.facts.user, "<user>"), (self.facts.hostname.split(".")[0], "<host>")):
            if len(name) > 2 and name not in ("root", "localhost", "ubuntu"):
                text = re.sub(rf"(?<![\w-]){re.escape(name)}(?:\.[\w.-]+)?(?![\w-])", shown, text)
        return text


def _hide(match: re.Match[str]) -> str:
    # Behind a blank stands a value only of an option: "--token abc", but not "tokens per second".
    if not match["sign"].strip() and not match["name"].startswith("-"):
        return match[0]
    return f"{match['name']}{match['sign']}{HIDDEN}"


def is_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name))


def shown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Those that bear on MindSpore, without secrets."""
    return {name: environ[name] for name in sorted(environ) if name.startswith(_SHOWN_PREFIXES) and not is_secret(name)}
