#!/usr/bin/env bash
# Trains the embedded default (generated shapes, yolov5n) on this machine; shows where the pictures are at the end.
#
#   bash scripts/demo.sh [OVERRIDES]       for example: bash scripts/demo.sh epochs=5
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
bash "$root/scripts/setup_env.sh"
# msrun-cli, since MindSpore brings a program called msrun too.
exec "$root/.venv/bin/msrun-cli" train "$@"
