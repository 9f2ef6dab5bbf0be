"""Compares a block of tokens with the same tokens one by one, for one model."""

# `record` must be imported before anything that imports mlx.nn.

import copy
import itertools
import json
import os
import stat
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial

import mlx.core as mx
import numpy as np

from record import first_difference
from row_policy import WIDE, parse, row_policy
from tiny_models import mlx_lm_version


@dataclass(frozen=True)
class Setting:
    """A model, a type, a kind of weights and a prefix; all cases with these share a reference."""

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
    rows: str  # one mark per row: "=" for equal bits, "x" for others
    step_after: bool  # the token after the block has the bits of the reference
    values_differing: int
    values: int
    seconds: float
    first: str = None  # the operation that computes a row differently, if it was searched for

    @property
    def equal(self):
        return "x" not in self.rows and self.step_after


def bits(logits):
    """The logits of a batch of one, as unsigned integers, one row per token."""
    return np.array(logits[0].view(mx.uint32 if logits.dtype == mx.float32 else mx.uint16))


def forward(model, tokens, caches):
    logits = model(mx.array(tokens)[None], cache=caches)
    mx.eval(logits, [cache.state for cache in caches])
    if not np.isfinite(np.array(logits.astype(mx.float32))).all():
        raise RuntimeError("the model's logits are not finite, so comparing them proves nothing")
    return bits(logits)


def one_by_one(model, tokens, caches):
    caches = copy.deepcopy(caches)
    return np.concatenate([forward(model, tokens[i : i + 1], caches) for i in range(len(tokens))])


def as_block(model, tokens, caches, block):
    """The rows of a block, and the row of the token after it in a separate step."""
    caches = copy.deepcopy(caches)
    rows = forward(model, tokens[:block], caches)
    return rows, forward(model, tokens[block : block + 1], caches)


def alone(policy):
    """The policy of the single tokens with which a policy's blocks are compared; `wide` has its own bits."""
    return policy if parse(policy).kind == WIDE else "default"


def compare(setting, model, caches, blocks, policies, tokens, named=lambda policy: True, operations=None):
    """A result for each block and policy. At the first block that differs under the policy `named`, searches for the
    operation that computes a row differently. With `operations`, only those follow the policy in a block."""
    references, searched = {}, set()
    for policy in policies:
        if alone(policy) not in references:
            with row_policy(alone(policy)):
                references[alone(policy)] = one_by_one(model, tokens, caches)
    for block, policy in itertools.product(blocks, policies):
        start = time.monotonic()
        reference = references[alone(policy)]
        with row_policy(policy, operations):
            rows, after = as_block(model, tokens, caches, block)
        different = rows != reference[:block]
        result = Result(
            **asdict(setting),
            block=block,
            policy=policy,
            rows="".join("x" if row.any() else "=" for row in different),
            step_after=bool((after[0] == reference[block]).all()),
            values_differing=int(different.sum()),
            values=different.size,
            seconds=round(time.monotonic() - start, 2),
        )
        if not result.equal and named(policy) and policy not in searched:
            searched.add(policy)
            runs = partial(row_policy, alone(policy)), partial(row_policy, policy, operations)
            result.first = search(model, caches, tokens, block, runs, reference, [*rows, *after])
        yield result


def search(model, caches, tokens, block, runs, reference, together):
    """Describes the operation that computes a row differently in a block than alone."""
    found, logits = first_difference(model, tokens, lambda: copy.deepcopy(caches), block, *runs)
    changed = any(
        (np.concatenate([bits(part) for part in recorded]) != np.stack(computed)).any()
        for recorded, computed in zip(logits, (reference[: block + 1], together))
    )
    doubt = " (recording changed the logits, so the difference may start elsewhere)" if changed else ""
    return f"{found or 'no difference was found while recording'}{doubt}"


def cell(result):
    """A result as text for a table."""
    if result is None:
        return "-"
    if result.equal:
        return "equal"
    rows = f"{result.rows.count('x')} of {len(result.rows)} rows"
    return rows if result.step_after else f"{rows}, and the step after"


def device():
    info = mx.device_info()
    return {
        "device": info["device_name"],
        "architecture": info["architecture"],
        "mlx": mx.__version__,
        "mlx_lm": mlx_lm_version(),
        "tree": os.environ.get("MLX_OVERLAY_TREE", ""),
    }


class Results:
    """A file with one line of JSON per comparison. Its old content is removed when the first line is written."""

    def __init__(self, path):
        self.path, self.written = path, False
        try:
            self.file = path and os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        except OSError as error:
            sys.exit(f"error: cannot write the results: {error}")

    def write(self, **line):
        if not self.path:
            return
        data = (json.dumps(line) + "\n").encode()
        try:
            if not self.written and stat.S_ISREG(os.fstat(self.file).st_mode):
                os.ftruncate(self.file, 0)
            self.written = True
            while data:
                data = data[os.write(self.file, data) :]
        except OSError as error:
            sys.exit(f"error: cannot write the results to {self.path}: {error}")


def exit_with(main):
    """Runs a program to its end, even if its output is closed earlier."""
    try:
        code = main()
        sys.stdout.flush()
        sys.exit(code)
    except RuntimeError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        # The reader closed the pipe, or the disk is full. Python would fail again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141 if isinstance(error, BrokenPipeError) else f"error: {error}")
