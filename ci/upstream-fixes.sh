#!/usr/bin/env bash
# For each fix meant for upstream that upstream's own tests do not cover: shows that MLX is wrong without the patch and
# right with it. Needs a finished `cargo xtask build` for the simulated device, and GCC; takes about a minute.
#
#   ci/upstream-fixes.sh            fails if a fix makes no difference
#   ci/upstream-fixes.sh --write    also writes upstream/<patch>/evidence/
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

# Links a program from $work/NAME.o and libmlx.a. A further object replaces the one of that name in the library.
link() {
    local program=$1
    shift
    compile -o "$program" "$@" "$prefix/lib/libmlx.a" "$prefix/lib/libmetalsim.a" "${libraries[@]}"
}

# Prints a program's exit code and the first line of its output. A subshell hides the shell's own message on a crash.
ends() {
    local code
    code=$( (cd "$work" && "$@" >"$work/told" 2>&1; echo $?) 2>/dev/null)
    echo "exit code $code: $(head -1 "$work/told" | cut -c1-300)" | sed 's/: $//'
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
grep -q "could not convert" "$work/without" || fail "fft.cpp fails without bluestein-pair, but with another error: $(cat "$work/without")"
compile -fsyntax-only "$work/with.cpp"
{
    echo "without: $(grep -m1 'error:' "$work/without")"
    echo "with: compiles"
} | keep bluestein-pair fft.cpp:gcc.txt

take matmul-instantiation matmul.cpp
# The function that conv.cpp calls, as `nm` prints it; T or W: the object defines it.
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

libraries=()
# As the prefix names them: system_libs = ["dl", …]
for name in $(sed -n 's/^system_libs = \[\(.*\)\]$/\1/p' "$prefix/mlx-overlay.toml" | tr -d '",'); do
    libraries+=("-l$name")
done

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
for which in without with; do
    # Uninitialised variables get a pattern instead of the stack's old content.
    compile -O1 -ftrivial-auto-var-init=pattern -DMETAL_PATH='"/no/such/mlx.metallib"' \
        -c "$work/$which.cpp" -o "$work/$which.o"
    link "$work/$which" "$work/main.cpp" "$work/$which.o"
    echo "$which: $(ends "./$which")" >"$work/$which.told"
done
grep -q "exit code 1: Failed to load the default metallib" "$work/with.told" || fail "$(cat "$work/with.told")"
grep -q "Failed to load" "$work/without.told" && fail "it is reported without metallib-errors: $(cat "$work/without.told")"
cat "$work/without.told" "$work/with.told" | keep metallib-errors device.cpp:simulated-device.txt

# The computations of the other programs, by name. Their arrays come from the host, so that no other kernel is compiled.
cat >"$work/cases.cpp" <<'CPP'
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mlx/mlx.h"

using namespace mlx::core;

array values(Shape shape, Dtype dtype = float32) {
  size_t size = 1;
  for (auto n : shape) {
    size *= n;
  }
  std::vector<float> ones(size, 1);
  return array(ones.begin(), shape, dtype);
}

const std::map<std::string, std::function<array()>> cases = {
    {"quantized_matmul of no rows",
     [] {
       auto w = values({64, 64}, uint32), s = values({64, 8});
       return quantized_matmul(values({0, 512}), w, s, s);
     }},
    {"gather_qmm of no rows",
     [] {
       auto w = values({2, 64, 64}, uint32), s = values({2, 64, 8});
       auto picks = values({2}, uint32);
       return gather_qmm(values({0, 512}), w, s, s, std::nullopt, picks);
     }},
    {"qqmm of no rows",
     [] {
       auto w = values({64, 128}, uint32), s = values({64, 16}, uint8);
       return qqmm(values({0, 512}), w, s, std::nullopt, std::nullopt, "mxfp8");
     }},
    {"segmented_mm of no rows",
     [] {
       return segmented_mm(
           values({0, 64}), values({64, 8}), values({1, 2}, uint32));
     }},
    {"conv3d of no images",
     [] { return conv3d(values({0, 8, 8, 8, 8}), values({4, 3, 3, 3, 8})); }},
    {"rms_norm of rows of no elements",
     [] { return fast::rms_norm(values({4, 0}), values({0}), 1e-5f); }},
    {"rope of no positions",
     [] {
       return fast::rope(values({1, 4, 0, 64}), 64, false, 1e4f, 1.0f, 0);
     }},
    {"layer_norm",
     [] {
       auto w = values({100});
       return fast::layer_norm(values({3, 100}), w, w, 1e-5f);
     }},
    {"cumsum",
     [] {
       auto part = slice(transpose(values({5, 11})), {2, 1}, {5, 2});
       return cumsum(part, 1);
     }},
};

int main(int, char** argv) {
  auto wanted = cases.find(argv[1]);
  try {
    eval(wanted->second());
  } catch (const std::exception& error) {
    std::puts(error.what());
    return 1;
  }
  return 0;
}
CPP
compile -c "$work/cases.cpp" -o "$work/cases.o"
export MTL_SIM_COMPILER=$prefix/bin/metal-simc

take empty-results eval.cpp
for which in without with; do
    compile -O1 -c "$work/$which.cpp" -o "$work/$which.o"
    link "$work/$which" "$work/cases.o" "$work/$which.o"
done
sed -n 's/^    {"\(.* of no .*\)",$/\1/p' "$work/cases.cpp" | while read -r case; do
    without=$(ends ./without "$case") with=$(ends ./with "$case")
    [[ $without != "exit code 0" ]] || fail "$case ends well without empty-results"
    [[ $with == "exit code 0" ]] || fail "$case with empty-results: $with"
    printf '%s\n  without: %s\n  with: %s\n' "$case" "$without" "$with"
done >"$work/empty-results"
keep empty-results eval.cpp:simulated-device.txt <"$work/empty-results"

take scan-one-entry scan.cpp
for which in without with; do
    compile -O1 -c "$work/$which.cpp" -o "$work/$which.o"
    link "$work/$which" "$work/cases.o" "$work/$which.o"
    echo "$which: $(MTL_SIM_METER=1 ends "./$which" cumsum)" >"$work/$which.told"
done
grep -q "exit code 0" "$work/with.told" || fail "$(cat "$work/with.told")"
grep -q "exit code 0" "$work/without.told" && fail "the scan ends well without scan-one-entry"
cat "$work/without.told" "$work/with.told" | keep scan-one-entry scan.cpp:simulated-device.txt

take layer-norm-bounds kernels/layer_norm.metal
for which in without with; do
    # MLX looks for its kernels beside the program first.
    mkdir "$work/kernels-$which"
    cp "$work/$which.cpp" "$work/kernels-$which/layer_norm.metal"
    link "$work/kernels-$which/program" "$work/cases.o"
    (
        cd "$work/kernels-$which"
        "$MTL_SIM_COMPILER" xcrun -sdk macosx metal -I"$mlx" -c layer_norm.metal -o layer_norm.air
        "$MTL_SIM_COMPILER" xcrun -sdk macosx metallib layer_norm.air -o mlx.metallib
    )
    echo "$which: $(MTL_SIM_CHECK=access ends "kernels-$which/program" layer_norm)" >"$work/$which.told"
done
grep -q "exit code 0" "$work/with.told" || fail "$(cat "$work/with.told")"
grep -q "array of type 'float\[8\]'" "$work/without.told" || fail "layer_norm without layer-norm-bounds: $(cat "$work/without.told")"
cat "$work/without.told" "$work/with.told" | keep layer-norm-bounds kernels/layer_norm.metal:simulated-device.txt
