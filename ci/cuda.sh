#!/usr/bin/env bash
# Compiles the CUDA text that the overlay adds, for one architecture, on a machine without a GPU: nvcc from PyPI
# (ci/cuda-toolkit.sh) unless CUDACXX names one, headers as mlx.toml pins them, the tree of vendor/mlx. Without such text
# the kernels of upstream that it follows stand in.
# usage: ci/cuda.sh [architecture]    90a by default
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
architecture=${1:-90a}

nvcc=${CUDACXX:-$(ci/cuda-toolkit.sh --compiler)}
cargo xtask fetch --backend cuda >/dev/null
input() { # The folder of an input, whatever its version.
    local found=(target/overlay/inputs/"$1"-*/)
    echo "${found[0]%/}"
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# As the CMake files of MLX have it.
include=(-I"$(input cccl)/include" -I"$(input json)/single_include/nlohmann" -Ivendor/mlx -I"$(input nvtx3)/include"
    -I"$(input cudnn-frontend)/include" -I"$(input fmt)/include" -isystem "$(input cutlass)/include")
defines=(-DFMT_HEADER_ONLY=1 -DMLX_USE_CUDA -DNDEBUG)
flags=(-std=c++20 --extended-lambda --expt-relaxed-constexpr "-Xcompiler=-fno-strict-aliasing,-Wno-psabi"
    "-diag-suppress=186,2908,2361,27,997,1394,20011,20208,177,550"
    "--generate-code=arch=compute_$architecture,code=sm_$architecture")

mapfile -t sources < <(cd patches/files && find mlx/backend/cuda -name '*.cu' 2>/dev/null | sort)
((${#sources[@]})) || sources=(mlx/backend/cuda/quantized/qmm/qmv.cu)
for source in "${sources[@]}"; do
    SECONDS=0
    "$nvcc" "${flags[@]}" "${defines[@]}" "${include[@]}" -c "vendor/mlx/$source" -o "$work/object.o"
    echo "$source: compiled for sm_$architecture in $SECONDS s"
done
