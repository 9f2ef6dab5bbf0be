#!/usr/bin/env bash
# Times the simulated device: first and cached use of a kernel, and multiply-adds per second.
#
#   bench/sim.sh [folder for the results]
#
# Needs `cargo xtask build --backend sim`, or MLX_OVERLAY_PREFIX. Uses a separate kernel cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${1:-docs/reports/sim-$(date +%F)}
prefix=$(readlink -f "${MLX_OVERLAY_PREFIX:-target/mlx/current}")
grep -q '^backend = "sim"' "$prefix/mlx-overlay.toml" || {
    echo "$prefix is not a sim build: run  cargo xtask build --backend sim" >&2
    exit 1
}
runs=7
cores=$(nproc)
build=target/bench-sim
cmake --fresh -S bench/sim -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$build" >/dev/null
mkdir -p "$out"
MTL_SIM_CACHE=$(mktemp -d)
trap 'rm -r "$MTL_SIM_CACHE"' EXIT
export MTL_SIM_CACHE MTL_SIM_ARCH=applegpu_g15d

# Every measurement records the load of the machine.
load() { cut -d' ' -f1 /proc/loadavg; }
raw() { (IFS=$'\t' && echo "$*"); }

# Uses a kernel: name, bits. One row of 512 by 8 weights takes almost no time to compute.
use() {
    local times
    times=$("$build/bench-sim" 1 8 512 "$2" 1 | tail -n 1)
    raw "$1" "$times" "$(load)"
}

# Computes a product on one core or all: name, threads, policy, M, N, K, bits.
product() {
    local name=$1 threads=$2 policy=$3 m=$4 n=$5 k=$6 bits=$7 output kernel ms before
    before=$(load)
    output=$(MTL_SIM_THREADS=$threads MLX_ROW_POLICY=$policy "$build/bench-sim" "$m" "$n" "$k" "$bits" $((runs + 1)))
    {
        read -r kernel
        read -r ms # loads the kernel
        while read -r ms; do
            raw "$name" "$kernel" "$threads" "$m" "$n" "$k" "$bits" "$ms" "$before"
        done
    } <<<"$output"
}

{
    raw what milliseconds processor_ms load
    use "first use of all: shim and kernel" 4
    for bits in 2 3 5 6 8; do use "first use of a kernel" "$bits"; done
    for _ in $(seq $runs); do use "use of a cached kernel" 4; done
} >"$out/use.tsv"

{
    raw what kernel threads m n k bits milliseconds processor_ms load
    for bits in 2 4 8; do product "one row" 1 narrow 1 4096 4096 "$bits"; done
    product "8 rows, wide" 1 default 8 4096 4096 4
    product "8 rows, streamed" 1 exact 8 4096 4096 4
    product "64 rows, matrix" 1 default 64 1024 4096 4
    product "target, wide" "$cores" default 8 17408 5120 4
    product "target, streamed" "$cores" exact 8 17408 5120 4
} >"$out/products.tsv"

python3 bench/sim/report.py "$out" >"$out/README.md"
cat "$out/README.md"
