#!/usr/bin/env bash
# Builds what users outside this repository build: bundles the last build, moves the bundle, hides target/mlx, and links
# and runs the examples with it (docs/guide/rust.md). Needs a finished `cargo xtask build`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

root=$PWD
builds=$root/target/mlx
hidden=$root/target/mlx.hidden
work=$(mktemp -d)

# A killed run may have left it hidden, and a later build may have made another.
restore() {
    [[ -d $hidden ]] || return 0
    if [[ -e $builds ]]; then
        echo "$builds and $hidden both exist: remove the one that you do not need, or rename the second to the first" >&2
        exit 1
    fi
    mv "$hidden" "$builds"
}
restore
trap 'restore; rm -rf "$work"' EXIT

# expect TEXT COMMAND…: checks that the command prints the text.
expect() {
    local text=$1 output
    shift
    output=$("$@" 2>&1) || { printf '%s\n%s failed\n' "$output" "$*" >&2; exit 1; }
    grep --fixed-strings --quiet -- "$text" <<<"$output" || {
        printf '%s\nexpected: %s\n' "$output" "$text" >&2
        exit 1
    }
}

# expect_failure COMMAND… -- TEXT…: checks that the command fails and prints each text.
expect_failure() {
    local command=() output text
    while [[ $1 != -- ]]; do
        command+=("$1")
        shift
    done
    shift
    if output=$("${command[@]}" 2>&1); then
        printf '%s\n%s succeeded\n' "$output" "${command[*]}" >&2
        exit 1
    fi
    for text in "$@"; do
        grep --fixed-strings --quiet -- "$text" <<<"$output" || {
            printf '%s\nexpected: %s\n' "$output" "$text" >&2
            exit 1
        }
    done
}

sum=sha256sum
command -v $sum >/dev/null || sum="shasum -a 256"

