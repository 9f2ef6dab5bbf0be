#!/bin/sh
# Runs Apple-compiled kernels next to the simulator's (crates/air-oracle/README.md). Full tier: about 20 CPU-minutes.
#
#   ci/air-oracle.sh [MLX tree, default vendor/mlx] [further arguments of air-oracle]
set -eu

tree=${1:-vendor/mlx}
[ $# -eq 0 ] || shift
version=$(sed -n 's/^version *= *"\(.*\)"/\1/p' mlx.toml | head -n 1)
wheel=target/mlx-metal-wheels/$version-macosx_14_0_arm64

[ -f "$tree/mlx/version.h" ] || { echo "$tree is not an MLX tree; make it with: cargo xtask apply-overlay" >&2; exit 1; }
for tool in pip unzip clang-19 llvm-dis-19; do
    command -v $tool >/dev/null || { echo "$tool is missing (Debian: python3-pip unzip clang-19 llvm-19)" >&2; exit 1; }
done

if [ ! -f "$wheel/mlx.metallib" ]; then
    mkdir -p "$wheel"
    pip download --quiet --no-deps --only-binary=:all: --platform macosx_14_0_arm64 --dest "$wheel" "mlx-metal==$version"
    unzip -q -j -d "$wheel/partial" "$wheel"/*.whl mlx/lib/mlx.metallib
    mv "$wheel/partial/mlx.metallib" "$wheel/"
    rm -r "$wheel/partial" "$wheel"/*.whl
fi
cargo run --release --package air-oracle -- --metallib "$wheel/mlx.metallib" --tree "$tree" "$@"
