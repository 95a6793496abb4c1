#!/usr/bin/env bash
# Runs all benchmarks one after the other, prints a table and writes one JSON file. Takes about 30 minutes on 2 cores.
#
#   bash scripts/bench.sh DATA [FILE]      DATA: folder with coco128/ in COCO's layout; FILE: default bench.json
#   MSRUN_WEIGHTS=yolov5n.pt               weights for the evaluation; without them the network is as initialised
#   MSRUN_TORCH=/path/to/python            a Python with PyTorch: the same work is measured there, too
#   MSRUN_MINDYOLO=/path/to/python         a Python with MindYOLO, and
#   MSRUN_MINDYOLO_CONFIG=yolov5n.yaml     the configuration in its checkout: its training step is measured, too
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
data="$(cd "$1" && pwd)"
file="${2:-bench.json}"
bash "$root/scripts/setup_env.sh"
exec "$root/.venv/bin/python" "$root/scripts/run_benchmarks.py" --data "$data" --file "$file" \
    ${MSRUN_WEIGHTS:+--weights "$MSRUN_WEIGHTS"} ${MSRUN_TORCH:+--torch "$MSRUN_TORCH"} \
    ${MSRUN_MINDYOLO:+--mindyolo "$MSRUN_MINDYOLO"} ${MSRUN_MINDYOLO_CONFIG:+--mindyolo-config "$MSRUN_MINDYOLO_CONFIG"}
