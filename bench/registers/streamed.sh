#!/bin/sh
# Registers, spills and code size of every streamed kernel that the plan can choose for a single product, as compiled by
# LLVM for a GPU with 32 lanes (gfx1030, 128 registers per lane at the default occupancy). Fails if one spills. Needs
# clang with the AMDGPU target and vendor/mlx.
#
#   streamed.sh [file]   the kernels listed in the file, in the format of shapes.cpp
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cxx=${CXX:-clang++-19}
kernels=mlx/backend/metal/kernels
files=$root/patches/files
upstream=$root/vendor/mlx/$kernels
[ -f "$upstream/quantized.h" ] || { echo "vendor/mlx does not exist: run \`cargo xtask apply-overlay\`" >&2; exit 1; }

if [ $# -gt 0 ]; then
  cp "$1" "$work/shapes"
else
  "$cxx" -std=c++20 -O1 -I "$files" -o "$work/list" "$here/shapes.cpp" "$files/mlx/row_policy.cpp" \
    "$files/mlx/backend/metal/qmv_plan.cpp"
  "$work/list" >"$work/shapes"
fi

# The parts of upstream's headers that the kernels use, and the kernels; `shared` is a threadgroup variable.
mkdir -p "$work/affine" "$work/fp" "$work/$kernels"
sed -n '/^template <int bits, int wsize = 8>/,/^template <typename T, typename U, int values_per_thread, int bits>/p' \
  "$upstream/quantized.h" | sed '$d' >"$work/affine/helpers.h"
{
  cat "$upstream/fp4.h" "$upstream/fp8.h"
  sed -n '/^template <int wsize = 8, int bits = 4>/,/^template <typename T, typename U, int values_per_thread>/p' \
    "$upstream/fp_quantized.h" | sed '$d'
} | grep -v '^#pragma once' | sed 's/^static inline/inline/' >"$work/fp/helpers.h"
placed() { sed 's/^  threadgroup float4 shared\[/  LOCAL float4 shared[/' "$files/$kernels/$1"; }
placed streamed_tile.h >"$work/$kernels/streamed_tile.h"
placed qmv_streamed.h >"$work/affine/streamed.h"
placed fp_qmv_streamed.h >"$work/fp/streamed.h"

# One program for each mode and type.
cut -d' ' -f1 "$work/shapes" | sort -u >"$work/programs"
while read -r program; do
  case $program in affine_*) family=affine fp=0 ;; *) family=fp fp=1 ;; esac
  awk -v program="$program" '
    $1 == program { print "KERNEL(" $1 "_" $2 ", " $3 ", " $4 ", " $5 ", " $6 ", " $7 ", " $8 ", " $9 ", " $10 ")" }
  ' "$work/shapes" >"$work/kernels.h"
  "$cxx" -std=c++20 -O2 --target=amdgcn-amd-amdhsa -mcpu=gfx1030 -nogpulib -ffp-contract=on -w -S -DFP=$fp \
    -I "$work" -I "$work/$family" "$here/streamed.cpp" -o "$work/out.s"
  awk -f "$here/registers.awk" "$work/out.s"
done <"$work/programs" >"$work/table"

awk -v listed="$(wc -l <"$work/shapes")" '
  { print; spilled += $4 != 0 }
  END {
    print NR " kernels, " spilled + 0 " spill"
    if (NR != listed) {
      print "expected figures for " listed " kernels" >"/dev/stderr"
    }
    exit NR != listed || spilled
  }' "$work/table"
