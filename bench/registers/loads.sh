#!/bin/sh
# How many loads of packed weights the candidates' optimised code has for one block of K and four rows of outputs.
# Needs clang with the AMDGPU target, python3 and vendor/mlx.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kernels=mlx/backend/metal/kernels
sed -n '/^template <int bits, int wsize = 8>/,/^qouter(/p' "$root/vendor/mlx/$kernels/quantized.h" |
  sed '/^inline void$/,$d' | sed '$d' >"$work/helpers.h"
# The shipped kernel's chunk.
sed '/^\/\/ `packs_per_thread` is/,$d' "$root/patches/files/$kernels/qmv_streamed.h" >"$work/streamed.h"
"${CXX:-clang++-19}" -std=c++20 -O2 --target=amdgcn-amd-amdhsa -mcpu=gfx1030 -nogpulib -ffp-contract=on -w -S -emit-llvm \
  -I "$work" "${1:-$here/loop-shape.cpp}" -o "$work/out.ll"
python3 "$here/loads.py" <"$work/out.ll"
