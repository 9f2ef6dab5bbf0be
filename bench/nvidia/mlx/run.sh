#!/usr/bin/env bash
# Compares MLX's CUDA back-end with and without the overlay on an NVIDIA GPU: bits of rows, times, and decoding with a
# small model.
#
#   bench/nvidia/mlx/run.sh pack FILE.tar.gz                       on this machine
#   bench/nvidia/mlx/run.sh build RESULTS                          on the GPU machine, in the unpacked archive
#   bench/nvidia/mlx/run.sh rows|times RESULTS WHEEL
#   bench/nvidia/mlx/run.sh decode RESULTS WHEEL MODEL PROMPT
#   bench/nvidia/mlx/run.sh all RESULTS WHEEL [MODEL PROMPT]
#
# `build` takes about ten minutes on 16 cores and writes overlay.so, stock.so (MLX without the overlay) and mutant.so to
# WORK (default: target/gpu-mlx). The mutant's kernels round twice where qmv rounds once, so its rows must differ. The
# other steps need only these three files, so they can run later.
# WHEEL is MLX's wheel for the Python of the GPU machine (pip download --no-deps mlx==0.32.4); only its core.so is used.
# MODEL is a folder of mlx-lm and PROMPT a file of token numbers, for decode.py. Needs CMake 3.26, Ninja, nvcc 13,
# cuDNN 9 and Python with numpy. CUDA_ARCH sets another architecture than 90a.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

usage() {
    sed -n '2,/^set/{/^set/d; s/^# \{0,1\}//; p}' "$0" >&2
    exit 2
}
step=${1-}
case $step in
pack | build | rows | times | decode | all) ;;
*) usage ;;
esac

if [[ $step == pack ]]; then
    archive=${2:?"pack needs the archive's name"}
    cargo xtask apply-overlay
    cargo xtask fetch --backend cuda
    pack=$(mktemp -d)
    trap 'rm -rf "$pack"' EXIT
    git describe --always --dirty >"$pack/gpu-commit"
    grep final_tree mlx.lock >"$pack/gpu-tree"
    # MLX without the overlay.
    mkdir "$pack/stock"
    git --git-dir=target/overlay/mlx.git archive "$(sed -n 's/^base_tree = "\(.*\)"/\1/p' mlx.lock)" | tar x -C "$pack/stock"
    tar czf "$archive" -C "$pack" gpu-commit gpu-tree stock -C "$PWD" bench/nvidia/mlx xtask/cmake/cuda.cmake \
        target/overlay/inputs vendor/mlx
    exit
fi

results=${2:?"name a folder for the results"}
mkdir -p "$results"
results=$(realpath "$results")
here=$PWD/bench/nvidia/mlx
work=${WORK:-$PWD/target/gpu-mlx}
mkdir -p "$work"
work=$(realpath "$work")
kernels=mlx/backend/cuda/quantized/qmm
names=(overlay mutant stock)
arms=(stock:default overlay:exact overlay:default)
input() { echo "$PWD/target/overlay/inputs/$1"-*/; }

compile() { # compiles $tree in $work/mlx
    cmake -S "$tree" -B "$work/mlx" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DMLX_BUILD_CUDA=ON \
        -DMLX_BUILD_METAL=OFF -DMLX_BUILD_CPU=OFF -DMLX_BUILD_GGUF=OFF -DMLX_BUILD_TESTS=OFF -DMLX_BUILD_EXAMPLES=OFF \
        -DMLX_BUILD_BENCHMARKS=OFF -DMLX_BUILD_PYTHON_BINDINGS=OFF -DMLX_USE_CCACHE=OFF \
        -DMLX_CUDA_ARCHITECTURES="${CUDA_ARCH:-90a}" -DFETCHCONTENT_FULLY_DISCONNECTED=ON \
        -DCMAKE_PROJECT_mlx_INCLUDE="$PWD/xtask/cmake/cuda.cmake" -DFETCHCONTENT_SOURCE_DIR_FMT="$(input fmt)" \
        -DFETCHCONTENT_SOURCE_DIR_JSON="$(input json)" -DFETCHCONTENT_SOURCE_DIR_CUTLASS="$(input cutlass)" \
        -DFETCHCONTENT_SOURCE_DIR_CCCL="$(input cccl)" -DFETCHCONTENT_SOURCE_DIR_NVTX3="$(input nvtx3)" \
        -DFETCHCONTENT_SOURCE_DIR_CUDNN="$(input cudnn-frontend)" >"$work/configure.txt"
    ninja -C "$work/mlx" >"$work/build.txt"
}

