#!/usr/bin/env bash
# Compiles the CUDA text that the overlay adds, for one architecture, on a machine without a GPU: nvcc from PyPI
# (ci/cuda-toolkit.sh) unless CUDACXX names one, headers as mlx.toml pins them, the tree of vendor/mlx. If the overlay adds no such
# text, upstream's kernels are compiled instead.
# usage: ci/cuda.sh [--quick] [architecture]    90a by default; --quick: one format of weights instead of 63 (eight minutes)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
quick=
if [[ ${1-} == --quick ]]; then
    quick=1
    shift
fi
architecture=${1:-90a}

nvcc=${CUDACXX:-$(ci/cuda-toolkit.sh --compiler)}
cargo xtask fetch --backend cuda >/dev/null
input() { # The folder of an input, whatever its version.
    local found=(target/overlay/inputs/"$1"-*/)
    echo "${found[0]%/}"
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The flags of MLX's CMake files.
include=(-I"$(input cccl)/include" -I"$(input json)/single_include/nlohmann" -Ivendor/mlx -I"$(input nvtx3)/include"
    -I"$(input cudnn-frontend)/include" -I"$(input fmt)/include" -isystem "$(input cutlass)/include")
defines=(-DFMT_HEADER_ONLY=1 -DMLX_USE_CUDA -DNDEBUG)
flags=(-std=c++20 --extended-lambda --expt-relaxed-constexpr "-Xcompiler=-fno-strict-aliasing,-Wno-psabi"
    "-diag-suppress=186,2908,2361,27,997,1394,20011,20208,177,550"
    "--generate-code=arch=compute_$architecture,code=sm_$architecture")

compile() { # file, name
    SECONDS=0
    "$nvcc" "${flags[@]}" "${defines[@]}" "${include[@]}" -c "$1" -o "$work/object.o"
    echo "$2: compiled for sm_$architecture in $SECONDS s"
}

mapfile -t sources < <(cd patches/files && find mlx/backend/cuda -name '*.cpp' -o -name '*.cu' | sort)
((${#sources[@]})) || sources=(mlx/backend/cuda/quantized/qmm/qmv.cu)
for source in "${sources[@]}"; do
    if [[ $quick && $source == *.cu ]]; then
        continue
    fi
    compile "vendor/mlx/$source" "$source"
done
if [[ $quick ]]; then
    cat >"$work/one_format.cu" <<'END'
#include "mlx/backend/cuda/quantized/qmm/qmv_streamed_launch.cuh"

namespace mlx::core {
void one_format(const QmvStreamed& call, cu::CommandEncoder& encoder) {
  using T = cutlass::bfloat16_t;
  launch_qmv_format<T, cutlass::uint4b_t, T, 64>(call, encoder);
}
} // namespace mlx::core
END
    compile "$work/one_format.cu" "the kernels of 4 bits in groups of 64, bfloat16"
fi
