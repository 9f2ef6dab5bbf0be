#!/usr/bin/env bash
# Runs examples/decoder on SmolLM2-135M-Instruct, which pip fetches (98 MB); some minutes on a simulated device.
# usage: ci/decoder.sh            the test: the answer of README.md, with blocks that keep its bits
#        ci/decoder.sh mlx-lm     compares the decoder's tokens with mlx-lm's, from the same weights
#        ci/decoder.sh mlx-load   compares the decoder's weights with those that MLX's own GGUF reader makes
#        ci/decoder.sh probe      runs mlx-lab probe on the whole model
#
# Needs a finished `cargo xtask build`, or its prefix in MLX_OVERLAY_PREFIX. mlx-lm needs `cargo xtask build --cpu`, for
# MLX's Python, and the requirements of ci/python-env.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=${1:-test}
[[ $# -le 1 && $mode =~ ^(test|mlx-lm|mlx-load|probe)$ ]] || {
    sed -n '/^# usage/,/probe/s,^# ,,p' "$0" >&2
    exit 2
}
model=$(examples/decoder/fetch.sh)
if [[ $mode == test ]]; then
    DECODER_MODEL=$model exec cargo test --package decoder --test decoding smollm2
fi

# With the current decoder, not that of the last run.
folder=target/decoder/SmolLM2-135M-Instruct
rm -rf "$folder"
cargo run --quiet --package decoder -- "$model" --write-folder "$folder"
prefix=$(readlink -f "${MLX_OVERLAY_PREFIX:-target/mlx/current}")
if [[ $mode == probe ]]; then
    exec cargo run --quiet --package mlx-lab -- probe --model "$folder"
fi
if [[ $mode == mlx-load ]]; then
    # The CPU wheel reads GGUF; this repository's builds do not.
    env=target/decoder/python-cpu
    [[ -x $env/bin/python ]] || "${PYTHON:-python3}" -m venv "$env"
    version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$prefix/mlx-overlay.toml")
    "$env/bin/pip" install --quiet --disable-pip-version-check "mlx[cpu]==$version" numpy==2.4.6
    exec "$env/bin/python" examples/decoder/with_mlx_load.py "$model" "$folder"
fi

question="What is the largest planet in the solar system?"
env=$(ci/python-env.sh "$prefix" "$PWD/target/decoder/python")
"$env/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes \
    --requirement examples/mlx-lm/requirements.txt --requirement examples/decoder/requirements.txt
ids() { grep -E '^(prompt|answer): \['; }
PYTHONDONTWRITEBYTECODE=1 "$env/bin/python" examples/decoder/with_mlx_lm.py "$folder" "$question" 48 | ids >"$folder.mlx-lm"
cargo run --quiet --package decoder -- "$model" "$question" --tokens 48 --plain --ids | ids >"$folder.decoder"
diff "$folder.mlx-lm" "$folder.decoder"
echo "the decoder and mlx-lm have the same prompt and the same answer, token for token"
