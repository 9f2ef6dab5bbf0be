#!/usr/bin/env bash
# Measures `xtask build`: cold, with nothing changed, and after touching one patched file.
# usage: ci/bench-build.sh [FILE], FILE below vendor/mlx; writes docs/benchmarks/build-<date>/
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

touched=${1:-mlx/compile.cpp}
out=docs/benchmarks/build-$(date +%F)
runs=5
# The compile cache would hide what a first build costs.
export CCACHE_DISABLE=1

cargo build --quiet --release --package xtask
xtask=${CARGO_TARGET_DIR:-target}/release/xtask
"$xtask" apply-overlay
mkdir -p "$out"
raw=$out/raw.tsv
printf 'case\trun\twall_s\tuser_s\tsys_s\n' >"$raw"

# measure CASE RUN: one build, its times appended to the table.
measure() {
    local TIMEFORMAT=$'%R\t%U\t%S' times
    times=$({ time "$xtask" build >"$out/last.log" 2>&1; } 2>&1)
    printf '%s\t%s\t%s\n' "$1" "$2" "$times" >>"$raw"
}

if [[ -L target/mlx/current ]]; then
    rm -rf "$(dirname "$(readlink -f target/mlx/current)")"
fi
measure cold 1
for run in $(seq "$runs"); do
    measure unchanged "$run"
done
for run in $(seq "$runs"); do
    touch "vendor/mlx/$touched"
    measure touched "$run"
done
rm "$out/last.log"

{
    echo "command: ci/bench-build.sh $touched"
    echo "commit: $(git rev-parse HEAD)"
    echo "cpu: $(nproc) x $(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)"
    echo "memory: $(sed -n 's/^MemTotal: *//p' /proc/meminfo)"
    echo "system: $(sed -n 's/^PRETTY_NAME=//p' /etc/os-release), Linux $(uname -r)"
    echo "load before the end: $(cut -d ' ' -f 1-3 /proc/loadavg)"
    cat target/mlx/current/mlx-overlay.toml
} >"$out/machine.txt"
column -t "$raw"
