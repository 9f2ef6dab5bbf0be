#!/usr/bin/env bash
# Runs cargo on a package that depends on mlx-rs, on Linux, with the patched MLX (docs/guide/bindings.md).
# usage: ci/mlx-rs.sh PROJECT CARGO-ARGUMENT…, e.g. ci/mlx-rs.sh ../app test
#
# mlx-sys's build script links Apple's frameworks. Here mlx-c is built with the installed prefix instead, and cargo uses
# it instead of running the script (`[target.<triple>.<links>]` in cargo's configuration). ACCEPT=VERSION accepts an
# mlx-rs written for that other version of MLX. MLX_OVERLAY_PREFIX is the prefix; without it, the last build is used.
# Needs libclang, for bindgen.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

[[ $# -ge 2 ]] || { sed -n 's,^# usage,usage,p' "$0" >&2; exit 2; }
project=$(cd "$1" && pwd)
shift
prefix=$(readlink -f "${MLX_OVERLAY_PREFIX:-$root/target/mlx/current}")
# Rejects a consumer written for another MLX, and an insufficient prefix.
(cd "$root" && cargo xtask env --consumer mlx-rs --project "$project" --prefix "$prefix" ${ACCEPT:+--accept "$ACCEPT"}) \
    >/dev/null || { echo "(for this script, \`--accept VERSION\` is ACCEPT=VERSION in its environment)" >&2; exit 1; }

sys=$(cd "$project" && cargo metadata --format-version 1 |
    python3 -c 'import json, os, sys
print(next(os.path.dirname(p["manifest_path"]) for p in json.load(sys.stdin)["packages"] if p["name"] == "mlx-sys"))')
key=$(printf '%s\n' "$prefix" "$sys" "$(<"$prefix/mlx-overlay.toml")" "$(cat "$root"/ci/mlx-c/*)" | sha256sum | cut -c1-12)
work=$root/target/mlx/env/mlx-rs-$key
mkdir -p "$work/bindings/src" "$work/out"

# Writes its input to a file. A file with the same content keeps its time, so that nothing is recompiled. A build that
# reads it meanwhile sees the complete old or new content.
put() {
    cat >"$1.new.$$"
    if cmp -s "$1.new.$$" "$1"; then rm "$1.new.$$"; else mv "$1.new.$$" "$1"; fi
}

launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
cmake -S "$sys/src/mlx-c" -B "$work/mlx-c" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMLX_C_BUILD_EXAMPLES=OFF \
    -DMLX_C_USE_SYSTEM_MLX=ON -DMLX_DIR="$prefix/share/cmake/MLX" "${launcher[@]}" \
    -DCMAKE_PROJECT_INCLUDE="$root/ci/mlx-c/project.cmake" -DMLX_RS_CLOCK=ON >"$work/mlx-c.log" 2>&1 ||
    { cat "$work/mlx-c.log" >&2; exit 1; }
cmake --build "$work/mlx-c" >>"$work/mlx-c.log" 2>&1 || { tail -n 30 "$work/mlx-c.log" >&2; exit 1; }

# The bindings, made with mlx-sys's own bindgen configuration.
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
    BINDGEN_EXTRA_CLANG_ARGS="-include '$root/ci/mlx-c/half.h'" cargo run --quiet --manifest-path "$work/bindings/Cargo.toml"
    # On ARM bindgen makes float16_t a type with one unnamed field, and mlx-rs depends on that.
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
search = [f"{work}/mlx-c", f"{prefix}/{stamp['lib']}", *stamp["link_search"]]
static = ["mlxrsclock", "mlxc", *stamp["static_libs"]]
print(f"[target.{host}.mlx]")
print("rustc-link-search =", json.dumps([f"native={folder}" for folder in search]))
print("rustc-link-lib =", json.dumps([f"static={name}" for name in static] + stamp["system_libs"] + ["stdc++"]))
# mlx-sys includes its bindings from there.
print("rustc-env =", f"{{ OUT_DIR = {json.dumps(work + '/out')} }}")
PY
cd "$project"
# After the command: `cargo clippy` passes it on there.
exec cargo "$1" --config "$work/config.toml" "${@:2}"
