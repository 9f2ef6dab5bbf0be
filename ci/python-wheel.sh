#!/usr/bin/env bash
# Builds a Python wheel of the patched tree, installs it into an environment of its own, and looks whether it is
# patched (docs/consumers.md). usage: ci/python-wheel.sh
#
# PYTHON names the interpreter. Where GitHub cannot be reached, NANOBIND names a folder with nanobind's source (the
# sdist on PyPI has it).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python3}
settings=$(cargo xtask env --consumer python)
eval "$settings"
if [[ -n ${NANOBIND:-} ]]; then
    CMAKE_ARGS+=" -DFETCHCONTENT_SOURCE_DIR_NANOBIND=$NANOBIND"
fi
out=$PWD/target/mlx/env/python
rm -rf "$out/dist"
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$out/dist" "$MLX_PYTHON_SOURCE"
"$python" -m venv --clear "$out/venv"
"$out/venv/bin/pip" install --quiet --disable-pip-version-check "$out"/dist/mlx-*.whl
cd "$out"
"$out/venv/bin/python" - <<'PY'
import ctypes, glob, os

import mlx.core as mx

library = glob.glob(os.path.join(os.path.dirname(mx.__file__), "lib", "libmlx.*"))[0]
overlay = ctypes.CDLL(library)
policy = (ctypes.c_int32 * 2)(-1, -1)  # kind and rows
assert overlay.mlx_row_process_policy(policy) == 0
assert policy[0] == 0, list(policy)

w = mx.random.uniform(-1, 1, (64, 512), key=mx.random.key(1))
x = mx.random.uniform(-1, 1, (6, 512), key=mx.random.key(2))
q = mx.quantize(w, group_size=64, bits=4)
product = mx.quantized_matmul(x, *q, group_size=64, bits=4)
reference = x @ mx.dequantize(*q, group_size=64, bits=4).T
assert mx.max(mx.abs(product - reference)).item() < 1e-3
print(f"mlx {mx.__version__} imports; the overlay's functions are in {library}")
PY
