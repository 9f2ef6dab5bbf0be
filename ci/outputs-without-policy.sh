#!/usr/bin/env bash
# Compares every output of every primitive that row policies cover and that upstream's own tests evaluate, on pristine
# MLX and on the patched one without a policy. The lists of hashes must be equal.
# usage: ci/outputs-without-policy.sh ARCH [FILE[:PATTERN]]…, e.g. applegpu_g15d test_quantized.py:test_qmm
#
# Needs the requirements of ci/python-env.sh, and `cargo xtask build --backend sim --cpu` with and without `--pristine`;
# MLX_OVERLAY_PREFIX and MLX_PRISTINE_PREFIX select other builds. The lists stay in target/outputs-without-policy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $# -ge 1 && $1 == applegpu_* ]] || { sed -n 's,^# usage,usage,p' "$0" >&2; exit 2; }
arch=$1
shift
[[ $# -ge 1 ]] || set -- test_fast_sdpa.py test_blas.py test_quantized.py
root=$PWD/target/outputs-without-policy

patched=${MLX_OVERLAY_PREFIX:-target/mlx/current}
pristine=${MLX_PRISTINE_PREFIX:-$(find target/mlx -path '*/sim*-pristine-*/prefix/mlx-overlay.toml' -printf '%h\n' | head -1)}
[[ -f $pristine/mlx-overlay.toml ]] || {
    echo "there is no pristine build: cargo xtask build --backend sim --cpu --pristine" >&2
    exit 1
}

# record PREFIX TESTS…: runs the tests on a build and prints the path of the list.
record() {
    local prefix env object=$root/record.o
    prefix=$(readlink -f "$1")
    shift
    "${CXX:-c++}" -std=c++20 -O2 -Wall -Wextra -Werror -fPIC -DMLX_STATIC -isystem "$prefix/include" \
        -c ci/record_outputs.cpp -o "$object"
    env=$(ci/python-env.sh "$prefix" "$root" -Wl,--wrap=_ZN3mlx4core3gpu4evalERNS0_5arrayE "$object")
    : >"$env/$arch.list"
    MTL_SIM_ARCH=$arch MTL_SIM_OS=${MTL_SIM_OS:-26.0} RECORD_OUTPUTS=$env/$arch.list \
        "$env/bin/python" ci/outputs_without_policy.py "${@/#/vendor/mlx/python/tests/}" >&2
    echo "$env/$arch.list"
}

mkdir -p "$root"
before=$(record "$pristine" "$@")
after=$(record "$patched" "$@")
grep '^#' "$before"
outputs=$(grep -vc '^#' "$before") || {
    echo "no output was recorded on $arch: name tests that evaluate products or attention" >&2
    exit 1
}
echo "$outputs outputs on $arch"
cmp "$before" "$after"
echo "and the patched library gave the same"
