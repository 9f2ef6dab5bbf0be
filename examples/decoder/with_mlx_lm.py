"""Answers a question with mlx-lm, from the folder that the decoder wrote, and prints the tokens (ci/decoder.sh)."""

import sys

import mlx.core as mx
from mlx_lm import load, stream_generate

folder, question, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
model, tokenizer = load(folder)
prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
print("prompt:", prompt, flush=True)
answer = stream_generate(
    model, tokenizer, prompt, max_tokens=count, sampler=lambda logits: mx.argmax(logits, axis=-1)
)
print("answer:", [response.token for response in answer])
