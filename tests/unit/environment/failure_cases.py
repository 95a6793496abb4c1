"""Cases of failures: a healthy machine, what spoils it, and the check that must name it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from machines import Machine, healthy

# Faults that no command mends: another system, another machine.
WITHOUT_COMMAND = {"os", "architecture", "glibc", "libraries", "chip", "memory"}
COMMAND = re.compile(
    r"\b(source|export|unset|bash|sudo|docker|conda|mv|du|ls|kill|npu-smi|hccn_tool|msrun|python[\d.]* -m) |--\w+[= ]"
)

Spoil = Callable[[Machine], None]

# What users have run into. Each has at least one machine in a folder; test_known_failures.py looks.
FAILURES = {
    1: "MindSpore 2.3.1 with CANN 8.0.RC3: a warning, then a segmentation fault",
    2: "te cannot be imported: a package that it needs is missing",
    3: "te 0.4.0 requires attrs, which is not installed",
    4: "KeyError: 'op_debug_dir'",
    5: "Unsupported device target Ascend: libge_runner.so cannot be opened",
    6: "MindSpore 2.0.0 with CANN 5.0.4: libcann_kb.so cannot be opened",
    7: "Get op info json suffix path failed, soc_version: Ascend310P3",
    8: "MindSpore 2.2.14, CANN 7.0.1.1, driver 23.0.1 and a 310P3",
    9: "driver 22.0.4 with MindSpore 2.1.1",
    10: "hccn_tool: not found, and an empty /etc/hccn.conf",
    11: "EC0010: Failed to import Python module",
    12: "libhccl.so: cannot open shared object file",
    13: "No module named 'te_fusion': wheels of an older CANN",
    14: "json.exception.parse_error.101: an old te in a conda environment",
    15: "nnae and toolkit side by side",
    16: "libgomp.so.1: cannot allocate memory in static TLS block",
    17: "dcmi module initialize failed, -8005",
    18: "dcmi model initialized failed, -8020",
    19: "Malloc device memory failed: another process has the card",
    20: "set ASCEND_RT_VISIBLE_DEVICES:[4] error",
    21: "E30006: the op package is missing or of another version",
    22: "op package of a 910B1 on a 310P3",
    23: "EI0006: link down, port taken, equal host names, too large buffers, unknown master",
    24: "numpy 2",
    25: "GLIBC_2.27 or GLIBCXX_3.4.2x not found",
    26: "No module named 'mindspore.version': a folder of that name",
}


@dataclass
class Cases:
    """numbers: of FAILURES that have a case."""

    params: list[object] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)

    def __call__(
        self, check: str, status: str, hint: str, *numbers: int, device: str = "auto"
    ) -> Callable[[Spoil], Spoil]:
        """Registers the function as a machine with that fault.

        hint: a part of the remedy; numbers: of FAILURES; device: as `check-env --device` is given.
        """

        def register(spoil: Spoil) -> Spoil:
            name = f"{spoil.__name__}-{check}"
            self.params.append(pytest.param(spoil, check, status, hint, device, id=name))
            self.numbers.update(numbers)
            return spoil

        return register


def examine_spoilt(folder: Path, spoil: Spoil, check: str, status: str, hint: str, device: str) -> None:
    machine = healthy(folder)
    assert machine.check(check, device).status == "pass", "the healthy machine must pass"
    spoil(machine)
    result = machine.check(check, device)
    assert result.status == status, result
    assert hint in result.outcome.hint, result
    unknown = "nearest known" in result.outcome.hint  # rows of the table instead of a guess
    assert check in WITHOUT_COMMAND or unknown or COMMAND.search(result.outcome.hint), result
    assert result.outcome.found and result.outcome.expected and result.outcome.source, result
