"""Cases that no row policy can handle, because the program passes MLX other operands in a block than in a single step.

Each case is run as it occurs in a program. README.md describes what a decoder can do instead.
"""

import time
from dataclasses import asdict, dataclass
from typing import Callable

import mlx.core as mx
import numpy as np

from compare import Result, Setting, bits, compare, one_by_one
from row_policy import row_policy
from tiny_models import MODELS, VOCABULARY, build, caches_after, gpt_oss, mlx_lm

DTYPE = "float32"


def tokens(seed, count):
    return np.random.default_rng(seed + 1).integers(0, VOCABULARY, count)


def wrapped_ring(policies, seed):
    """A ring cache that has wrapped: a single step leaves the keys in the ring's order, but a block first sorts them by
    time, so the sums over the keys have another order."""
    # gpt-oss's own window, and a prefix longer than it.
    model = build("gpt_oss", gpt_oss(window=128), mx.float32, "q4", seed)
    setting = Setting("gpt-oss-20b", DTYPE, "q4", 200)
    with row_policy("default"):
        caches = caches_after(model, setting.prefix, seed)
    yield from compare(setting, model, caches, [5], policies, tokens(seed, 6))


def quantized_cache(policies, seed):
    """mlx-lm's quantized key-value cache: attention becomes two quantized products over all keys, which do not know how
    many keys each row sees."""
    model = build(*MODELS["llama-3.2-1b"], mx.float32, "q4", seed)
    setting = Setting("llama-3.2-1b", DTYPE, "q4", 1022)
    with row_policy("default"):
        caches = [cache.to_quantized(group_size=64, bits=8) for cache in caches_after(model, setting.prefix, seed)]
        mx.eval([cache.state for cache in caches])
    yield from compare(setting, model, caches, [5], policies, tokens(seed, 6))


def left_padded_batch(policies, seed):
    """Two sequences in one batch, the shorter one padded on the left: MLX chooses the attention kernel by the padded
    length, and the keys have other positions than when the sequence is alone."""
    model = build(*MODELS["llama-3.2-1b"], mx.float32, "q4", seed)
    block, short, long = 2, 900, 1030
    setting = Setting("llama-3.2-1b", DTYPE, "q4", short)
    drawn = tokens(seed, block + 1)
    with row_policy("default"):
        long_caches, caches = caches_after(model, long, seed + 2), caches_after(model, short, seed)
        alone = one_by_one(model, drawn, caches)
    merge = mlx_lm("models.cache").BatchKVCache.merge
    for policy in policies:
        start = time.monotonic()
        with row_policy(policy):
            batch = [merge(pair) for pair in zip(long_caches, caches)]
            both = lambda part: mx.array(np.stack([part, part]))
            logits = model(both(drawn[:block]), cache=batch)
            after = model(both(drawn[block:]), cache=batch)
            mx.eval(logits, after)
        different = bits(logits[1:]) != alone[:block]
        yield Result(
            **asdict(setting),
            block=block,
            policy=policy,
            rows="".join("x" if row.any() else "=" for row in different),
            step_after=bool((bits(after[1:])[0] == alone[block]).all()),
            values_differing=int(different.sum()),
            values=different.size,
            seconds=round(time.monotonic() - start, 2),
        )


@dataclass(frozen=True)
class Limit:
    name: str
    run: Callable


LIMITS = [
    Limit("ring cache that has wrapped", wrapped_ring),
    Limit("quantized key-value cache", quantized_cache),
    Limit("left-padded batch", left_padded_batch),
]
