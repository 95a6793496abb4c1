"""What a host of a job says of itself."""

from __future__ import annotations

import json

import pytest

from msrun_cli.common.errors import ConfigError
from msrun_cli.runtime.run_folder import RunFolder
from msrun_cli.tasks import run


def test_another_host_writes_and_prints_its_own_environment(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "remarks", lambda target: [f"check-env memory: 1.0 GiB free ({target})."])
    run.describe_host(RunFolder(tmp_path), 3, "cpu")
    facts = json.loads((tmp_path / "logs" / "environment_3.json").read_text(encoding="utf-8"))
    assert facts["checks"]["python"]["status"] == "pass" and facts["packages"]["mindspore"]
    assert capsys.readouterr().err == "warning: host 3: check-env memory: 1.0 GiB free (cpu).\n"
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="environment_3.json cannot be written"):
        run.describe_host(RunFolder(tmp_path / "file"), 3, "cpu")
