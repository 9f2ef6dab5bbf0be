#!/usr/bin/env bash
# MLX's CUDA back-end with and without the overlay, on an NVIDIA GPU: bits of rows, times, and decoding with a small
# model. Builds MLX twice (some ten minutes on 16 cores), and a third library whose kernels round twice where qmv rounds
# once: its rows must differ.
#
#   bench/nvidia/mlx/run.sh --pack FILE.tar.gz               here
#   bench/nvidia/mlx/run.sh RESULTS WHEEL [MODEL PROMPT]     there, in the unpacked archive
#
# WHEEL is MLX's wheel for the Python that runs there (pip download --no-deps mlx==0.32.4); only its core.so is used.
# MODEL is a folder of mlx-lm and PROMPT a file of token numbers, for decode.py. Needs CMake 3.26, Ninja, nvcc 13,
# cuDNN 9 and Python with numpy. CUDA_ARCH names another chip than 90a; WORK, where to build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

if [[ ${1-} == --pack ]]; then
    archive=${2:?"--pack needs the name of the archive"}
    cargo xtask apply-overlay
    cargo xtask fetch --backend cuda
    pack=$(mktemp -d)
    trap 'rm -rf "$pack"' EXIT
    git describe --always --dirty >"$pack/gpu-commit"
    grep final_tree mlx.lock >"$pack/gpu-tree"
    # MLX as it is: the files that the patches change.
    mkdir "$pack/stock"
    git --git-dir=target/overlay/mlx.git archive "$(sed -n 's/^base_tree = "\(.*\)"/\1/p' mlx.lock)" | tar x -C "$pack/stock"
    tar czf "$archive" -C "$pack" gpu-commit gpu-tree stock -C "$PWD" bench/nvidia/mlx xtask/cmake/cuda.cmake \
        target/overlay/inputs vendor/mlx
    exit
fi

results=${1:?"needs a folder for the results"}
wheel=$(realpath "${2:?"needs the wheel of MLX for this Python"}")
model=${3:+$(realpath "$3")}
prompt=${4:+$(realpath "$4")}
mkdir -p "$results"
results=$(realpath "$results")
here=$PWD/bench/nvidia/mlx
work=${WORK:-$PWD/target/gpu-mlx}
kernels=mlx/backend/cuda/quantized/qmm
mkdir -p "$work"
input() { echo "$PWD/target/overlay/inputs/$1"-*/; }

build() { # name, tree
    cmake -S "$2" -B "$work/$1" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DMLX_BUILD_CUDA=ON \
        -DMLX_BUILD_METAL=OFF -DMLX_BUILD_CPU=OFF -DMLX_BUILD_GGUF=OFF -DMLX_BUILD_TESTS=OFF -DMLX_BUILD_EXAMPLES=OFF \
        -DMLX_BUILD_BENCHMARKS=OFF -DMLX_BUILD_PYTHON_BINDINGS=OFF -DMLX_USE_CCACHE=OFF \
        -DMLX_CUDA_ARCHITECTURES="${CUDA_ARCH:-90a}" -DFETCHCONTENT_FULLY_DISCONNECTED=ON \
        -DCMAKE_PROJECT_mlx_INCLUDE="$PWD/xtask/cmake/cuda.cmake" -DFETCHCONTENT_SOURCE_DIR_FMT="$(input fmt)" \
        -DFETCHCONTENT_SOURCE_DIR_JSON="$(input json)" -DFETCHCONTENT_SOURCE_DIR_CUTLASS="$(input cutlass)" \
        -DFETCHCONTENT_SOURCE_DIR_CCCL="$(input cccl)" -DFETCHCONTENT_SOURCE_DIR_NVTX3="$(input nvtx3)" \
        -DFETCHCONTENT_SOURCE_DIR_CUDNN="$(input cudnn-frontend)" >"$work/$1.configure.txt"
    ninja -C "$work/$1" >"$work/$1.build.txt"
}

