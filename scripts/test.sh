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
step "$python" -m pytest -m "not slow" "$@"
