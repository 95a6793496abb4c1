"""Every failure that users have reported has a machine in a folder."""

from __future__ import annotations

import test_failures_of_cann
import test_failures_of_npus
import test_failures_of_packages
from failure_cases import FAILURES


def test_every_failure_has_a_case() -> None:
    modules = (test_failures_of_cann, test_failures_of_npus, test_failures_of_packages)
    numbers = set().union(*(module.case.numbers for module in modules))
    assert numbers == FAILURES.keys() == set(range(1, 27))
