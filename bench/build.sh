#!/usr/bin/env bash
# Measures `xtask build`: cold, with nothing changed, after touching one patched file, and cold with the CPU back-end.
# usage: bench/build.sh [FILE], FILE below vendor/mlx; writes docs/reports/build-<date>/
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

touched=${1:-mlx/compile.cpp}
out=docs/reports/build-$(date +%F)
runs=5
# The compile cache would hide the cost of a first build.
export CCACHE_DISABLE=1

cargo build --quiet --release --package xtask
xtask=${CARGO_TARGET_DIR:-target}/release/xtask
"$xtask" apply-overlay
mkdir -p "$out"
raw=$out/raw.tsv
printf 'case\trun\twall_s\tuser_s\tsys_s\n' >"$raw"

# measure CASE RUN [OPTION]...: runs one build and appends its times to the table.
measure() {
    local TIMEFORMAT=$'%R\t%U\t%S' times
    times=$({ time "$xtask" build "${@:3}" >"$out/last.log" 2>&1; } 2>&1)
    printf '%s\t%s\t%s\n' "$1" "$2" "$times" >>"$raw"
}

# forget [OPTION]...: removes the build with these options.
forget() {
    env -u CCACHE_DISABLE "$xtask" build "$@" >"$out/last.log" 2>&1
    rm -rf "$(dirname "$(readlink -f target/mlx/current)")"
}

forget
measure cold 1
for run in $(seq "$runs"); do
    measure unchanged "$run"
done
for run in $(seq "$runs"); do
    touch "vendor/mlx/$touched"
    measure touched "$run"
done
forget --cpu
measure cold-cpu 1 --cpu
rm "$out/last.log"

# shellcheck disable=SC2016 # the backquotes are Markdown's
{
    printf '# xtask build, measured\n\n'
    printf '    processor  %s, %s cores\n' "$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)"
    printf '    memory     %s\n' "$(sed -n 's/^MemTotal: *//p' /proc/meminfo)"
    printf '    system     %s, Linux %s\n' "$(sed -n 's/^PRETTY_NAME=//p' /etc/os-release | tr -d '"')" "$(uname -r)"
    printf '    compiler   %s\n' "$(c++ --version | head -n 1)"
    printf '    load       %s at the end (1 minute)\n' "$(cut -d ' ' -f 1 /proc/loadavg)"
    printf '    tree       %s\n\n' "$(sed -n 's/^final_tree = "\(.*\)"/\1/p' target/mlx/current/mlx-overlay.toml)"
    printf '`bench/build.sh %s`, release binary, back-end for the simulated device, ccache off; every run in `raw.tsv`. ' "$touched"
    printf '`touched` changes the time of that file below `vendor/mlx`; `cold-cpu` is `--cpu`, with the CPU back-end in addition to the GPU back-end.\n\n'
    printf '| case | runs | median s | processor s |\n|---|--:|--:|--:|\n'
    for name in $(sed 1d "$raw" | cut -f 1 | uniq); do
        sed 1d "$raw" | awk -F '\t' -v name="$name" '$1 == name' | sort -n -k 3 | awk -F '\t' '
            { name = $1; wall[NR] = $3; cpu[NR] = $4 + $5 }
            END { i = int((NR + 1) / 2); printf "| %s | %d | %.2f | %.2f |\n", name, NR, wall[i], cpu[i] }'
    done
} >"$out/README.md"
cat "$out/README.md"
