#!/usr/bin/env bash
# Makes .venv in the checkout with this project and its pinned dependencies, and does nothing when it is up to date.
#
#   bash scripts/setup_env.sh          from any folder
#   MSRUN_PYTHON=/path/to/python       chooses the Python (3.10, 3.11 or 3.12)
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv"
stamp="$venv/.setup-stamp"

# 3.11 first: most measurements were taken with it.
find_python() {
    local candidates=(python3.11 python3.12 python3.10 python3 python "$HOME"/.pyenv/versions/3.1[012]*/bin/python)
    if [ -n "${MSRUN_PYTHON:-}" ]; then
        candidates=("$MSRUN_PYTHON")
    fi
    local candidate
    for candidate in "${candidates[@]}"; do
        if suitable "$candidate"; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

# A venv needs ensurepip, which some distributions ship apart from Python.
suitable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' >/dev/null 2>&1
}

no_python() {
    {
        echo "setup_env: no suitable Python found${MSRUN_PYTHON:+ (MSRUN_PYTHON is $MSRUN_PYTHON)}."
        echo "  Needed: Python 3.10, 3.11 or 3.12 with the modules venv and ensurepip (MindSpore has no wheels for others)."
        echo "  Install one (Debian, Ubuntu: apt install python3.11 python3.11-venv), or name one:"
        echo "  MSRUN_PYTHON=/path/to/python3.11 bash scripts/setup_env.sh"
    } >&2
    exit 1
}

# The path belongs to it because a moved virtual environment does not work.
wanted_stamp() {
    printf '%s\n' "$root"
    cat "$root/pyproject.toml" "$root/setup.py" "$root/constraints.txt" | sha256sum
}

chosen_python() {
    [ -z "${MSRUN_PYTHON:-}" ] || [ "$("$MSRUN_PYTHON" -VV 2>&1)" = "$("$venv/bin/python" -VV 2>&1)" ]
}

up_to_date() {
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(wanted_stamp)" ] && chosen_python \
        && "$venv/bin/python" -c 'import msrun_cli' >/dev/null 2>&1
}

# An environment that was moved, or made with another Python than the one asked for, is made anew.
reusable() {
    chosen_python && suitable "$venv/bin/python" && grep -qF "$venv" "$venv/bin/activate" 2>/dev/null
}

make_venv() {
    local python
    python="$(find_python)" || no_python
    "$python" -m venv --clear "$venv" && return 0
    echo "setup_env: $python could not create a virtual environment in $venv; its message is above." >&2
    exit 1
}

install() {
    # From inside the checkout and by relative names, so that a path with spaces or brackets is never parsed by pip.
    cd "$root"
    local pip=("$venv/bin/python" -m pip --disable-pip-version-check install --quiet --constraint constraints.txt)
    # Joined by && because `set -e` is off inside a tested function.
    "${pip[@]}" setuptools wheel && "${pip[@]}" --no-build-isolation --editable '.[dev]'
}

pip_failed() {
    {
        echo "setup_env: pip could not install the dependencies; its message is above."
        echo "  Network or package index: check the connection and pip's settings (pip config list), then run this again."
        echo "  No space: MindSpore needs about 3.5 GB under $venv."
    } >&2
    exit 1
}

# Two scripts started together must not install into one environment.
if command -v flock >/dev/null; then
    exec 9>"$root/.venv.lock"
    flock 9
fi
if up_to_date; then
    exit 0
fi
rm -f "$stamp"
reusable || make_venv
echo "setup_env: installing into $venv with $("$venv/bin/python" --version) (a few minutes the first time)"
(install) || pip_failed
wanted_stamp >"$stamp"
