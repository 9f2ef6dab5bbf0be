"""Answers a question with mlx-lm's model, from the folder that the decoder wrote, and prints the tokens (ci/decoder.sh)."""

import json
import sys
from pathlib import Path

import minijinja
import mlx.core as mx

sys.path.append(str(Path(__file__).parents[1] / "mlx-lm"))
from folder import load, tokens_of
from tiny_models import new_caches

folder, question, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
model, config = load(folder)[:2]
template = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
prompt = tokens_of(
    folder,
    minijinja.Environment(trim_blocks=True, lstrip_blocks=True).render_str(
        template, messages=[{"role": "user", "content": question}], add_generation_prompt=True
    ),
)
print("prompt:", prompt, flush=True)

cache = new_caches(model)
model(mx.array(prompt[:-1])[None], cache=cache)
mx.eval([layer.state for layer in cache])
answer, token = [], prompt[-1]
while len(answer) < count and token != config["eos_token_id"]:
    token = mx.argmax(model(mx.array([[token]]), cache=cache)[0, -1]).item()
    answer.append(token)
print("answer:", answer)
