#!/usr/bin/env bash
# Makes a Python environment with the wheel of ci/python-wheel.sh and NumPy, and prints its folder.
# usage: ci/python-env.sh PREFIX PARENT [LINKER-ARGUMENT…]
#
# The folder is below PARENT, named by its content, and reused if it exists. PYTHON selects the Python (python3.11).
# Needs the requirements of the wheel.
set -euo pipefail

[[ $# -ge 2 ]] || { sed -n 's,^# usage,usage,p' "$0" >&2; exit 2; }
export PYTHON=${PYTHON:-python3.11}
wheel=$("$(dirname "${BASH_SOURCE[0]}")/python-wheel.sh" "$@")
env=$(dirname "$wheel")
echo "$env"
[[ ! -f $env/complete ]] || exit 0
"$PYTHON" -m venv "$env"
"$env/bin/pip" install --quiet --disable-pip-version-check "$wheel" "numpy==2.4.6"
touch "$env/complete"