echo "== FetchContent takes the patched source (configured only)"
settings=$(cargo xtask env --consumer cmake)
eval "$settings"
include=$(sed -n 's/.*-DCMAKE_PROJECT_INCLUDE=\([^ ]*\).*/\1/p' <<<"$settings")
mkdir "$work/fetch"
cat >"$work/fetch/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C CXX)
include(FetchContent)
set(MLX_BUILD_CPU OFF)
set(MLX_BUILD_METAL OFF)
FetchContent_Declare(mlx GIT_REPOSITORY https://example.invalid/mlx.git GIT_TAG v0.0.0)
FetchContent_MakeAvailable(mlx)
message(STATUS "source ${mlx_SOURCE_DIR}")
CMAKE
expect "source $root/vendor/mlx" \
    cmake -S "$work/fetch" -B "$work/fetch/build" -G Ninja -DCMAKE_PROJECT_INCLUDE="$include"
unset MLX_DIR

if [[ $(uname) == Linux ]]; then
    echo "== Python: pip keeps the wheel"
    # The environment made by ci/mlx-lm.sh.
    python=$(PYTHON=python3 ci/python-env.sh "$builds/current" "$root/target/mlx-lm")/bin/python
    expect "+overlay." "$python" -c 'import importlib.metadata as m; print(m.version("mlx"))'
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$builds/current/mlx-overlay.toml")
    # Nothing to fetch, so no index is needed.
    expect "already satisfied: mlx[cpu]>=$version" "$python" -m pip install --disable-pip-version-check --no-index \
        --dry-run "mlx[cpu]>=$version"
fi

echo "== bundle, move, hide the build"
cargo xtask bundle --output "$work/made"
mv "$work/made" "$work/moved"
(cd "$work/moved" && $sum -c MANIFEST.sha256 >/dev/null)
mv "$builds" "$hidden"
export MLX_OVERLAY_PREFIX=$work/moved

echo "== Rust"
cd examples/downstream
# Cargo compiles the registry packages once for both workspaces.
export CARGO_TARGET_DIR=$root/target
cargo fmt --all --check
cargo build --quiet --locked
expect "exact: 6 of 6 rows have the bits" "$CARGO_TARGET_DIR/debug/rows"
expect "4-bit quantization is off by 0." "$CARGO_TARGET_DIR/debug/own-cpp"

echo "== CMake and pkg-config"
cmake -S "$root/examples/cmake" -B "$work/cmake" -G Ninja -DMLX_DIR="$MLX_OVERLAY_PREFIX/share/cmake/MLX" >"$work/log" ||
    { cat "$work/log"; exit 1; }
cmake --build "$work/cmake" >"$work/log" || { cat "$work/log"; exit 1; }
expect "4-bit quantization is off by 0." "$work/cmake/step"
if command -v pkg-config >/dev/null; then
    PKG_CONFIG_PATH=$MLX_OVERLAY_PREFIX/lib/pkgconfig expect "-lmlx" pkg-config --static --libs mlx
fi

echo "== the bundle moves after the programs were linked"
mv "$work/moved" "$work/elsewhere"
expect "4-bit quantization is off by 0." "$work/cmake/step"
expect_failure "$CARGO_TARGET_DIR/debug/rows" -- \
    "$CARGO_TARGET_DIR/debug/mlx.metallib" "$CARGO_TARGET_DIR/debug/Resources/mlx.metallib" \
    "$work/moved/lib/mlx.metallib" "$builds" MLX_OVERLAY_METALLIB
MLX_OVERLAY_METALLIB=$work/elsewhere/lib/mlx.metallib expect "exact: 6 of 6" "$CARGO_TARGET_DIR/debug/rows"
MLX_OVERLAY_METALLIB=$work/none expect_failure "$CARGO_TARGET_DIR/debug/rows" -- "names $work/none"

if [[ $(uname) == Linux ]]; then
    echo "== the bundle alone: checkout, builds and home are not visible"
    alone=(unshare --mount)
    [[ $(id -u) == 0 ]] || alone=(unshare --map-root-user --mount)
    # shellcheck disable=SC2016  # the inner shell expands these
    alone+=(sh -c 'for d in "$1" "$2"; do mount -t tmpfs none "$d"; done; cd /; shift 2; exec "$@"' sh "$root" "$HOME")
    if "${alone[@]}" true 2>/dev/null; then
        cp "$CARGO_TARGET_DIR/debug/rows" "$work"
        expect_failure "${alone[@]}" ls "$root/Cargo.toml" -- "No such file"
        expect "exact: 6 of 6" "${alone[@]}" env MLX_OVERLAY_METALLIB="$work/elsewhere/lib/mlx.metallib" "$work/rows"
        expect "4-bit quantization is off by 0." "${alone[@]}" "$work/cmake/step"
    else
        echo "not run: this machine permits no mount namespace"
    fi
fi

echo "== C++ without kernels gets the error, also on a stack that is not clean"
mkdir "$work/twice"
cat >"$work/twice/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(twice LANGUAGES CXX)
find_package(MLX CONFIG REQUIRED)
add_executable(twice twice.cpp)
target_link_libraries(twice PRIVATE mlx)
CMAKE
cat >"$work/twice/twice.cpp" <<'CPP'
#include <cstdio>
#include <cstring>
#include <exception>

#include "mlx/mlx.h"

[[gnu::noinline]] void scribble() {
  char stack[1 << 16];
  std::memset(stack, 0x5a, sizeof(stack));
  asm volatile("" : : "r"(stack) : "memory");
}

int main() {
  for (int i = 1; i <= 2; i++) {
    scribble();
    try {
      mlx::core::new_stream(mlx::core::Device::gpu);
    } catch (const std::exception& error) {
      std::printf("%d: %s\n", i, error.what());
    }
  }
}
CPP
expect "" cmake -S "$work/twice" -B "$work/twice/build" -G Ninja -DMLX_DIR="$work/elsewhere/share/cmake/MLX"
expect "" cmake --build "$work/twice/build"
expect "2: Failed to load the default metallib. library not found" "$work/twice/build/twice"

echo "== an incomplete bundle"
mv "$work/elsewhere/lib/mlx.metallib" "$work/kept"
MLX_OVERLAY_PREFIX=$work/elsewhere expect_failure cargo check --quiet --locked -p rows -- \
    "\`$work/elsewhere/lib/mlx.metallib\` is missing" "bundle again"
mv "$work/kept" "$work/elsewhere/lib/mlx.metallib"

echo "== nothing prepared"
MLX_OVERLAY_PREFIX=$work/none expect_failure cargo check --quiet --locked -p rows -- \
    "no built MLX in \`$work/none\`" "cargo xtask build"
MLX_OVERLAY_PREFIX=$work/none DOCS_RS=1 cargo doc --quiet --locked --no-deps -p mlx-overlay -p mlx-overlay-sys
