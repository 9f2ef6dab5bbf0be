"""Finds the numbers of keys at which MLX changes its attention kernels: a block can then use another one than a step.

Nothing here repeats MLX's rules; the device is asked. For each shape of attention in the model, one row is computed
over more and more keys, and libmlx names the kernels with their number of blocks (`mlx_row_recorded_kernels`). The
rules are in MLX's scaled_dot_product_attention.cpp and, for one row, in
patches/files/mlx/backend/metal/attention_plan.cpp. They depend on the size of the GPU, the heads and the head dims.
"""

import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass

import mlx.core as mx

from row_policy import kernels_of, row_policy


@dataclass(frozen=True)
class Shape:
    """A call of attention."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    dtype: mx.Dtype
    sinks: bool

    def __str__(self):
        dims = self.head_dim if self.head_dim == self.value_dim else f"{self.head_dim} and {self.value_dim}"
        return f"{self.heads}/{self.kv_heads} heads of {dims}{' with sinks' if self.sinks else ''}"


@contextmanager
def attention_seen():
    """Counts the calls of MLX's fused attention inside the block, by shape."""
    function, seen = mx.fast.scaled_dot_product_attention, Counter()

    def watched(q, k, v, **options):
        shape = Shape(q.shape[1], k.shape[1], q.shape[3], v.shape[3], q.dtype, options.get("sinks") is not None)
        seen[shape] += 1
        return function(q, k, v, **options)

    mx.fast.scaled_dot_product_attention = watched
    try:
        yield seen
    finally:
        mx.fast.scaled_dot_product_attention = function


def kernels_at(shape, keys):
    """The kernels of one row over this many keys."""
    q = mx.zeros((1, shape.heads, 1, shape.head_dim), shape.dtype)
    k = mx.zeros((1, shape.kv_heads, keys, shape.head_dim), shape.dtype)
    v = mx.zeros((1, shape.kv_heads, keys, shape.value_dim), shape.dtype)
    sinks = mx.zeros((shape.heads,), shape.dtype) if shape.sinks else None
    with row_policy("default"):
        mx.eval(q, k, v)
        names = kernels_of(lambda: mx.fast.scaled_dot_product_attention(q, k, v, scale=1.0, sinks=sinks))
    # The tile of a matrix kernel changes every few keys. Such kernels are only used if MLX folds heads into rows.
    return [re.sub(r"(steel_gemm_[a-z_]*).*", r"\1", name) for name in names]


def changes(shape, limit):
    """The numbers of keys, up to a limit, at which one row uses other kernels than with one key less."""
    known = {}

    def at(keys):
        if keys not in known:
            known[keys] = kernels_at(shape, keys)
        return known[keys]

    def between(low, high):
        if at(low) == at(high):
            return []
        if high - low == 1:
            return [high]
        middle = (low + high) // 2
        return between(low, middle) + between(middle, high)

    # Powers of two, so that a kernel that is used for only one range of lengths is not missed.
    marks = [16]
    while 2 * marks[-1] < limit:
        marks.append(2 * marks[-1])
    marks.append(limit)
    return [length for low, high in zip(marks, marks[1:]) if low < high for length in between(low, high)]
