"""Finds questions whose answer has a near tie: two best logits so close that other bits may choose another token.

usage: near_ties.py FOLDER <QUESTIONS

FOLDER is what the decoder's --write-folder wrote, QUESTIONS has one question a line. Needs NumPy and tokenizers. It
computes in float32, rounded to float16 after each operation, so its gaps are not those of MLX but close to them: run
the decoder on what it finds.
"""

import json
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

TOKENS = 48
# Two steps of float16 from 16 to 32, where the best logits are.
NEAR = 2 / 64
# As in main.rs and text.rs.
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
CHAT = "<|im_start|>system\n{}<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


def half(x):
    return x.astype(np.float16).astype(np.float32)


class Model:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        data = (folder / "model.safetensors").read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        types = {"U32": np.uint32, "F16": np.float16}

        def array(name):
            entry = header[name]
            begin, end = (start + offset for offset in entry["data_offsets"])
            return np.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])

        def vector(name):
            return array(f"{name}.weight").astype(np.float32)

        def matrix(name):
            packed = array(f"{name}.weight")
            scales, biases = (array(f"{name}.{part}").astype(np.float32) for part in ("scales", "biases"))
            group = self.config["quantization"]["group_size"]
            bits = 32 * packed.shape[1] // (scales.shape[1] * group)
            weights = (packed[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)) & (2**bits - 1)
            weights = weights.reshape(len(packed), -1, group).astype(np.float32)
            return (weights * scales[..., None] + biases[..., None]).reshape(len(packed), -1)

        self.embedding = matrix("model.embed_tokens")
        self.norm = vector("model.norm")
        products = [f"self_attn.{part}_proj" for part in "qkvo"] + [f"mlp.{part}_proj" for part in ("gate", "up", "down")]
        norms = ["input_layernorm", "post_attention_layernorm"]
        self.layers = []
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}."
            self.layers.append([matrix(name + part) for part in products] + [vector(name + part) for part in norms])

    def scaled(self, x, weights):
        root = np.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"])
        return half(x / root * weights)

    def rotated(self, x, position):
        width = self.config["head_dim"] // 2
        angles = position * self.config["rope_theta"] ** (-np.arange(width) / width)
        cos, sin = np.cos(angles), np.sin(angles)
        a, b = x[..., :width], x[..., width:]
        return half(np.concatenate([a * cos - b * sin, a * sin + b * cos], -1))

    def step(self, tokens, position, keys, values):
        """The rows of one more token of each text, all at the same position."""
        heads, kv_heads, dim = (
            self.config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim")
        )
        count = len(tokens)
        x = half(self.embedding[tokens])
        for layer, (q, k, v, out, gate, up, down, first, second) in enumerate(self.layers):
            h = self.scaled(x, first)
            queries = self.rotated(half(h @ q.T).reshape(count, kv_heads, heads // kv_heads, dim), position)
            keys[layer][:, :, position] = self.rotated(half(h @ k.T).reshape(count, kv_heads, dim), position)
            values[layer][:, :, position] = half(h @ v.T).reshape(count, kv_heads, dim)
            seen = slice(0, position + 1)
            scores = queries @ keys[layer][:, :, seen].swapaxes(2, 3) / np.sqrt(dim)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            attended = scores / scores.sum(-1, keepdims=True) @ values[layer][:, :, seen]
            x = half(x + half(half(attended.reshape(count, -1)) @ out.T))
            h = self.scaled(x, second)
            gates = half(h @ gate.T)
            inner = half(half(gates * half(1 / (1 + np.exp(-gates)))) * half(h @ up.T))
            x = half(x + half(inner @ down.T))
        return x

    def answers(self, prompts):
        """For prompts of one length: for each, its tokens and the gap at each."""
        length = len(prompts[0])
        shape = (
            len(self.layers),
            len(prompts),
            self.config["num_key_value_heads"],
            length + TOKENS,
            self.config["head_dim"],
        )
        keys, values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        found = [([], []) for _ in prompts]
        tokens = [prompt[0] for prompt in prompts]
        for position in range(length + TOKENS - 1):
            rows = self.step(np.array(tokens), position, keys, values)
            if position + 1 < length:
                tokens = [prompt[position + 1] for prompt in prompts]
                continue
            logits = half(self.scaled(rows, self.norm) @ self.embedding.T)
            tokens = logits.argmax(-1).tolist()
            best = np.partition(logits, -2)[:, -2:]
            for (answer, gaps), token, gap in zip(found, tokens, (best[:, 1] - best[:, 0]).tolist()):
                if answer[-1:] != [self.config["eos_token_id"]]:
                    answer.append(token)
                    gaps.append(gap)
        return found


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    model, tokenizer = Model(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    lengths = {}
    for question in filter(None, map(str.strip, sys.stdin)):
        prompt = tokenizer.encode(CHAT.format(SYSTEM, question), add_special_tokens=False).ids
        lengths.setdefault(len(prompt), []).append((question, prompt))
    for group in lengths.values():
        questions, prompts = zip(*group)
        for question, (answer, gaps) in zip(questions, model.answers(prompts)):
            near = ", ".join(f"{at} ({gap:.4f})" for at, gap in enumerate(gaps, 1) if gap <= NEAR)
            print(f"{question}\n  near ties at tokens: {near or 'none'}\n  {tokenizer.decode(answer)!r}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
