"""A block of tokens against the same tokens one by one, for one model."""

import copy
import itertools
import os
import time
from dataclasses import asdict, dataclass

import mlx.core as mx
import numpy as np

from row_policy import row_policy
from tiny_models import VOCABULARY, mlx_lm_version


@dataclass(frozen=True)
class Setting:
    """A model, a type, a kind of weights and a prefix: what one reference serves."""

    model: str
    dtype: str
    weights: str
    prefix: int


@dataclass
class Result:
    model: str
    dtype: str
    weights: str
    prefix: int
    block: int
    policy: str
    rows: str  # one mark a row: "=" for equal bits, "x" for others
    step_after: bool  # the token after the block has the bits of the reference
    values_differing: int
    values: int
    seconds: float

    @property
    def equal(self):
        return "x" not in self.rows and self.step_after


def bits(logits):
    """The logits of a batch of one, as unsigned integers: a row a token."""
    return np.array(logits[0].view(mx.uint32 if logits.dtype == mx.float32 else mx.uint16))


def forward(model, tokens, caches):
    logits = model(mx.array(tokens)[None], cache=caches)
    mx.eval(logits, [cache.state for cache in caches])
    if not np.isfinite(np.array(logits.astype(mx.float32))).all():
        raise RuntimeError("the model gives logits that are not finite, so a comparison of them shows nothing")
    return bits(logits)


def one_by_one(model, tokens, caches):
    caches = copy.deepcopy(caches)
    return np.concatenate([forward(model, tokens[i : i + 1], caches) for i in range(len(tokens))])


def as_block(model, tokens, caches, block):
    """The rows of a block, and that of the token after it as a step of its own."""
    caches = copy.deepcopy(caches)
    rows = forward(model, tokens[:block], caches)
    return rows, forward(model, tokens[block : block + 1], caches)


def compare(setting, model, caches, blocks, policies, seed):
    tokens = np.random.default_rng(seed + 1).integers(0, VOCABULARY, max(blocks) + 1)
    with row_policy("default"):
        reference = one_by_one(model, tokens, caches)
    for block, policy in itertools.product(blocks, policies):
        start = time.monotonic()
        with row_policy(policy):
            rows, after = as_block(model, tokens, caches, block)
        different = rows != reference[:block]
        yield Result(
            **asdict(setting),
            block=block,
            policy=policy,
            rows="".join("x" if row.any() else "=" for row in different),
            step_after=bool((after[0] == reference[block]).all()),
            values_differing=int(different.sum()),
            values=different.size,
            seconds=round(time.monotonic() - start, 2),
        )


def device():
    info = mx.device_info()
    return {
        "device": info["device_name"],
        "architecture": info["architecture"],
        "mlx": mx.__version__,
        "mlx_lm": mlx_lm_version(),
        "tree": os.environ.get("MLX_OVERLAY_TREE", ""),
    }
