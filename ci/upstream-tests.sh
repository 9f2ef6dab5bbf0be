#!/usr/bin/env bash
# Runs upstream's own Python tests from the pinned tree on a simulated device.
# usage: ci/upstream-tests.sh ARCH [FILE[:PATTERN]]…, e.g. applegpu_g13s test_quantized.py:test_qmm
#        ci/upstream-tests.sh table
#
# MLX is this repository's sim build with the CPU back-end, or the one in MLX_OVERLAY_PREFIX, with the Python bindings
# from PyPI (see ci/python-env.sh for the requirements). First the tests run on a device whose kernels do nothing, to
# find out which kernels to compile; these are compiled on all cores (NO_WARM=1 skips this). Results go to
# docs/reports/upstream-tests/ARCH.tsv; tests that passed there with the same tree are not run again, so an interrupted
# run can continue. A test may take SECONDS_A_TEST (3600). `table`, and the end of a run, write
# docs/reports/upstream-tests/README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python3.11}
table() { "$python" ci/upstream_tests.py table docs/reports/upstream-tests/README.md docs/reports/upstream-tests/*.tsv; }
if [[ $# -eq 1 && $1 == table ]]; then
    table
    exit
fi
[[ $# -ge 1 && $1 == applegpu_* ]] || { sed -n '/^# usage/,/table$/s,^# ,,p' "$0" >&2; exit 2; }
arch=$1
shift
[[ $# -ge 1 ]] || set -- test_quantized.py
# The tests are those of the pinned tree, which the overlay does not change.
tests=("${@/#/vendor/mlx/python/tests/}")

prefix=${MLX_OVERLAY_PREFIX:+$(readlink -f "$MLX_OVERLAY_PREFIX")}
if [[ -z $prefix ]]; then
    cargo xtask build --backend sim --cpu
    prefix=$(readlink -f target/mlx/current)
fi
env=$(ci/python-env.sh "$prefix" "$PWD/target/upstream-tests")
tree=$(sed -n 's/^final_tree = "\(.*\)"$/\1/p' "$prefix/mlx-overlay.toml")

export MTL_SIM_ARCH=$arch MTL_SIM_OS=${MTL_SIM_OS:-26.0}

# The wheel's own compiler: the prefix may be built again meanwhile.
compiler=$(echo "$env"/lib/python*/site-packages/mlx/lib/metal-simc)

# Compiles the kernels that the tests will need. A single process would request them one after another.
warm() {
    local folder=$env/$arch library list place
    rm -rf "$folder"
    mkdir "$folder"
    "${CC:-cc}" -shared -fPIC -Wall -Werror -I crates/metal-sim/abi ci/upstream_kernel.c -o "$folder/kernel.so"
    place=$(LC_ALL=C grep -abo "NAME: written by" "$folder/kernel.so" | cut -d: -f1)
    # Answers like metal-simc, with a kernel of that name that does nothing, and records the name. Libraries from source
    # text are really compiled.
    cat >"$folder/list" <<SH
#!/bin/sh
[ "\$1" = kernel ] || exec "$compiler" "\$@"
library=$folder/\$(echo "\$3" | cksum | cut -d' ' -f1)
echo "\$5" >>"\$library.names"
echo "\$3" >"\$library.library"
kernel=\$library-\$(echo "\$5" | cksum | cut -d' ' -f1).so
if [ ! -f "\$kernel" ]; then
    cp "$folder/kernel.so" "\$kernel"
    printf '%s\\0' "\$5" | dd of="\$kernel" bs=1 seek=$place conv=notrunc 2>/dev/null
fi
echo "\$kernel"
SH
    chmod +x "$folder/list"
    MTL_SIM_COMPILER=$folder/list MTL_SIM_UNWRITTEN=0 "$env/bin/python" ci/upstream_tests.py names "${tests[@]}" \
        2>"$folder/names.log" || echo "the list of kernels is incomplete, see $folder/names.log" >&2
    for list in "$folder"/*.names; do
        library=$(cat "${list%.names}.library")
        sort -u "$list" -o "$list"
        echo "$(wc -l <"$list") kernels of $library" >&2
        # A kernel that does not compile fails its test, with the reason.
        "$compiler" warm --library "$library" - <"$list" || true
    done
}
[[ -n ${NO_WARM:-} ]] || warm

status=0
mkdir -p docs/reports/upstream-tests
"$env/bin/python" ci/upstream_tests.py run "docs/reports/upstream-tests/$arch.tsv" "$tree" "${SECONDS_A_TEST:-3600}" \
    "${tests[@]}" || status=$?
table
exit "$status"
