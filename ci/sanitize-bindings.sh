#!/usr/bin/env bash
# Runs the tests of the bridge and of the safe crate under AddressSanitizer and UndefinedBehaviorSanitizer. A finding
# ends the test. Needs clang.
#
# The bridge's C++ is instrumented. MLX is too if MLX_OVERLAY_PREFIX is an instrumented build; otherwise only the
# sanitizers' allocator and interceptors cover it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=$(rustc -vV | sed -n 's/^host: //p')
cargo_target=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$target")

export CC=clang CXX=clang++
# MLX's headers use things that libstdc++ deprecates, in templates that clang attributes to the tests.
CXXFLAGS='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g'
export CXXFLAGS="$CXXFLAGS -Wno-error=deprecated-declarations"
# clang++ links: rustc passes -nodefaultlibs, with which gcc would omit its run-time libraries.
export "${cargo_target}_LINKER=clang++"
export "${cargo_target}_RUSTFLAGS=-Clink-arg=-fsanitize=address,undefined"
# No leak checks: MLX leaks its scheduler and encoders on purpose.
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
# Naming the target keeps the flags from build scripts; a separate folder keeps the builds apart.
export CARGO_TARGET_DIR=target/sanitize
tests=(cargo test --target "$target" --no-fail-fast)

"${tests[@]}" --package mlx-overlay-sys --test bridge
"${tests[@]}" --package mlx-overlay \
    --lib --test array --test quantized --test threads --test exit --test gpu \
    --test failures --test files --test operations --test threads_of_the_system
