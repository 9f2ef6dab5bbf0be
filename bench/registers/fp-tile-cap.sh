#!/bin/sh
# Registers, spills and code size of the fp kernels for several rows, as LLVM compiles them for a GPU with 32 lanes
# (gfx1030, 128 registers a lane at the default occupancy). Needs clang with the AMDGPU target and vendor/mlx.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kernels=mlx/backend/metal/kernels
streamed=$root/patches/files/$kernels/fp_qmv_streamed.h
{
  cat "$root/vendor/mlx/$kernels/fp4.h" "$root/vendor/mlx/$kernels/fp8.h"
  sed -n '/^#define MLX_MTL_CONST/,/^METAL_FUNC void fp_qvm_impl/p' "$root/vendor/mlx/$kernels/fp_quantized.h" | sed '$d' | sed '$d'
  sed '/^\/\/ .fast. tells/,$d' "$streamed"
} | grep -v '^#pragma once' >"$work/kernels.h"
# The same kernel around another chunk: packed words in registers, decoded for each vector.
sed -n '/^\/\/ .packs_per_thread. is/,/^\/\/ .fast. tells/p' "$streamed" | sed '$d' |
  sed 's/fp_qmv_streamed_impl/packed_impl/; s/fp_qmv_streamed_chunk/packed_chunk/' >"$work/packed.h"
"${CXX:-clang++-19}" -std=c++20 -O2 --target=amdgcn-amd-amdhsa -mcpu=gfx1030 -nogpulib -ffp-contract=on -w -S \
  -I "$work" "$here/fp-tile-cap.cpp" -o "$work/out.s"
awk -f "$here/registers.awk" "$work/out.s"
