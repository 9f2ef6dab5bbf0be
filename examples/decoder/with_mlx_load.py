"""Compares the folder that the decoder wrote with what MLX's own reader of GGUF makes of the file (ci/decoder.sh)."""

import json
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
file, folder = mx.load(sys.argv[1]), mx.load(f"{sys.argv[2]}/model.safetensors")
HEAD = json.loads(Path(sys.argv[2], "config.json").read_text())["head_dim"]
PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
REST = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}

wrong = set(folder)
for name, array in file.items():
    *layer, part, kind = name.split(".")
    if layer:
        ours = f"model.layers.{layer[1]}.{PARTS[part]}.{kind}"
    else:
        ours = f"{REST[part]}.{kind}"
    if part in ("attn_q", "attn_k"):
        # llama.cpp interleaves the halves of a head; MLX's reader leaves the conversion to the model.
        rows = np.arange(array.shape[0]).reshape(-1, HEAD // 2, 2).swapaxes(1, 2).reshape(-1)
        array = array[mx.array(rows)]
    found = folder[ours]
    # Norms are float32 in the file.
    if array.shape == found.shape and mx.array_equal(array, found.astype(array.dtype)).item():
        wrong.discard(ours)
if wrong:
    sys.exit(f"{len(wrong)} of {len(folder)} arrays differ: {sorted(wrong)[:5]}")
print(f"{len(folder)} arrays are those that MLX's own reader of GGUF makes, bit for bit")
