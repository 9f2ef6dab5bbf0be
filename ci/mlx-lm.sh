#!/usr/bin/env bash
# Runs examples/mlx-lm on a simulated device: compares blocks of tokens with single tokens, for mlx-lm's own models.
# usage: ci/mlx-lm.sh [core|full|limits] [ARGUMENT of forward.py]...
#        ci/mlx-lm.sh model FOLDER [ARGUMENT of model.py]...
#        ci/mlx-lm.sh test [NAME]...         tests that model.py names the operation that computes a row differently
#        ci/mlx-lm.sh reports                docs/reports/mlxcel-1279.md
#        ci/mlx-lm.sh oracle                 compares mlx-lab's reader of model folders with mlx-lm's
#
# MLX is this repository's sim build with the CPU back-end, or the one in MLX_OVERLAY_PREFIX, with the Python bindings
# from PyPI (see ci/python-env.sh for the requirements). mlx-lm comes from PyPI, pinned in
# examples/mlx-lm/requirements.txt. MTL_SIM_ARCH selects the device (applegpu_g15d). Exits with 1 if a row differs where
# it must not; `model` exits with 3 if nothing differs but something was not compared.
set -euo pipefail
from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=core
case ${1:-} in
core | full | limits | model | test | reports | oracle)
    mode=$1
    shift
    ;;
"" | -*) ;;
*)
    sed -n '/^# usage/,/oracle/s,^# ,,p' "$0" >&2
    exit 2
    ;;
esac

prefix=${MLX_OVERLAY_PREFIX:+$(readlink -f "$MLX_OVERLAY_PREFIX")}
if [[ -z $prefix ]]; then
    cargo xtask build --backend sim --cpu
    prefix=$(readlink -f target/mlx/current)
fi
env=$(ci/python-env.sh "$prefix" "$PWD/target/mlx-lm")
"$env/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes \
    --requirement examples/mlx-lm/requirements.txt

# Without matrix units: their kernels do not compile on the simulated device.
export MTL_SIM_ARCH=${MTL_SIM_ARCH:-applegpu_g15d} MTL_SIM_OS=${MTL_SIM_OS:-26.0}
MLX_OVERLAY_TREE=$(sed -n 's/^final_tree = "\(.*\)"$/\1/p' "$prefix/mlx-overlay.toml")
export MLX_OVERLAY_TREE
# Writes no bytecode next to the sources.
export PYTHONDONTWRITEBYTECODE=1

case $mode in
oracle)
    # Cargo would rebuild everything for another prefix, or for the features of a single crate.
    [[ ! -e target/mlx/current ]] || unset MLX_OVERLAY_PREFIX
    MLX_LM_PYTHON=$env/bin/python exec cargo test --workspace --test oracle "$@"
    ;;
model)
    # Paths are relative to the caller's folder.
    script=$PWD/examples/mlx-lm/model.py
    cd "$from"
    exec "$env/bin/python" "$script" "$@"
    ;;
test) exec "$env/bin/python" examples/mlx-lm/self_test.py "$@" ;;
reports) exec "$env/bin/python" examples/mlx-lm/mlxcel_1279.py "$@" ;;
core) exec "$env/bin/python" examples/mlx-lm/forward.py "$@" ;;
*) exec "$env/bin/python" examples/mlx-lm/forward.py "--$mode" "$@" ;;
esac
