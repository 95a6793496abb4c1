"""Two profiles side by side. Needs no MindSpore."""

from __future__ import annotations

from pathlib import Path

from msrun_cli.profiling.document import read_document
from msrun_cli.reporting.profile_compare import compare_tables
from msrun_cli.runtime.log import console


def compare(first: str, second: str) -> int:
    """Print them: run folders or their profile.json. Returns 0."""
    documents = [read_document(Path(path).expanduser()) for path in (first, second)]
    console.print(compare_tables(*documents, first, second))
    return 0