site() { # name, library: a folder for PYTHONPATH
    rm -rf "$work/site-$1"
    mkdir -p "$work/site-$1"
    python3 -m zipfile -e "$wheel" "$work/site-$1"
    mkdir -p "$work/site-$1/mlx/lib" "$work/site-$1/mlx/include"
    cp "$2" "$work/site-$1/mlx/lib/libmlx.so"
    ln -sfn "$(input cutlass)include"/{cute,cutlass} "$work/site-$1/mlx/include/"
    ln -sfn "$(input cccl)include" "$work/site-$1/mlx/include/cccl"
}

# One folder for both, so that only what the patches change is compiled again.
tree=$work/tree
rm -rf "$tree"
cp -r vendor/mlx "$tree"
build mlx "$tree"
cp "$work/mlx/libmlx.so" "$work/overlay.so"
cp "$work/mlx/.ninja_log" "$results/ninja-log.tsv"

# The mutant: the same objects but for one.
mutant=$work/mutant/$kernels
mkdir -p "$mutant"
sed 's/pairs\[i\] = __hfma2(pairs\[i\], scales, biases);/pairs[i] = __hadd2_rn(__hmul2_rn(pairs[i], scales), biases);/' \
    "$tree/$kernels/qmv_streamed.cuh" >"$mutant/qmv_streamed.cuh"
cmp -s "$mutant/qmv_streamed.cuh" "$tree/$kernels/qmv_streamed.cuh" && { echo "the mutant equals the kernel" >&2; exit 1; }
object=CMakeFiles/mlx.dir/$kernels/qmv_streamed_bfloat16.cu.o
compile=$(ninja -C "$work/mlx" -t commands "$object" | grep "$object" | tail -1 |
    sed "s,-o [^ ]*bfloat16.cu.o,-o $work/mutant.o,; s,-MF [^ ]*,-MF $work/mutant.d,; s, -I, -I$work/mutant -I,")
link=$(ninja -C "$work/mlx" -t commands libmlx.so | tail -1 |
    sed "s,$object,$work/mutant.o,; s,-o libmlx.so,-o $work/mutant.so,")
(cd "$work/mlx" && eval "$compile" && eval "$link")

# MLX as it is, in the same place.
(cd vendor/mlx && find . -type f) | while read -r file; do
    [[ -e stock/$file ]] || rm -f "$tree/$file"
done
(cd stock && find . -type f) | while read -r file; do
    cmp -s "stock/$file" "$tree/$file" || cp "stock/$file" "$tree/$file"
done
build mlx "$tree"
cp "$work/mlx/libmlx.so" "$work/stock.so"
for name in overlay mutant stock; do
    site "$name" "$work/$name.so"
done
ls -l "$work"/{overlay,stock}.so >"$results/sizes.txt"

{
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    "${CUDACXX:-nvcc}" --version | tail -2
    cat gpu-commit gpu-tree
} >"$results/machine.txt"
export CUDA_HOME=${CUDA_HOME:-/usr/local/cuda}
python() { # name of the library, policy, arguments...
    MLX_ROW_POLICY=$2 PYTHONPATH=$work/site-$1 python3 "${@:3}"
}
status=0
for part in products dense attention; do
    python stock default "$here/rows.py" reference "$part" "$work/$part.npz"
    python stock default "$here/rows.py" check "$part" "$work/$part.npz" "$results/$part-stock.csv"
    python overlay default "$here/rows.py" check "$part" "$work/$part.npz" "$results/$part-default.csv"
    python overlay exact "$here/rows.py" check "$part" "$work/$part.npz" "$results/$part-exact.csv" || status=1
done
if python mutant exact "$here/rows.py" check products "$work/products.npz" "$results/products-mutant.csv"; then
    echo "the mutant was not noticed" >&2
    status=1
fi
for arm in stock:default overlay:exact overlay:default stock:default overlay:exact overlay:default; do
    python "${arm%:*}" "${arm#*:}" "$here/time.py" "${arm/:/-}" "$results/time.csv"
    [[ -z $model ]] || python "${arm%:*}" "${arm#*:}" "$here/decode.py" "$model" "$prompt" "${arm/:/-}" "$results/decode.csv"
done
exit "$status"
