"""Plain and speculative decoding with a small Llama in MLX's CUDA back-end: tokens per second, and the tokens.

    decode.py MODEL PROMPT ARM OUT    MODEL is a folder of mlx-lm, PROMPT a file of token numbers

Drafts are the tokens that followed the latest earlier occurrence of the last two tokens. A block is the last token and
seven drafted ones: eight rows, the smallest number for which MLX uses its matrix kernels. Appends lines to a CSV file:
arm, decoding, tokens, passes, tokens per second, hash of the logits of plain decoding, tokens.
"""

import hashlib
import json
import sys
import time
from pathlib import Path

import mlx.core as mx
import numpy as np

TOKENS = 256
BLOCK = 8
CAPACITY = 1024  # keys; a multiple of 256, like mlx-lm's caches


class Llama:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = mx.load(str(folder / "model.safetensors"))
        quantization = self.config["quantization"]
        self.formats = {k: v for k, v in quantization.items() if isinstance(v, dict)}
        self.format = {k: quantization[k] for k in ("bits", "group_size", "mode")}

    def linear(self, x, name):
        w = self.weights
        return mx.quantized_matmul(
            x,
            w[f"{name}.weight"],
            w[f"{name}.scales"],
            w.get(f"{name}.biases"),
            transpose=True,
            **self.formats.get(name, self.format),
        )

    def norm(self, x, name):
        return mx.fast.rms_norm(x, self.weights[f"{name}.weight"], self.config["rms_norm_eps"])

    def embed(self, tokens):
        name, w = "model.embed_tokens", self.weights
        rows = [w[f"{name}.{part}"][tokens] for part in ("weight", "scales", "biases")]
        return mx.dequantize(*rows, **self.formats.get(name, self.format))

    def cache(self):
        c = self.config
        shape = (1, c["num_key_value_heads"], CAPACITY, c["head_dim"])
        dtype = self.weights["model.norm.weight"].dtype
        return [[mx.zeros(shape, dtype), mx.zeros(shape, dtype)] for _ in range(c["num_hidden_layers"])]

    def logits(self, tokens, cache, at):
        """The logits after each of `tokens`; `at` tokens before them are in the cache."""
        c, dim = self.config, self.config["head_dim"]
        n = len(tokens)
        x = self.embed(mx.array(tokens))[None]
        for i, layer in enumerate(cache):
            name = f"model.layers.{i}"
            h = self.norm(x, f"{name}.input_layernorm")

            def heads(part, count, h=h, name=name):
                y = self.linear(h, f"{name}.self_attn.{part}_proj")
                return y.reshape(1, n, count, dim).swapaxes(1, 2)

            q, k, v = (heads(part, c[f"num_{kind}_heads"]) for part, kind in
                       (("q", "attention"), ("k", "key_value"), ("v", "key_value")))
            q, k = (mx.fast.rope(y, dim, traditional=False, base=c["rope_theta"], scale=1.0, offset=at) for y in (q, k))
            for part, new in zip(layer, (k, v)):
                part[:, :, at : at + n] = new
            y = mx.fast.scaled_dot_product_attention(
                q, *(part[:, :, : at + n] for part in layer), scale=dim**-0.5, mask="causal" if n > 1 else None
            )
            x = x + self.linear(y.swapaxes(1, 2).reshape(1, n, -1), f"{name}.self_attn.o_proj")
            h = self.norm(x, f"{name}.post_attention_layernorm")
            gate, up = self.linear(h, f"{name}.mlp.gate_proj"), self.linear(h, f"{name}.mlp.up_proj")
            x = x + self.linear(gate * mx.sigmoid(gate) * up, f"{name}.mlp.down_proj")
        return self.linear(self.norm(x, "model.norm"), "model.embed_tokens")[0]


def draft(tokens, count):
    """The tokens that followed the latest earlier occurrence of the last two tokens, or repetitions of the last one."""
    for i in range(len(tokens) - 3, -1, -1):
        if tokens[i : i + 2] == tokens[-2:]:
            return (tokens[i + 2 : i + 2 + count] + tokens[-1:] * count)[:count]
    return tokens[-1:] * count


def decode(model, prompt, rows):
    """The answer, the number of passes, and seconds; with rows = 1 also a hash of the logits."""
    cache, tokens = model.cache(), list(prompt)
    # The prompt is computed one token at a time: splitting a prompt is another question.
    for at, token in enumerate(tokens):
        logits = model.logits([token], cache, at)
        mx.eval(logits, cache)
    digest = hashlib.sha256()
    tokens.append(int(mx.argmax(logits[-1]).item()))
    start, passes = time.perf_counter(), 0
    while len(tokens) < len(prompt) + TOKENS:
        block = tokens[-1:] + (draft(tokens, rows - 1) if rows > 1 else [])
        logits = model.logits(block, cache, len(tokens) - 1)
        best = np.array(mx.argmax(logits, axis=-1))
        passes += 1
        if rows == 1:
            digest.update(np.array(mx.view(logits, mx.uint16 if logits.dtype.size == 2 else mx.uint32)).tobytes())
        for i, token in enumerate(best.tolist()):
            tokens.append(token)
            if i + 1 < len(block) and block[i + 1] != token:
                break
    answer = tokens[len(prompt) :][:TOKENS]
    return answer, passes, time.perf_counter() - start, digest.hexdigest()[:16] if rows == 1 else ""


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    folder, prompt, arm, file = sys.argv[1:]
    model = Llama(Path(folder))
    prompt = [int(t) for t in Path(prompt).read_text().split()]
    with open(file, "a") as out:
        for name, rows in (("plain", 1), ("speculative", BLOCK)):
            decode(model, prompt, rows)  # warms up: kernels are compiled at run time
            answer, passes, seconds, digest = decode(model, prompt, rows)
            line = " ".join(map(str, answer))
            out.write(f"{arm},{name},{len(answer)},{passes},{TOKENS / seconds:.1f},{digest},{line}\n")
            print(f"{arm} {name}: {TOKENS / seconds:.1f} tokens/s, {passes} passes")


main()
