#!/bin/sh
# Registers, spills and code size of the candidates, as LLVM compiles them for a GPU with 32 lanes (gfx1030, 128
# registers a lane at the default occupancy). Needs clang with the AMDGPU target and vendor/mlx.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kernels=mlx/backend/metal/kernels
sed -n '/^template <int bits, int wsize = 8>/,/^qouter(/p' "$root/vendor/mlx/$kernels/quantized.h" | sed '/^inline void$/,$d' | sed '$d' >"$work/helpers.h"
sed '/^\/\/ `packs_per_thread` is/,$d' "$root/patches/files/$kernels/qmv_streamed.h" >"$work/streamed.h"
"${CXX:-clang++-19}" -std=c++20 -O2 --target=amdgcn-amd-amdhsa -mcpu=gfx1030 -nogpulib -ffp-contract=on -w -S \
  -I "$work" "$here/loop-shape.cpp" -o "$work/out.s"
awk -f "$here/registers.awk" "$work/out.s"
