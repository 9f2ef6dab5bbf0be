#!/usr/bin/env bash
# Makes a Python environment whose MLX is a prefix of `cargo xtask build --backend sim`, and prints its folder: the
# bindings come from PyPI (they are the ones of the pinned version), the library under them is linked from the prefix.
# usage: ci/python-env.sh PREFIX PARENT [LINKER-ARGUMENT…]
#
# The folder is one below PARENT, which content names: what is there is used again. Needs CPython 3.11 (PYTHON names
# it) and llvm-objcopy 19.
set -euo pipefail

[[ $# -ge 2 ]] || { sed -n 's,^# usage,usage,p' "$0" >&2; exit 2; }
prefix=$1 parent=$2
shift 2
python=${PYTHON:-python3.11}
[[ -f $prefix/mlx-overlay.toml ]] || {
    echo "$prefix has no mlx-overlay.toml: name the prefix of a build (cargo xtask build --backend sim --cpu)" >&2
    exit 1
}
stamp() { "$python" - "$prefix/mlx-overlay.toml" "$1" <<'PY'; }
import sys, tomllib
value = tomllib.load(open(sys.argv[1], "rb"))[sys.argv[2]]
print(*value if isinstance(value, list) else [value])
PY
[[ $(stamp backend) == sim ]] || { echo "$prefix is a $(stamp backend) build, and a sim one is needed" >&2; exit 1; }

inputs=("$prefix"/{bin,lib}/*)
for argument in "$@"; do [[ ! -f $argument ]] || inputs+=("$argument"); done
env=$parent/$(cat "${inputs[@]}" | sha256sum | cut -c1-12)
echo "$env"

[[ -x $env/bin/python ]] || "$python" -m venv "$env"
"$env/bin/pip" install --quiet --disable-pip-version-check "mlx==$(stamp version)" "numpy==2.4.6"
lib=$("$env/bin/python" -c 'import importlib.util as u; print(u.find_spec("mlx").submodule_search_locations[0])')/lib
[[ ! -f $lib/libmlx.so ]] || exit 0
mkdir -p "$lib"

# The bindings load libmlx.so. It is linked from the very objects of the static library; those hide their symbols, so
# what the bindings may ask for is made visible first. "protected": the objects were compiled to reach one another
# directly, and still do.
nm --defined-only --extern-only "$prefix/lib/libmlx.a" 2>/dev/null |
    awk 'NF == 3 && $3 ~ /mlx/ { print $3 }' | sort -u >"$lib/symbols"
"${OBJCOPY:-llvm-objcopy-19}" --set-symbols-visibility="$lib/symbols=protected" "$prefix/lib/libmlx.a" "$lib/visible.a"
libs=()
for name in $(stamp static_libs); do [[ $name == mlx ]] || libs+=("-l$name"); done
for name in $(stamp system_libs); do libs+=("-l$name"); done
for path in $(stamp link_search); do libs+=("-L$path"); done
"${CXX:-c++}" -shared -o "$lib/libmlx.so.new" "$@" -Wl,--whole-archive "$lib/visible.a" -Wl,--no-whole-archive \
    -L"$prefix/lib" "${libs[@]}"
mv "$lib/libmlx.so.new" "$lib/libmlx.so"
rm "$lib/visible.a" "$lib/symbols"
