"""Where the shipped configuration lives."""

from __future__ import annotations

from pathlib import Path

from msrun_cli.common.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent.parent


def conf_dir() -> Path:
    """Folder with train.yaml: `<package>/conf` in a wheel, `<package>/../conf` in a checkout or an editable install."""
    candidates = (_PACKAGE / "conf", _PACKAGE.parent / "conf")
    for folder in candidates:
        if (folder / "train.yaml").is_file():
            return folder
    tried = " and ".join(str(folder) for folder in candidates)
    raise ConfigError(f"the shipped configuration is missing: no train.yaml in {tried}. Install msrun-cli again.")
