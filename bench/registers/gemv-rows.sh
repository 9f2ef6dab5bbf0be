#!/bin/sh
# Registers, spills and code size of gemv, gemv_t and their versions for several rows, as compiled by LLVM for a GPU
# with 32 lanes (gfx1030, 128 registers per lane at the default occupancy). Needs clang with the AMDGPU target and
# vendor/mlx.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kernels=mlx/backend/metal/kernels
{
  sed -n '/^#define MLX_MTL_CONST/,/^\/\/\/ Matrix vector multiplication kernel/p' "$root/vendor/mlx/$kernels/gemv.h"
  grep -v '^#pragma once' "$root/patches/files/$kernels/gemv_rows.h"
} | sed "s/^\[\[kernel.*\]\] void/METAL_FUNC void/; s/threadgroup float tgp_memory\[/LOCAL float tgp_memory[/
  s/ \[\[threadgroup(0)\]\]//; s/^constant bool gemv_rows_axpby .*/constexpr bool gemv_rows_axpby = true;/" \
  >"$work/kernels.h"
"${CXX:-clang++-19}" -std=c++20 -O2 --target=amdgcn-amd-amdhsa -mcpu=gfx1030 -nogpulib -ffp-contract=on -w -S \
  -I "$work" "$here/gemv-rows.cpp" -o "$work/out.s"
awk -f "$here/registers.awk" "$work/out.s"
