#!/usr/bin/env bash
# Measures what the overlay's dispatch costs on the host without a policy: a tiny quantized product, patched and pristine
# in turn.
#
#   bench/dispatch.sh [folder for the results]
#
# Needs `cargo xtask build --backend sim [--cpu]`, and the same with --pristine. The device's kernels do nothing, and
# only the evaluating thread is timed. All threads are pinned to one core, because moving between two costs more than
# what is measured. Each run computes PRODUCTS (100,000) products. Fails if the lowest times of the two builds differ by
# more than LIMIT (200) nanoseconds per product; the lowest are compared because a disturbance only makes a run longer.
# With valgrind, the instructions of QuantizedMatmul::eval_gpu are counted too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${1:-docs/reports/dispatch-$(date +%F)}
products=${PRODUCTS:-100000}
rounds=15
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
mkdir -p "$out"

"${CC:-cc}" -shared -fPIC -Wall -Werror -I crates/metal-sim/abi ci/upstream_kernel.c -o "$work/kernel.so"
for arm in patched pristine; do
    prefix=target/mlx/current
    [[ $arm == patched ]] || prefix=$(find target/mlx -maxdepth 1 -name 'sim*-pristine-*' | sort | tail -n 1)/prefix
    prefix=$(readlink -f "$prefix")
    grep -q '^backend = "sim"' "$prefix/mlx-overlay.toml" || { echo "$prefix is not a sim build" >&2; exit 1; }
    sed -n 's/^final_tree = "\(.*\)"$/\1/p' "$prefix/mlx-overlay.toml" >"$work/$arm.tree"
    # Answers like metal-simc, except that libraries from source text are really compiled.
    cat >"$work/$arm.simc" <<SH
#!/bin/sh
[ "\$1" = kernel ] || exec "$prefix/bin/metal-simc" "\$@"
echo "$work/kernel.so"
SH
    chmod +x "$work/$arm.simc"
    cmake --fresh -S bench/sim -B "$work/$arm" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
    cmake --build "$work/$arm" --target bench-dispatch >/dev/null
done

export MTL_SIM_ARCH=applegpu_g15d MTL_SIM_UNWRITTEN=0 MTL_SIM_THREADS=1
printf 'arm\ttree\tround\tns_a_product\tload\n' >"$out/dispatch.tsv"
for round in $(seq $rounds); do
    for arm in patched pristine; do
        ns=$(MTL_SIM_COMPILER=$work/$arm.simc taskset -c "$(($(nproc) - 1))" "$work/$arm/bench-dispatch" "$products" 1)
        printf '%s\t%s\t%s\t%s\t%s\n' "$arm" "$(cat "$work/$arm.tree")" "$round" "$ns" "$(cut -d' ' -f1 /proc/loadavg)" >>"$out/dispatch.tsv"
    done
done
printf 'arm\tinstructions_a_product\n' >"$out/instructions.tsv"
if command -v valgrind >/dev/null; then
    for arm in patched pristine; do
        # Two runs of 500: the first one loads the kernel.
        count=$(MTL_SIM_COMPILER=$work/$arm.simc valgrind --tool=callgrind --callgrind-out-file=/dev/null \
            --toggle-collect='mlx::core::QuantizedMatmul::eval_gpu*' "$work/$arm/bench-dispatch" 500 1 2>&1 |
            sed -n 's/^.*Collected : //p')
        printf '%s\t%s\n' "$arm" "$((count / 1000))" >>"$out/instructions.tsv"
    done
fi
python3 - "$out" "$products" "${LIMIT:-200}" <<'PY'
import csv, platform, statistics, sys

out, products, limit = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
rows = list(csv.DictReader(open(f"{out}/dispatch.tsv"), delimiter="\t"))
times = {arm: [float(row["ns_a_product"]) for row in rows if row["arm"] == arm] for arm in ("patched", "pristine")}
medians = {arm: statistics.median(values) for arm, values in times.items()}
more = min(times["patched"]) - min(times["pristine"])
counts = {row["arm"]: row["instructions_a_product"] for row in csv.DictReader(open(f"{out}/instructions.tsv"), delimiter="\t")}
with open(f"{out}/README.md", "w") as page:
    page.write(f"""# The dispatch's cost on the host

`bench/dispatch.sh`: {products:,} products of one row by a 512 x 512 matrix of 4 bits, no policy set, on the simulated
g15d with kernels that do nothing. Processor time of the evaluating thread in nanoseconds per product, {len(times["patched"])}
rounds of both builds in turn, all threads on one core; instructions of `QuantizedMatmul::eval_gpu`, counted by valgrind;
host {platform.machine()}. This is the host's time with the simulated device's encoder, not that of a Mac. Raw
data: `dispatch.tsv`, `instructions.tsv`.

| build | tree | median | lowest | highest | instructions |
|---|---|--:|--:|--:|--:|
""")
    for arm, values in times.items():
        tree = next(row["tree"] for row in rows if row["arm"] == arm)
        page.write(f"| {arm} | {tree[:12]} | {medians[arm]:.0f} | {min(values):.0f} | {max(values):.0f} | {counts.get(arm, '')} |\n")
    page.write(
        f"\nThe lowest time of the patched build differs by {more:+.0f} ns per product (a disturbance only makes a run longer), "
        f"the median by {medians['patched'] - medians['pristine']:+.0f} ns.\n"
    )
print(open(f"{out}/README.md").read())
sys.exit(f"more than {limit:.0f} ns" if more > limit else 0)
PY
