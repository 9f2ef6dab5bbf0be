#!/usr/bin/env bash
# nvcc 13.0, the libraries that MLX's CUDA back-end links, and cuDNN 9, from packages of PyPI into target/cuda. Needs pip
# and a C compiler, no GPU. Prints the nvcc, for CUDACXX; `cargo xtask build --backend cuda` looks there by itself.
# usage: ci/cuda-toolkit.sh [--compiler]    --compiler: only nvcc and its headers (0.4 GB instead of 3)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96)
case ${1:-} in
--compiler) ;;
'')
    # cuSOLVER needs the last two before cuDNN.
    packages+=(nvidia-cuda-nvrtc==13.0.88 nvidia-cublas==13.1.0.3 nvidia-cufft==12.0.0.61 nvidia-cusolver==12.0.4.66
        nvidia-cusparse==12.6.3.3 nvidia-nvjitlink==13.0.88 nvidia-cudnn-cu13==9.19.0.56)
    ;;
*)
    sed -n 's,^# usage,usage,p' "$0" >&2
    exit 2
    ;;
esac

folder=target/cuda
list="${packages[*]}"
# A complete installation is enough for --compiler too.
if [[ $(cat $folder/packages 2>/dev/null) != "$list"* ]]; then
    rm -rf $folder.new
    "${PYTHON:-python3}" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary=:all: \
        --target $folder.new "${packages[@]}" >&2
    toolkit=$folder.new/nvidia/cu13
    # Names that linkers and CMake look for and the Python packages leave out.
    ln -s lib $toolkit/lib64
    for library in "$toolkit"/lib/lib*.so.* "$folder.new"/nvidia/cudnn/lib/lib*.so.*; do
        [[ -e $library && $library != *.alt.so.* ]] || continue
        ln -s "${library##*/}" "${library%%.so.*}.so"
    done
    # The driver's library belongs to the machine; the linker uses this stand-in.
    mkdir $toolkit/lib/stubs
    echo | "${CC:-cc}" -shared -x c - -Wl,-soname,libcuda.so.1 -o $toolkit/lib/stubs/libcuda.so
    printf '%s' "$list" >$folder.new/packages
    rm -rf $folder
    mv $folder.new $folder
fi
echo "$PWD/$folder/nvidia/cu13/bin/nvcc"
