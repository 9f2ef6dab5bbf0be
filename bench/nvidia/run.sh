#!/usr/bin/env bash
# Runs the shipped kernels on an NVIDIA GPU (not an Apple GPU): compiles them with NVRTC, compares every row with M = 1,
# counts registers and measures times.
#
#   bench/nvidia/run.sh [--fp] [folder for the results]   on a machine with a GPU and CUDA 12.8 or later
#   bench/nvidia/run.sh --pack file.tar.gz                on this machine; then, on the machine with the GPU:
#   tar xf file.tar.gz && bench/nvidia/run.sh results
#
# --fp uses the block-float modes (mxfp4, mxfp8, nvfp4) instead of affine weights.
# Needs a C++20 compiler, CUDA's headers and NVRTC (CUDA_HOME, default /usr/local/cuda) and vendor/mlx (cargo xtask
# apply-overlay). The archive contains the files of MLX's tree that are compiled and everything else that is read.
# GPU_ARCH sets another architecture than sm_90, JOBS the number of programs to compile at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tree=vendor/mlx
plan=("$tree"/mlx/row_policy.{h,cpp} "$tree"/mlx/backend/metal/qmv_plan.{h,cpp})
files=("${plan[@]}" "$tree"/mlx/backend/metal/kernels/{quantized,qmv_streamed,fp_quantized,fp4,fp8,fp_qmv_streamed,streamed_tile}.h)
for file in "${files[@]}"; do
    [ -f "$file" ] || { echo "$file does not exist: run \`cargo xtask apply-overlay\`" >&2; exit 1; }
done

if [ "${1:-}" = --pack ]; then
    archive=${2:?"--pack needs the archive's name"}
    commit=$(mktemp -d)
    trap 'rm -rf "$commit"' EXIT
    git describe --always --dirty >"$commit/gpu-commit"
    tar czf "$archive" -C "$commit" gpu-commit -C "$PWD" bench/nvidia crates/metal-sim/msl-cuda "${files[@]}"
    exit
fi

modes=affine
if [ "${1:-}" = --fp ]; then
    modes=fp
    shift
fi
out=${1:-docs/reports/gpu-$(date +%F)}
cuda=${CUDA_HOME:-/usr/local/cuda}
work=${GPU_WORK:-target/gpu}
[ -f "$cuda/include/nvrtc.h" ] || { echo "$cuda/include/nvrtc.h does not exist: set CUDA_HOME to CUDA's folder" >&2; exit 1; }
mkdir -p "$out" "$work"
export LD_LIBRARY_PATH="$cuda/lib64:$cuda/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

build() { # program, libraries and sources...
    program=$1
    shift
    "${CXX:-g++}" -std=c++20 -O2 -Wall -Wextra -I"$cuda/include" -I"$tree" -o "$work/$program" "$@" \
        -L"$cuda/lib64" -L"$cuda/lib" -L"$cuda/lib64/stubs"
}
sources=("$tree"/mlx/row_policy.cpp "$tree"/mlx/backend/metal/qmv_plan.cpp)
build compile bench/nvidia/compile.cpp "${sources[@]}" -lnvrtc
build measure bench/nvidia/{measure,identity,timing}.cpp "${sources[@]}" -lcuda

compile() { # folder, options...
    "$work/compile" --modes "$modes" --mlx "$tree" --shim crates/metal-sim/msl-cuda --arch "${GPU_ARCH:-sm_90}" \
        --jobs "${JOBS:-$(nproc)}" --out "$work/$1" "${@:2}"
}
rm -rf "${work:?}"/{shipped,unfused,mutants}
compiler=$(compile shipped)
commit=$(cat gpu-commit 2>/dev/null || git describe --always --dirty)
{
    echo "commit    $commit"
    echo "machine   $(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem --format=csv,noheader)"
    echo "compiler  $compiler"
} | tee "$out/machine.txt"
compile shipped --what arrangements
compile unfused --what timed --defines -fmad=false
compile mutants --what mutants | tee "$out/mutants.txt"

