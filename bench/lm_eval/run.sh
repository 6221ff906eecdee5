#!/usr/bin/env bash
# Does lm-evaluation-harness, asking the server, score as `masu eval` does? Installs the harness into build/lm_eval/venv, the only
# step that needs a network, and runs compare.py; its --help has the arguments.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly wanted=bench/lm_eval/requirements.txt venv=build/lm_eval/venv

if ! cmp -s "$wanted" "$venv/requirements.txt"; then
  printf 'masu: installing %s into %s\n' "$(<"$wanted")" "$venv"
  mkdir -p "${venv%/*}"
  python3 -m venv --clear "$venv"
  "$venv/bin/python" -m pip install --disable-pip-version-check -q -r "$wanted"
  cp "$wanted" "$venv/requirements.txt"
fi
exec "$venv/bin/python" bench/lm_eval/compare.py "$@"
