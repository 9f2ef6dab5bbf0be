#!/usr/bin/env bash
# Shows of each fix that is meant for upstream and that upstream's own tests cannot show: wrong without the patch, right
# with it. Needs a finished `cargo xtask build` for the simulated device, and GCC; takes about a minute.
#
#   ci/upstream-fixes.sh            fails if one of them shows nothing
#   ci/upstream-fixes.sh --write    and writes upstream/<patch>/evidence/
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

write=${1-}
mlx=$PWD/vendor/mlx
metal=mlx/backend/metal
prefix=${MLX_OVERLAY_PREFIX:-$PWD/target/mlx/current}
work=$(mktemp -d "${TMPDIR:-/tmp}/mlx-overlay-fixes.XXXXXX")
trap 'rm -rf "$work"' EXIT

cxx=${CXX:-g++}
flags=(-std=gnu++20 -w -DMLX_STATIC -DMLX_METAL_NO_NAX -DFMT_HEADER_ONLY=1
    -I"$PWD/crates/metal-sim/include" -I"$mlx" -I"$mlx/$metal")
for inputs in target/overlay/inputs/json-*/single_include/nlohmann target/overlay/inputs/fmt-*/include; do
    flags+=(-I"$PWD/$inputs")
done

# The file as it is, and without the patch: $work/with.cpp and $work/without.cpp.
take() {
    local patch=$1 file=$2
    cp "$mlx/$metal/$file" "$work/with.cpp"
    cp "$mlx/$metal/$file" "$work/without.cpp"
    patch --silent --fuzz=0 --reverse "$work/without.cpp" "patches/$patch.patch"
}

compile() {
    "$cxx" "${flags[@]}" "$@"
}

# The evidence of a patch, from standard input.
keep() {
    local patch=$1 file=$2 text
    text=$(sed "s|$work/||g")
    printf '== %s\n%s\n' "$patch" "$text"
    [[ $write == --write ]] || return 0
    {
        echo "# ci/upstream-fixes.sh, with $("$cxx" --version | head -1). MLX's ${file%%:*} as pinned, with the overlay, without"
        echo "# and with $patch. No Apple GPU."
        printf '\n%s\n' "$text"
    } >"upstream/$patch/evidence/${file##*:}"
}

fail() {
    echo "error: $1" >&2
    exit 1
}

take bluestein-pair fft.cpp
compile -fsyntax-only "$work/without.cpp" 2>"$work/without" && fail "fft.cpp compiles without bluestein-pair"
grep -q "could not convert" "$work/without" || fail "fft.cpp fails without bluestein-pair, but otherwise: $(cat "$work/without")"
compile -fsyntax-only "$work/with.cpp"
{
    echo "without: $(grep -m1 'error:' "$work/without")"
    echo "with: compiles"
} | keep bluestein-pair fft.cpp:gcc.txt

take matmul-instantiation matmul.cpp
# What conv.cpp calls, as `nm` names it; T or W: the object defines it.
defines() {
    nm --demangle "$work/$1.o" |
        sed -nE 's/.* ([TW]) void mlx::core::(steel_matmul_regular_axpby<false>).*/\1 \2/p'
}
for which in without with; do
    compile -O2 -c "$work/$which.cpp" -o "$work/$which.o"
done
found=$(defines without)
[[ -z $found ]] || fail "matmul.cpp defines it without matmul-instantiation: $found"
found=$(defines with)
[[ -n $found ]] || fail "matmul.cpp does not define it with matmul-instantiation"
{
    echo "without, -O2: the object defines no steel_matmul_regular_axpby<false>, which conv.cpp calls"
    echo "with, -O2: $found"
} | keep matmul-instantiation matmul.cpp:gcc.txt

take metallib-errors device.cpp
cat >"$work/main.cpp" <<'CPP'
#include <cstdio>
#include <exception>

#include "mlx/backend/metal/device.h"

// The first use of the device loads the kernels.
int main() {
  try {
    mlx::core::metal::device(mlx::core::Device::gpu);
  } catch (const std::exception& error) {
    std::puts(error.what());
    return 1;
  }
  return 0;
}
CPP
libraries=()
# As the prefix names them: system_libs = ["dl", …]
for name in $(sed -n 's/^system_libs = \[\(.*\)\]$/\1/p' "$prefix/mlx-overlay.toml" | tr -d '",'); do
    libraries+=("-l$name")
done
for which in without with; do
    # What nobody initialised holds a pattern, in place of whatever the stack held.
    compile -O1 -ftrivial-auto-var-init=pattern -DMETAL_PATH='"/no/such/mlx.metallib"' \
        -c "$work/$which.cpp" -o "$work/$which.o"
    compile -o "$work/$which" "$work/main.cpp" "$work/$which.o" \
        "$prefix/lib/libmlx.a" "$prefix/lib/libmetalsim.a" "${libraries[@]}"
    # In a shell of its own, whose word on a crash is not wanted.
    code=$( (cd "$work" && "./$which" >"$which.out"; echo $?) 2>/dev/null)
    echo "$which: exit code $code: $(head -1 "$work/$which.out")" >"$work/$which.told"
done
grep -q "exit code 1: Failed to load the default metallib" "$work/with.told" || fail "$(cat "$work/with.told")"
grep -q "Failed to load" "$work/without.told" && fail "it is reported without metallib-errors: $(cat "$work/without.told")"
cat "$work/without.told" "$work/with.told" | keep metallib-errors device.cpp:simulated-device.txt
