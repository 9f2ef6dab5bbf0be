#!/usr/bin/env bash
# Runs cargo on a package that depends on mlx-rs, on Linux, with the patched MLX under it (docs/consumers.md).
# usage: ci/mlx-rs.sh PROJECT CARGO-ARGUMENT…, e.g. ci/mlx-rs.sh ../app test
#
# mlx-sys's build script links Apple's frameworks. Here mlx-c is built on the installed prefix instead, and cargo is
# told to take that in place of what the script would say (`[target.<triple>.<links>]` in cargo's configuration).
# ACCEPT=VERSION takes an mlx-rs that is written for that other version of MLX. MLX_OVERLAY_PREFIX names the prefix; without it, the last build. Needs libclang, for bindgen.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

[[ $# -ge 2 ]] || { sed -n 's,^# usage,usage,p' "$0" >&2; exit 2; }
project=$(cd "$1" && pwd)
shift
prefix=$(readlink -f "${MLX_OVERLAY_PREFIX:-$root/target/mlx/current}")
# Refuses a consumer that is written for another MLX.
(cd "$root" && cargo xtask env --consumer mlx-rs --project "$project" --prefix "$prefix" ${ACCEPT:+--accept "$ACCEPT"}) \
    >/dev/null

sys=$(cd "$project" && cargo metadata --format-version 1 |
    python3 -c 'import json, os, sys
print(next(os.path.dirname(p["manifest_path"]) for p in json.load(sys.stdin)["packages"] if p["name"] == "mlx-sys"))')
key=$(printf '%s\n' "$prefix" "$sys" "$(<"$prefix/mlx-overlay.toml")" | sha256sum | cut -c1-12)
work=$root/target/mlx/env/mlx-rs-$key
mkdir -p "$work/bindings/src" "$work/out"

# Writes its input to a file. One that has it already keeps its time, so that nothing is compiled anew, and a build that
# reads it meanwhile sees the whole old one or the whole new one.
put() {
    cat >"$1.new.$$"
    if cmp -s "$1.new.$$" "$1"; then rm "$1.new.$$"; else mv "$1.new.$$" "$1"; fi
}

launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
# mlx-c uses std::format, which GCC has from 13 on; before, MLX's own pinned fmt stands in for it.
put "$work/format.h" <<'CPP'
#include <version>
#ifndef __cpp_lib_format
#define FMT_HEADER_ONLY
#include <fmt/format.h>
namespace std {
using fmt::format;
}
#endif
CPP
# mlx-c declares its half-precision functions on ARM alone, and mlx-rs calls them everywhere. Elsewhere they get types
# of the same size.
put "$work/half.h" <<'CPP'
#pragma once
#ifndef __aarch64__
#include <stdint.h>
typedef struct { uint16_t bits; } float16_t;
typedef uint16_t bfloat16_t;
#define HAS_FLOAT16
#define HAS_BFLOAT16
#endif
CPP
{
    cat <<CMAKE
set_source_files_properties("$sys/src/mlx-c/mlx/c/array.cpp" PROPERTIES
  COMPILE_OPTIONS "-include;$work/half.h")
CMAKE
    # An mlx-c for another MLX calls some functions as they were there.
    if [[ -f $root/ci/mlx-c-${ACCEPT:-none}.h ]]; then
        cat <<CMAKE
set_source_files_properties("$sys/src/mlx-c/mlx/c/ops.cpp" PROPERTIES
  COMPILE_OPTIONS "-include;$root/ci/mlx-c-$ACCEPT.h")
CMAKE
    fi
} | put "$work/compatibility.cmake"
fmt=$(echo "$root"/target/overlay/inputs/fmt-*/include)
cmake -S "$sys/src/mlx-c" -B "$work/mlx-c" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMLX_C_BUILD_EXAMPLES=OFF \
    -DMLX_C_USE_SYSTEM_MLX=ON -DMLX_DIR="$prefix/share/cmake/MLX" "${launcher[@]}" \
    -DCMAKE_PROJECT_INCLUDE="$work/compatibility.cmake" \
    -DCMAKE_CXX_FLAGS="-I$fmt -include $work/format.h" >"$work/mlx-c.log"
cmake --build "$work/mlx-c" >>"$work/mlx-c.log" || { tail -n 30 "$work/mlx-c.log" >&2; exit 1; }

# mlx-rs seeds its random state from a clock that only Apple's systems have.
put "$work/clock.c" <<'C'
#include <stdint.h>
#include <time.h>
uint64_t mach_approximate_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
C
cc -O2 -fPIC -c "$work/clock.c" -o "$work/clock.o"
# D: without times, the archive is the same each time.
ar rcsD "$work/clock.$$.a" "$work/clock.o"
put "$work/libmlxrsclock.a" <"$work/clock.$$.a"
rm "$work/clock.$$.a"

# The bindings, as mlx-sys's own configuration of bindgen makes them.
put "$work/bindings/Cargo.toml" <<'TOML'
[package]
name = "bindings"
edition = "2024"
[workspace]
[dependencies]
bindgen = "0.72.1"
TOML
put "$work/bindings/src/main.rs" <<RUST
#[allow(dead_code)]
#[path = "$sys/src/bindgen_config.rs"]
mod bindgen_config;
fn main() {
    let root = std::path::Path::new("$sys/src/mlx-c");
    let headers = bindgen_config::discover_headers(root).expect("mlx-c's headers");
    let bindings = bindgen_config::builder(root, &headers).generate().expect("bindings");
    bindings.write_to_file("$work/bindings.rs").expect("a file that can be written");
}
RUST
if [[ ! -s $work/out/bindings.rs ]]; then
    BINDGEN_EXTRA_CLANG_ARGS="-include $work/half.h" cargo run --quiet --manifest-path "$work/bindings/Cargo.toml"
    # On ARM bindgen makes a type with one unnamed field of float16_t, and mlx-rs takes it apart so.
    python3 - "$work/bindings.rs" "$(uname -m)" <<'PY'
import re, sys

path, machine = sys.argv[1:]
text = open(path).read()
text, structs = re.subn(
    r"#\[derive\(Debug, Copy, Clone\)\]\s*pub struct float16_t \{\s*pub bits: u16,\s*\}",
    "#[derive(Debug, Default, Copy, Clone)]\npub struct float16_t(pub u16);",
    text,
)
text = re.sub(r"#\[test\]\s*fn bindgen_test_layout_float16_t\(\) \{.*?\n\}\n", "", text, flags=re.S)
if structs != 1 and machine not in ("aarch64", "arm64"):
    sys.exit(f"{path}: expected one float16_t, found {structs}")
open(path, "w").write(text)
PY
    mv "$work/bindings.rs" "$work/out/bindings.rs"
fi

python3 - "$prefix" "$work" "$(rustc -vV | sed -n 's/^host: //p')" <<'PY' | put "$work/config.toml"
import json, sys, tomllib

prefix, work, host = sys.argv[1:]
stamp = tomllib.load(open(f"{prefix}/mlx-overlay.toml", "rb"))
search = [work, f"{work}/mlx-c", f"{prefix}/{stamp['lib']}", *stamp["link_search"]]
static = ["mlxrsclock", "mlxc", *stamp["static_libs"]]
print(f"[target.{host}.mlx]")
print("rustc-link-search =", json.dumps([f"native={folder}" for folder in search]))
print("rustc-link-lib =", json.dumps([f"static={name}" for name in static] + stamp["system_libs"] + ["stdc++"]))
# mlx-sys includes its bindings from there.
print("rustc-env =", f"{{ OUT_DIR = {json.dumps(work + '/out')} }}")
PY
cd "$project"
exec cargo --config "$work/config.toml" "$@"
