#!/usr/bin/env bash
# What the overlay's dispatch costs the host with no policy set: a tiny quantized product, patched and pristine in turn.
#
#   bench/dispatch.sh [folder for the results]
#
# Needs `cargo xtask build --backend sim` and the same with --pristine. The device's kernels do nothing, and only the
# thread that evaluates is timed. PRODUCTS (100,000) a run; fails where the medians differ by more than LIMIT (200)
# nanoseconds a product.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${1:-docs/reports/dispatch-$(date +%F)}
products=${PRODUCTS:-100000}
rounds=7
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
mkdir -p "$out"

"${CC:-cc}" -shared -fPIC -Wall -Werror -I crates/metal-sim/abi ci/upstream_kernel.c -o "$work/kernel.so"
for arm in patched pristine; do
    prefix=target/mlx/current
    [[ $arm == patched ]] || prefix=$(ls -dt target/mlx/sim-pristine-*/prefix | head -n 1)
    prefix=$(readlink -f "$prefix")
    grep -q '^backend = "sim"' "$prefix/mlx-overlay.toml" || { echo "$prefix is no sim build" >&2; exit 1; }
    sed -n 's/^final_tree = "\(.*\)"$/\1/p' "$prefix/mlx-overlay.toml" >"$work/$arm.tree"
    # Answers as metal-simc does; libraries of source text are made in earnest.
    printf '#!/bin/sh\n[ "$1" = kernel ] || exec "%s" "$@"\necho "%s"\n' "$prefix/bin/metal-simc" "$work/kernel.so" >"$work/$arm.simc"
    chmod +x "$work/$arm.simc"
    cmake --fresh -S bench/sim -B "$work/$arm" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
    cmake --build "$work/$arm" --target bench-dispatch >/dev/null
done

export MTL_SIM_ARCH=applegpu_g15d MTL_SIM_UNWRITTEN=0
printf 'arm\ttree\tround\tns_a_product\tload\n' >"$out/dispatch.tsv"
for round in $(seq $rounds); do
    for arm in patched pristine; do
        ns=$(MTL_SIM_COMPILER=$work/$arm.simc "$work/$arm/bench-dispatch" "$products" 1)
        printf '%s\t%s\t%s\t%s\t%s\n' "$arm" "$(cat "$work/$arm.tree")" "$round" "$ns" "$(cut -d' ' -f1 /proc/loadavg)" >>"$out/dispatch.tsv"
    done
done
python3 - "$out" "$products" "${LIMIT:-200}" <<'PY'
import csv, platform, statistics, sys

out, products, limit = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
rows = list(csv.DictReader(open(f"{out}/dispatch.tsv"), delimiter="\t"))
times = {arm: [float(row["ns_a_product"]) for row in rows if row["arm"] == arm] for arm in ("patched", "pristine")}
medians = {arm: statistics.median(values) for arm, values in times.items()}
more = medians["patched"] - medians["pristine"]
with open(f"{out}/README.md", "w") as page:
    page.write(f"""# The dispatch's cost on the host

`bench/dispatch.sh`: {products:,} products of one row by a 512 x 512 matrix of 4 bits, no policy set, on the simulated
g15d with kernels that do nothing. Processor time of the evaluating thread, nanoseconds a product, {len(times["patched"])}
rounds of both builds in turn; host {platform.machine()}. It is the host's time with the simulated device's encoder under
MLX, not that of a Mac. Raw data: `dispatch.tsv`.

| build | tree | median | lowest | highest |
|---|---|--:|--:|--:|
""")
    for arm, values in times.items():
        tree = next(row["tree"] for row in rows if row["arm"] == arm)
        page.write(f"| {arm} | {tree[:12]} | {medians[arm]:.0f} | {min(values):.0f} | {max(values):.0f} |\n")
    page.write(f"\nThe patched build takes {more:.0f} ns more (median against median).\n")
print(open(f"{out}/README.md").read())
sys.exit(f"more than {limit:.0f} ns" if more > limit else 0)
PY