build() {
    # One folder for both builds, so that only files that the patches change are compiled again.
    tree=$work/tree
    rm -rf "$tree"
    cp -r vendor/mlx "$tree"
    compile
    cp "$work/mlx/libmlx.so" "$work/overlay.so"
    cp "$work/mlx/.ninja_log" "$results/ninja-log.tsv"

    # The mutant: the same objects except one.
    local mutant=$work/mutant/$kernels object=CMakeFiles/mlx.dir/$kernels/qmv_streamed_bfloat16.cu.o compile link
    mkdir -p "$mutant"
    sed 's/pairs\[i\] = __hfma2(pairs\[i\], scales, biases);/pairs[i] = __hadd2_rn(__hmul2_rn(pairs[i], scales), biases);/' \
        "$tree/$kernels/qmv_streamed.cuh" >"$mutant/qmv_streamed.cuh"
    if cmp -s "$mutant/qmv_streamed.cuh" "$tree/$kernels/qmv_streamed.cuh"; then
        echo "the mutant equals the kernel: qmv_streamed.cuh has changed, change the sed expression in $0" >&2
        exit 1
    fi
    compile=$(ninja -C "$work/mlx" -t commands "$object" | grep "$object" | tail -1 |
        sed "s,-o [^ ]*bfloat16.cu.o,-o $work/mutant.o,; s,-MF [^ ]*,-MF $work/mutant.d,; s, -I, -I$work/mutant -I,")
    link=$(ninja -C "$work/mlx" -t commands libmlx.so | tail -1 |
        sed "s,$object,$work/mutant.o,; s,-o libmlx.so,-o $work/mutant.so,")
    (cd "$work/mlx" && eval "$compile" && eval "$link")

    # MLX without the overlay, in the same folder.
    (cd vendor/mlx && find . -type f) | while read -r file; do
        [[ -e stock/$file ]] || rm -f "$tree/$file"
    done
    (cd stock && find . -type f) | while read -r file; do
        cmp -s "stock/$file" "$tree/$file" || cp "stock/$file" "$tree/$file"
    done
    compile
    cp "$work/mlx/libmlx.so" "$work/stock.so"
    ls -l "$work"/{overlay,stock}.so >"$results/sizes.txt"
}

prepare() { # wheel; makes a folder for PYTHONPATH for each library, and describes the machine
    for name in "${names[@]}"; do
        if [[ ! -e $work/$name.so ]]; then
            echo "$work/$name.so is missing: run '$0 build' first" >&2
            exit 1
        fi
        local site=$work/site-$name
        rm -rf "$site"
        mkdir -p "$site"
        python3 -m zipfile -e "$1" "$site"
        mkdir -p "$site/mlx/lib" "$site/mlx/include"
        cp "$work/$name.so" "$site/mlx/lib/libmlx.so"
        ln -sfn "$(input cutlass)include"/{cute,cutlass} "$site/mlx/include/"
        ln -sfn "$(input cccl)include" "$site/mlx/include/cccl"
    done
    {
        nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
        "${CUDACXX:-nvcc}" --version | tail -2
        cat gpu-commit gpu-tree
    } >"$results/machine.txt"
    export CUDA_HOME=${CUDA_HOME:-/usr/local/cuda}
}

python() { # name of the library, policy, arguments...
    MLX_ROW_POLICY=$2 PYTHONPATH=$work/site-$1 python3 "${@:3}"
}

rows() {
    local status=0
    for part in products dense attention; do
        python stock default "$here/rows.py" reference "$part" "$work/$part.npz" || return
        for arm in "${arms[@]}"; do
            python "${arm%:*}" "${arm#*:}" "$here/rows.py" check "$part" "$work/$part.npz" \
                "$results/$part-${arm/:/-}.csv" || status=1
        done
    done
    if python mutant exact "$here/rows.py" check products "$work/products.npz" "$results/products-mutant.csv"; then
        echo "the check did not detect the mutant" >&2
        status=1
    fi
    return "$status"
}

# Two passes over the arms in turn, so that effects of the clock or of another process on one pass are visible.
times() {
    for arm in "${arms[@]}" "${arms[@]}"; do
        python "${arm%:*}" "${arm#*:}" "$here/time.py" "${arm/:/-}" "$results/time.csv"
    done
}

decode() { # model, prompt
    for arm in "${arms[@]}"; do
        python "${arm%:*}" "${arm#*:}" "$here/decode.py" "$1" "$2" "${arm/:/-}" "$results/decode.csv"
    done
}

if [[ $step == build || $step == all ]]; then
    build
    [[ $step == all ]] || exit 0
fi
prepare "$(realpath "${3:?"name the MLX wheel for this Python"}")"
status=0
case $step in
rows) rows || status=1 ;;
times) times ;;
decode) decode "${4:?"name a model folder of mlx-lm"}" "${5:?"name a file of token numbers"}" ;;
all)
    rows || status=1
    times
    [[ -z ${4-} ]] || decode "$4" "${5:?"name a file of token numbers"}"
    ;;
esac
exit "$status"