"$work/measure" registers --kernels "$work/shipped" --out "$out/registers.csv"
echo "Products of several rows compared with their rows alone:"
"$work/measure" identity --kernels "$work/shipped" --out "$out/identity.csv" | tee "$out/identity.txt"
echo "without fused multiply-add (-fmad=false):"
"$work/measure" identity --kernels "$work/unfused" --out "$out/identity-unfused.csv" | tee "$out/identity-unfused.txt"
echo "copies of the kernel that add in another order and must differ:"
"$work/measure" identity --kernels "$work/mutants" --out "$out/mutants.csv" | tee -a "$out/mutants.txt"
"$work/measure" time --kernels "$work/shipped" --out "$out/time.csv" | tee -a "$out/machine.txt"

# What the simdgroups wait for, if the profiler is installed.
if command -v ncu >/dev/null; then
    stalls=$(printf 'smsp__average_warps_issue_stalled_%s_per_issue_active.ratio,' \
        long_scoreboard short_scoreboard barrier math_pipe_throttle mio_throttle lg_throttle wait not_selected no_instruction)
    ncu --clock-control none --csv --page raw -k 'regex:one_row|streamed' --metrics "$stalls$(printf '%s,' \
        gpu__time_duration.sum dram__bytes_read.sum {dram,sm}__throughput.avg.pct_of_peak_sustained_elapsed \
        sm__warps_active.avg.pct_of_peak_sustained_active smsp__issue_active.avg.pct_of_peak_sustained_active \
        sm__inst_executed_pipe_{fma,alu,lsu,xu}.avg.pct_of_peak_sustained_active launch__{grid_size,registers_per_thread})" \
        "$work/measure" time --kernels "$work/shipped" --out "$work/profiled.csv" --profile 1 |
        grep '^"' | python3 bench/nvidia/profile.py >"$out/profile.csv" ||
        echo "ncu could not profile: $out/profile.csv is incomplete" >&2
fi

# Everything must have been compared, and must match the claims. Only MLX's own tiles (`wide`) may add in another
# order.
fail() { echo "$*: the results do not match the claims about the kernels" >&2; exit 1; }
for file in "$out"/identity.txt "$out"/identity-unfused.txt; do
    grep -q '^shipped: [1-9][0-9]* products, .* 0 differing, 0 bytes' "$file" || fail "$file"
    others=$(grep ' products, ' "$file" | grep -v '^wide: ' | grep -v ', 0 differing, 0 bytes' || true)
    [ -z "$others" ] || fail "$file: $others"
done
mutants=$(sed -n 's/^\(mutant-[0-9]*\): .*/\1/p' "$out/mutants.txt" | sort -u)
[ -n "$mutants" ] || fail "$out/mutants.txt has no mutant"
for mutant in $mutants; do
    grep -q "^$mutant: [1-9][0-9]* products, .* [1-9][0-9]* differing" "$out/mutants.txt" || fail "$mutant"
done
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    { rows++ }
    !$at["own_order"] && $at["differing"] > 0 { print; found = 1 }
    END { exit found || !rows }' "$out/time.csv" || fail "$out/time.csv"
# The plan could also choose row by row, which must never be faster by more than the times vary.
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    { what = $at["shape"] " " $at["mode"] " " $at["bits"] " bits, M = " $at["m"] }
    $at["kernel"] == "qmv" { row_by_row[what] = $at["microseconds"] }
    $at["kernel"] == "streamed" {
        points++
        if ($at["microseconds"] > 1.03 * row_by_row[what]) {
            printf "%s: %s us, row by row %s\n", what, $at["microseconds"], row_by_row[what]
            slower = 1
        }
    }
    END { exit slower || !points }' "$out/time.csv" || fail "$out/time.csv: slower than row by row"
