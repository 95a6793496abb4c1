"""Versions, tables of npu-smi, package metadata, the compatibility table, the tree."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import npu_tables
import pytest
from machines import SITE, Machine, healthy

from msrun_cli.common.errors import ConfigError
from msrun_cli.environment.cann import kernel_family
from msrun_cli.environment.compatibility import load_matrix
from msrun_cli.environment.installed import installed_packages, requirements
from msrun_cli.environment.npu_smi import parse
from msrun_cli.environment.registry import CHECKS
from msrun_cli.environment.tree import TreeHost
from msrun_cli.environment.versions import (
    in_ranges,
    line_in_ranges,
    nearest,
    parse_ranges,
    satisfies,
    version_key,
    without_stage,
)


def test_order_of_versions() -> None:
    ordered = ["6.3.RC2", "8.0.RC1", "8.0.RC3", "8.0.0", "8.0.1", "8.1.RC1", "8.5.0", "9.0.0"]
    ordered += ["22.0.4", "24.1.rc2", "24.1.rc2.2", "24.1.0", "25.0.RC1", "25.0"]
    assert sorted(ordered, key=version_key) == ordered
    python = ["2.3.0rc1", "2.3.0rc2", "2.3.0", "2.7.1", "2.7.1.post1", "2.7.2", "2.10.0"]
    assert sorted(python, key=version_key) == python
    assert version_key("2.0") == version_key("2.0.0") and version_key("8.0.rc1") == version_key("8.0.RC1")


@pytest.mark.parametrize(
    ("version", "bounds", "expected"),
    [
        ("1.26.4", ">=1.25,<2", True),
        ("2.0.0", ">=1.25,<2", False),
        ("1.24.0", ">=1.25", False),
        ("4.11.0.86", ">=4.8,<4.12", True),
        ("1.4.5", "~=1.4.2", True),
        ("1.5.0", "~=1.4.2", False),
        ("3.20.1", "==3.20.*", True),
        ("3.20.1", "!=3.20.*", False),
        ("3.20.1", "!=3.20.1", False),
        ("1.0", "", True),
    ],
)
def test_bounds(version: str, bounds: str, expected: bool) -> None:
    assert satisfies(version, bounds) is expected


def test_ranges() -> None:
    assert parse_ranges("[6.4.0,6.4.99],[7.0.0,8.9.9]") == [("6.4.0", "6.4.99"), ("7.0.0", "8.9.9")]
    assert parse_ranges("[V100R001C19],[],x") == [("V100R001C19", "V100R001C19")]
    assert in_ranges("7.10.0.1.231", [("7.0.0", "7.12.99")])  # as numbers: as text, 7.10 would stand before 7.2
    assert not in_ranges("7.3.0.1.231", [("7.0.0", "7.2.99")])
    lines = parse_ranges("[V100R001C13,V100R001C19],[V100R001C30]")
    assert [line_in_ranges(f"V100R001C{number}", lines) for number in (13, 15, 19, 20, 30)] == [True] * 3 + [
        False,
        True,
    ]
    assert not line_in_ranges("V200R001C15", lines)


def test_nearest_and_stages() -> None:
    assert nearest("2.8.5", ["2.9.0", "2.7.0", "2.8.0", "2.10.0"]) == ["2.8.0", "2.9.0"]
    assert nearest("1.0", ["2.9.0", "2.7.0"]) == ["2.7.0"]
    assert [without_stage(text) for text in ("8.0.RC1.beta1", "6.3.rc1.alpha003", "2.7.1.post1")] == [
        "8.0.RC1",
        "6.3.RC1",
        "2.7.1",
    ]


TABLES = [
    (npu_tables.a2(2), "24.1.1", ["910B4", "910B4"], [(2800, 32768)] * 2),
    (npu_tables.A1, "24.1.0", ["910ProB"], [(18, 32768)]),
    (npu_tables.A3, "25.2.1", ["Ascend910", "Ascend910"], [(3131, 65536), (2886, 65536)]),
    (npu_tables.I310P, "25.2.0", ["310P3"], [(1858, 44215)]),
    (npu_tables.I310, "22.0.4", ["310"], [(2703, 8192)]),
    (npu_tables.WIDE_26, "26.0.rc1", ["910B3"], [(60000, 65536)]),
]


@pytest.mark.parametrize(("text", "tool", "names", "memory"), TABLES, ids=["A2", "A1", "A3", "310P", "310", "26"])
def test_npu_smi_tables(text: str, tool: str, names: list[str], memory: list[tuple[int, int]]) -> None:
    table = parse(text)
    assert table.tool == tool
    assert [chip.name for chip in table.chips] == names
    assert [chip.memory_mb for chip in table.chips] == memory
    assert {chip.health for chip in table.chips} == {"Warning" if tool == "26.0.rc1" else "OK"}


def test_npu_smi_processes_and_chips_of_an_a3() -> None:
    (process,) = parse(npu_tables.WIDE_26).processes
    assert (process.pid, process.name, process.memory_mb) == (19334, "VLLMWorker_TP", 58472)
    assert [(chip.npu, chip.chip) for chip in parse(npu_tables.A3).chips] == [(0, 0), (0, 1)]


@pytest.mark.parametrize(
    "text", ["", npu_tables.E_8005, "| NPU |", "| 0 910B4 | OK |\n", "|" * 50, "| 0 1 | 2 |\n" * 3]
)
def test_npu_smi_without_a_table(text: str) -> None:
    assert parse(text).chips == []


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("910B", "910"),  # a grade of the first 910
        ("910ProA", "910"),
        ("910B1", "910b"),
        ("910B4-1", "910b"),
        ("Ascend910B2C", "910b"),
        ("Ascend910", "910_93"),
        ("Ascend910_9391", "910_93"),
        ("310P3", "310p"),
        ("310B4", "310b"),
        ("310", "310"),
        ("950PR", "950"),
        ("Tesla", None),
    ],
)
def test_chip_families(name: str, family: str | None) -> None:
    chip = load_matrix().chip(name)
    assert (chip.family if chip else None) == family


@pytest.mark.parametrize(
    ("package", "family"),
    [
        ("Ascend-cann-910b-ops", "910b"),
        ("Ascend-cann-A3-ops", "910_93"),
        ("Ascend-cann-kernels-310p", "310p"),
        ("ascend910_93", "910_93"),
        ("Ascend-cann-910-ops", "910"),
        ("Ascend-cann-toolkit", None),
    ],
)
def test_kernel_packages(package: str, family: str | None) -> None:
    assert kernel_family(package) == family


def test_the_table_is_complete_and_in_order() -> None:
    matrix = load_matrix()
    for rows in (matrix.mindspore, matrix.cann):
        versions = [row.version for row in rows]
        assert versions == sorted(versions, key=version_key) and len(set(versions)) == len(versions)
        assert all(row.source for row in rows)
    assert {"2.0.0", "2.7.2", "2.10.0"} <= {row.version for row in matrix.mindspore}
    for row, newer in itertools.pairwise(matrix.mindspore):
        assert version_key(row.cann[0]) <= version_key(newer.cann[0]), newer.version
    known = {row.internal for row in matrix.cann}
    for row in matrix.mindspore:
        recommended = matrix.cann_row(row.cann[0])
        if row.accepts and recommended and recommended.internal in known:
            assert recommended.internal in row.accepts, row.version


def test_rows_of_the_table() -> None:
    matrix = load_matrix()
    assert matrix.mindspore_row("2.7.1.post1") == matrix.mindspore_row("2.7.1")
    assert matrix.mindspore_row("2.12.0") is None
    assert [
        getattr(matrix.cann_row(name), "version", None) for name in ("9.0.3", "8.0.RC1.beta1", "8.4.0", "9.0.RC1")
    ] == [
        "9.0.X",
        "8.0.RC1",
        None,
        None,
    ]


def test_packages(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.package("PyYAML", "6.0.1")
    machine.file(
        f"{SITE}/te-0.4.0-py3.11.egg-info/PKG-INFO", "Name: te\nRequires-Dist: attrs (>=20.1)\n\nRequires-Dist: no"
    )
    machine.file(f"{SITE}/broken.dist-info/METADATA")
    machine.package("te", "0.5.0", ("x; python_version < '3'", "y[extra]>=1.0, <2", "z ; extra == 'dev'"), "/other")
    found = installed_packages(machine.host(), [SITE, "/other", "/missing", SITE])
    assert {name: [copy.version for copy in copies] for name, copies in found.items()} == {
        "pyyaml": ["6.0.1"],
        "te": ["0.4.0", "0.5.0"],
    }
    first, second = found["te"]
    assert [(need.name, need.bounds) for need in requirements(machine.host(), first)] == [("attrs", ">=20.1")]
    assert [(need.name, need.bounds) for need in requirements(machine.host(), second)] == [("y", ">=1.0,<2")]


def test_links_stay_inside_the_tree(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.file("/a/b/file", "text")
    machine.link("/absolute", "/a/b")
    machine.link("/a/relative", "../a/b/../b/file")
    machine.link("/a/outside", "../../../../../etc/passwd")
    machine.link("/loop", "/loop")
    host = machine.host()
    assert host.read("/absolute/file") == host.read("/a/relative") == "text"
    assert host.resolve("/absolute/file") == "/a/b/file" and host.resolve("/a/outside") == "/etc/passwd"
    assert host.read("/a/outside") is None and not host.exists("/loop")
    assert host.glob("/a/*/file") == ["/a/b/file"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no readable JSON"),
        ("[]", "one JSON object"),
        ('{"enviro": {}}', "enviro"),
        ('{"environ": []}', "environ"),
    ],
)
def test_faulty_record(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "host.json").write_text(text)
    with pytest.raises(ConfigError, match=said):
        TreeHost(tmp_path)


def test_permissions_by_mode_bits(tmp_path: Path) -> None:
    machine = healthy(tmp_path)
    machine.record.update(owners={"/dev/davinci0": [1000, 0], "/dev/davinci1": [0, 1000]})
    for name, mode, allowed in (
        ("davinci0", 0o600, True),
        ("davinci0", 0o066, False),
        ("davinci1", 0o060, True),
        ("davinci1", 0o606, False),
        ("hisi_hdc", 0o006, True),
        ("hisi_hdc", 0o660, False),
    ):
        machine.file(f"/dev/{name}", mode=mode)
        assert machine.host().may_open(f"/dev/{name}") is allowed, (name, oct(mode))
    machine.record["overrides_permissions"] = True
    assert machine.host().may_open("/dev/hisi_hdc")
    assert json.loads((tmp_path / "host.json").read_text())["user"] == "worker"


def test_the_documentation_has_every_check_and_every_row() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "check-env.md").read_text(encoding="utf-8")
    matrix = load_matrix()
    for check in CHECKS:
        assert f" | `{check.id}` | " in text, check.id
    for row in matrix.mindspore:
        accepts = ", ".join(row.accepts) if row.accepts else "-"
        assert f"| {row.version} | {', '.join(row.cann)} | {accepts} | {row.driver or '-'} |" in text
    for cann in matrix.cann:
        cells = (cann.version, cann.internal, cann.driver, cann.oldest_driver)
        assert f"| {' | '.join(cell or '-' for cell in cells)} |" in text
