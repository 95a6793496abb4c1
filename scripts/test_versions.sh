#!/usr/bin/env bash
# Runs the fast tests, and one small training, evaluation and profile, on several versions of Python and MindSpore.
#
#   bash scripts/test_versions.sh                        the pairs below; each takes about 10 minutes on two cores and 3 GB of disk
#   bash scripts/test_versions.sh 3.11:2.7.2 3.12:2.10   these pairs of Python and MindSpore; 2.10 is its newest 2.10.x
#   bash scripts/test_versions.sh --allow-missing        a Python or a wheel that cannot be had is no failure
#   MSRUN_VERSIONS_DIR=/path                             keeps the environments (default: .venv-versions in the checkout)
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
environments="${MSRUN_VERSIONS_DIR:-$root/.venv-versions}"
default_pairs=(3.10:2.7.2 3.10:2.10 3.11:2.7.2 3.11:2.10 3.12:2.7.2 3.12:2.10)

# Without tests/tasks and tests/test_wheel.py, which train; what a training needs is tried by three real commands.
fast_tests=(tests/unit tests/test_layers.py tests/test_conf.py tests/test_key_table.py tests/test_names.py
    tests/test_packaging.py)

usage() {
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
}

# A command that exists may still be a shim which refuses to run, so each candidate is tried.
find_python() {
    local candidates=("python$1") candidate
    if command -v pyenv >/dev/null; then
        candidates+=("$(pyenv root)/versions/$1".*/bin/python "$(pyenv root)/versions/$1/bin/python")
    fi
    for candidate in "${candidates[@]}"; do
        if "$candidate" -c "import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

# The pins of the project, but for the one that is varied.
install() {
    local venv="$1" mindspore="$2"
    local pip=("$venv/bin/python" -m pip --disable-pip-version-check install --quiet --constraint "$venv/constraints.txt")
    # Joined by && because `set -e` is off inside a tested function.
    cd "$root" && grep -v '^mindspore==' constraints.txt >"$venv/constraints.txt" \
        && "${pip[@]}" setuptools wheel && "${pip[@]}" "mindspore==$mindspore.*" \
        && "${pip[@]}" --no-build-isolation --editable '.[dev]' "mindspore==$mindspore.*"
}

# The paths belong to it because a moved virtual environment does not work.
wanted_stamp() {
    printf '%s\n' "$root" "$1"
    cat "$root/pyproject.toml" "$root/setup.py" "$root/constraints.txt" | sha256sum
}

# Sets `outcome` where the environment cannot be made.
prepare() {
    local venv="$1" version="$2" mindspore="$3" python stamp="$1/.setup-stamp"
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(wanted_stamp "$venv")" ] \
        && "$venv/bin/python" -c 'import msrun_cli' >/dev/null 2>&1; then
        return 0
    fi
    if ! python="$(find_python "$version")"; then
        outcome="not run: no python$version on PATH or in pyenv"
        return 1
    fi
    # Made anew: what another version left behind would be tested with this one.
    "$python" -m venv --clear "$venv" || { outcome="failed: no virtual environment"; return 1; }
    if ! (install "$venv" "$mindspore") 2>&1 | tee "$venv/install.log"; then
        outcome="failed: pip, see $venv/install.log"
        # "from versions: none" is an index that could not be asked.
        if grep 'satisfies the requirement mindspore==' "$venv/install.log" | grep -qv 'versions: none'; then
            outcome="not run: no wheel of MindSpore $mindspore for Python $version"
        fi
        return 1
    fi
    wanted_stamp "$venv" >"$stamp"
}

# Sets `outcome` to what pytest counted.
run_tests() {
    local venv="$1" passed=passed
    (cd "$root" && "$venv/bin/python" -m pytest -q -m "not slow" -n 2 --dist loadscope "${fast_tests[@]}") 2>&1 | tee "$venv/tests.log" \
        || passed=failed
    outcome="$passed: $(tail -n 1 "$venv/tests.log")"
    [ "$passed" = passed ]
}

# As a user does it: each command a process of its own. Adds to `outcome` the first that fails.
run_commands() {
    local msrun="$1/bin/msrun-cli" folder broken=""
    folder="$(mktemp -d)"
    (cd "$folder" && "$msrun" train debug=fast) || broken=train
    [ -n "$broken" ] \
        || (cd "$folder" && "$msrun" eval checkpoint="$(echo outputs/train/*/*/checkpoints/last.ckpt)") || broken=eval
    [ -n "$broken" ] || (cd "$folder" && "$msrun" profile debug=fast) || broken=profile
    rm -rf "$folder"
    outcome="${broken:+failed: msrun $broken, }$outcome"
    [ -z "$broken" ]
}

try_pair() {
    local version="${1%%:*}" mindspore="${1#*:}" fine=yes
    local venv="$environments/python$version-mindspore$mindspore"
    echo "== Python $version, MindSpore $mindspore"
    prepare "$venv" "$version" "$mindspore" || return 1
    run_tests "$venv" || fine=no
    run_commands "$venv" || fine=no
    [ "$fine" = yes ]
}

allow_missing=no
pairs=()
for word in "$@"; do
    case "$word" in
        --allow-missing) allow_missing=yes ;;
        -h | --help) usage && exit 0 ;;
        *)
            if [[ "$word" =~ ^[0-9]+(\.[0-9]+)+:[0-9]+(\.[0-9]+)+$ ]]; then
                pairs+=("$word")
                continue
            fi
            echo "test_versions: \"$word\" is no pair of versions such as 3.11:2.7.2, and no option (see --help)." >&2
            exit 2
            ;;
    esac
done
[ "${#pairs[@]}" -gt 0 ] || pairs=("${default_pairs[@]}")

mkdir -p "$environments"
environments="$(cd "$environments" && pwd)"
# Two scripts started together must not install into one environment.
if command -v flock >/dev/null; then
    exec 9>"$environments/.lock"
    flock 9
fi
table=""
status=0
for pair in "${pairs[@]}"; do
    outcome=""
    if ! try_pair "$pair"; then
        [ "$allow_missing" = yes ] && [[ "$outcome" = "not run:"* ]] || status=1
    fi
    table+="$(printf '%-8s %-10s %s' "${pair%%:*}" "${pair#*:}" "$outcome")"$'\n'
done
printf '\n%-8s %-10s %s\n%s' Python MindSpore outcome "$table"
exit "$status"
