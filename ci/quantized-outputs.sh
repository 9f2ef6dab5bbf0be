#!/usr/bin/env bash
# Compares every output of every quantized primitive that upstream's own tests evaluate, on pristine MLX
# and on the patched one without a policy: the lists of hashes must be equal.
# usage: ci/quantized-outputs.sh ARCH [FILE[:PATTERN]]…, e.g. applegpu_g15d test_quantized.py:test_qmm
#
# Needs what ci/upstream-tests.sh needs, and `cargo xtask build --backend sim` with and without
# `--pristine`; MLX_OVERLAY_PREFIX and MLX_PRISTINE_PREFIX name other builds. The lists stay in
# target/quantized-outputs. Tests that compute on the CPU as well need builds with `--cpu`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $# -ge 1 && $1 == applegpu_* ]] || { sed -n 's,^# usage,usage,p' "$0" >&2; exit 2; }
arch=$1
shift
[[ $# -ge 1 ]] || set -- test_quantized.py
python=${PYTHON:-python3.11}
root=$PWD/target/quantized-outputs

patched=${MLX_OVERLAY_PREFIX:-target/mlx/current}
pristine=${MLX_PRISTINE_PREFIX:-$(find target/mlx -path '*/sim*-pristine-*/prefix/mlx-overlay.toml' -printf '%h\n' | head -1)}
[[ -f $pristine/mlx-overlay.toml ]] || {
    echo "there is no pristine build: cargo xtask build --backend sim --pristine" >&2
    exit 1
}

# record NAME PREFIX TESTS…: runs them on a build; the list is $root/NAME/ARCH.list.
record() {
    local dir=$root/$1 prefix env lib value libs=() includes=()
    prefix=$(readlink -f "$2")
    shift 2
    env=$dir/env
    stamp() { "$python" -c 'import sys, tomllib
value = tomllib.load(open(sys.argv[1], "rb"))[sys.argv[2]]
print(*value if isinstance(value, list) else [value])' "$prefix/mlx-overlay.toml" "$1"; }
    [[ -x $env/bin/python ]] || "$python" -m venv "$env"
    "$env/bin/pip" install --quiet --disable-pip-version-check "mlx==$(stamp version)" "numpy==2.4.6"
    lib=$("$env/bin/python" -c 'import importlib.util as u; print(u.find_spec("mlx").submodule_search_locations[0])')/lib
    mkdir -p "$lib"
    if [[ ! -f $lib/libmlx.so || $prefix/lib/libmlx.a -nt $lib/libmlx.so ]]; then
        for value in $(stamp include); do includes+=(-isystem "$prefix/$value"); done
        for value in $(stamp static_libs); do [[ $value == mlx ]] || libs+=("-l$value"); done
        for value in $(stamp system_libs); do libs+=("-l$value"); done
        for value in $(stamp link_search); do libs+=("-L$value"); done
        "${CXX:-c++}" -std=c++20 -O2 -Wall -Wextra -Werror -fPIC -DMLX_STATIC "${includes[@]}" \
            -c ci/record_outputs.cpp -o "$dir/record.o"
        # As in upstream-tests.sh: the bindings may ask for what the objects hide.
        nm --defined-only --extern-only "$prefix/lib/libmlx.a" 2>/dev/null |
            awk 'NF == 3 && $3 ~ /mlx/ { print $3 }' | sort -u >"$dir/symbols"
        "${OBJCOPY:-llvm-objcopy-19}" --set-symbols-visibility="$dir/symbols=protected" \
            "$prefix/lib/libmlx.a" "$dir/visible.a"
        "${CXX:-c++}" -shared -o "$lib/libmlx.so.new" -Wl,--wrap=_ZN3mlx4core3gpu4evalERNS0_5arrayE \
            "$dir/record.o" -Wl,--whole-archive "$dir/visible.a" -Wl,--no-whole-archive \
            -L"$prefix/lib" "${libs[@]}"
        mv "$lib/libmlx.so.new" "$lib/libmlx.so"
        rm "$dir/visible.a" "$dir/symbols"
    fi
    : >"$dir/$arch.list"
    MTL_SIM_ARCH=$arch MTL_SIM_OS=${MTL_SIM_OS:-26.0} RECORD_OUTPUTS=$dir/$arch.list \
        "$env/bin/python" ci/quantized_outputs.py "${@/#/vendor/mlx/python/tests/}"
}

record pristine "$pristine" "$@"
record patched "$patched" "$@"
list=$root/pristine/$arch.list
grep '^#' "$list"
echo "$(grep -vc '^#' "$list") outputs on $arch"
cmp "$list" "$root/patched/$arch.list"
echo "and the patched library gave the same"
