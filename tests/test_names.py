"""Who owns the script `msrun` after installs, upgrades and removals in every order; MindSpore installs one, too.

The environments are throw-away ones and MindSpore is a dummy wheel with its entry point, so nothing large is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOREIGN = ("--worker_num=2", "--join=True", "script.py", "--epochs", "3")
LAUNCHER = "import sys\n\ndef main():\n    print('theirs', *sys.argv[1:])\n\nif __name__ == '__main__':\n    main()\n"


def wheel(folder: Path, name: str, version: str, files: dict[str, str], scripts: str, requires: str = "") -> Path:
    """A wheel written by hand."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
    content = files | {
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{scripts}",
    }
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in content.items():
            archive.writestr(inside, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{inside},,\n" for inside in [*content, f"{info}/RECORD"]))
    return path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> Path:
    """Two versions of both packages; ours has the real modules and needs MindSpore."""
    folder = tmp_path_factory.mktemp("wheels")
    own = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in ROOT.glob("msrun_cli/**/*.py")}
    theirs = {f"mindspore/{name}__init__.py": "" for name in ("", "parallel/", "parallel/cluster/")}
    theirs["mindspore/parallel/cluster/run.py"] = LAUNCHER
    entry = "msrun_cli.cli.dispatch:main"
    for version in ("1.0", "2.0"):
        wheel(folder, "mindspore", version, theirs, "msrun = mindspore.parallel.cluster.run:main\n")
        wheel(
            folder, "msrun-cli", version, own, f"msrun = {entry}\nmsrun-cli = {entry}\n", "Requires-Dist: mindspore\n"
        )
    return folder


class Environment:
    def __init__(self, home: Path, wheels: Path) -> None:
        self.home, self.wheels = home, wheels
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
        (packages,) = home.glob("lib/python*/site-packages")
        # typer and its like come from here; what is installed in the environment itself goes first
        (packages / "parent.pth").write_text(sysconfig.get_path("purelib"))

    def pip(self, action: str, *words: str) -> None:
        offline = () if action == "uninstall" else ("--no-index", "--find-links", str(self.wheels))
        command = [sys.executable, "-m", "pip", "--python", str(self.home / "bin" / "python"), action, "-q", *offline]
        self.run(*command, *(("-y",) if action == "uninstall" else ()), *words)

    def run(self, *words: str | Path) -> str:
        clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        done = subprocess.run(words, env=clean, cwd=self.home, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout

    def owner(self) -> str:
        """Whose the script `msrun` is: "ours", "theirs" or "nobody"."""
        script = self.home / "bin" / "msrun"
        if not script.exists():
            return "nobody"
        return "ours" if "msrun_cli" in script.read_text() else "theirs"

    def require_ours(self, with_mindspore: bool = True) -> None:
        """The names that nobody else owns always lead to us, and on to MindSpore's launcher."""
        for program in (["msrun-cli"], ["python", "-m", "msrun_cli"], *([["msrun"]] if self.owner() == "ours" else [])):
            call = [self.home / "bin" / program[0], *program[1:]]
            assert "msrun-cli 0" in self.run(*call, "--version")
            assert "epochs" in self.run(*call, "train", "--help")
            if with_mindspore:
                assert self.run(*call, *FOREIGN).split() == ["theirs", *FOREIGN]


@pytest.fixture
def environment(tmp_path, wheels) -> Environment:
    return Environment(tmp_path / "环境 with spaces", wheels)


MINDSPORE, OURS = "mindspore==1.0", "msrun-cli==1.0"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "owner"),
    [
        ([MINDSPORE], [OURS], "ours"),
        ([OURS, MINDSPORE], [], "ours"),
        ([MINDSPORE, OURS], [], "ours"),
        ([OURS], ["--force-reinstall", MINDSPORE], "theirs"),
    ],
    ids=["MindSpore first", "in one command", "in one command, MindSpore named first", "MindSpore again"],
)
def test_installs(environment, first, second, owner):
    environment.pip("install", *first)
    if second:
        environment.pip("install", *second)
    assert environment.owner() == owner
    environment.require_ours()
    if owner == "theirs":
        assert environment.run(environment.home / "bin" / "msrun", "train").split() == ["theirs", "train"]


@pytest.mark.slow
def test_upgrades_and_repair(environment):
    environment.pip("install", MINDSPORE, OURS)
    environment.pip("install", "--upgrade", "mindspore")
    assert environment.owner() == "theirs"
    environment.require_ours()
    environment.pip("install", "--force-reinstall", "--no-deps", OURS)  # what check-env advises
    assert environment.owner() == "ours"
    environment.require_ours()
    environment.pip("install", "--upgrade", "--no-deps", "mindspore", "msrun-cli")
    assert environment.owner() == "ours"
    environment.require_ours()
    environment.pip("install", "--force-reinstall", "--no-deps", "msrun-cli==2.0")
    assert environment.owner() == "ours"


@pytest.mark.slow
def test_an_upgrade_of_ours_behind_that_of_mindspore(environment):
    environment.pip("install", MINDSPORE, OURS)
    environment.pip("install", "--upgrade", "mindspore")
    assert environment.owner() == "theirs"
    environment.pip("install", "--upgrade", "msrun-cli")
    assert environment.owner() == "ours"
    environment.require_ours()


@pytest.mark.slow
@pytest.mark.parametrize("removed", ["mindspore", "msrun-cli"])
def test_removals_while_the_script_is_mindspores(environment, removed):
    environment.pip("install", MINDSPORE, OURS)
    environment.pip("install", "--upgrade", "mindspore")
    assert environment.owner() == "theirs"
    environment.pip("uninstall", removed)
    assert environment.owner() == "nobody"  # pip removes the file without asking whose it is
    if removed == "mindspore":
        environment.require_ours(with_mindspore=False)
    environment.pip("install", "--force-reinstall", "--no-deps", OURS if removed == "mindspore" else MINDSPORE)
    assert environment.owner() == ("ours" if removed == "mindspore" else "theirs")


@pytest.mark.slow
def test_removals_and_repair(environment):
    environment.pip("install", MINDSPORE, OURS)
    environment.pip("uninstall", "mindspore")
    assert environment.owner() == "nobody"  # pip removes the file without asking whose it is
    environment.require_ours(with_mindspore=False)
    environment.pip("install", "--force-reinstall", "--no-deps", OURS)
    assert environment.owner() == "ours"
    environment.pip("install", MINDSPORE)
    environment.pip("uninstall", "msrun-cli")
    assert environment.owner() == "nobody"
    environment.pip("install", "--force-reinstall", "--no-deps", MINDSPORE)
    assert environment.run(environment.home / "bin" / "msrun", "train.py").split() == ["theirs", "train.py"]
