#!/usr/bin/env bash
# The whole check on this machine: environment, lint, format, types, tests that are not slow.
#
#   bash scripts/test.sh [pytest arguments]
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
bash "$root/scripts/setup_env.sh"
# Relative arguments are meant relative to the checkout, where all tools find their settings.
cd "$root"
python="$root/.venv/bin/python"

step() {
    echo "== $*"
    "$@"
}

step "$python" -m ruff check .
step "$python" -m ruff format --check .
step "$python" -m mypy
# Two at a time: much of what a test waits for (compiling a graph, starting a process) uses one core. Tests of one file
# stay together, since they share what is trained once.
step "$python" -m pytest -m "not slow" -n 2 --dist loadscope "$@"
