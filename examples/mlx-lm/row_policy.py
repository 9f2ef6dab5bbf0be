"""Row policies from Python: sets the policy that the operations of this process follow.

MLX's Python bindings have no policies, so this calls the C functions of libmlx (mlx/row_policy.h). A program with one
policy for its whole life does not need this: MLX_ROW_POLICY=exact is enough.
"""

import ctypes
import sys
from contextlib import contextmanager
from pathlib import Path

import mlx.core as mx

# A kind of policy and operations, as in row_policy.h.
WIDE = 3
GATHER_MM, ATTENTION = 6, 7
OPERATIONS = frozenset(range(9))


class Policy(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("rows", ctypes.c_int32)]


class Problem(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int32)
        for name in (
            *("op", "mode", "dtype", "bits", "group_size", "transpose", "m", "n", "k", "batch", "experts"),
            *("right_sorted", "global_scale", "heads", "kv_heads", "keys", "stream"),
        )
    ]


class Attention(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("causal", "mask", "sinks", "size_class", "threads", "blocks")]


class AttentionRow(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("keys", "path", "blocks", "end")]


# ctypes does not support callbacks that return a structure. A structure of eight bytes is returned like an integer of
# eight bytes on x86-64 and on arm64.
Hook = ctypes.CFUNCTYPE(ctypes.c_uint64, Problem, ctypes.c_void_p)


def _unavailable(library, lacks):
    sys.exit(
        f"error: {library} {lacks}; expected the MLX of a Metal or simulated build of this repository "
        "(examples/mlx-lm/README.md explains how to build it)"
    )


def _load():
    folder = Path(mx.__file__).parent / "lib"
    library = next((file for file in (folder / "libmlx.so", folder / "libmlx.dylib") if file.exists()), None)
    if library is None:
        _unavailable(folder, "contains no libmlx")
    lib = ctypes.CDLL(str(library))
    if not hasattr(lib, "mlx_row_set_hook"):
        _unavailable(library, "has no row policies")
    lib.mlx_row_last_error.restype = ctypes.c_char_p
    lib.mlx_row_has_kernels.restype = ctypes.c_int32
    lib.mlx_row_recorded_kernels.restype = ctypes.c_char_p
    lib.mlx_row_policy_from_text.argtypes = [ctypes.c_char_p, ctypes.POINTER(Policy)]
    lib.mlx_row_set_hook.argtypes = [Hook, ctypes.c_void_p]
    if lib.mlx_row_has_kernels() != 1:
        _unavailable(library, "has no kernels for row policies")
    return lib


_lib = _load()


def parse(text):
    """The policy with this name. ValueError lists the valid ones."""
    policy = Policy()
    if _lib.mlx_row_policy_from_text(text.encode(), ctypes.byref(policy)) != 0:
        raise ValueError(_lib.mlx_row_last_error().decode())
    return policy


def _set(hook):
    if _lib.mlx_row_set_hook(hook, None) != 0:
        raise RuntimeError(_lib.mlx_row_last_error().decode())


@contextmanager
def row_policy(text, operations=None):
    """Operations that are built and evaluated inside follow the policy. With `operations`, only those do, and all
    others are computed as in MLX."""
    asked, default = parse(text), parse("default")

    def answer(problem, _):
        policy = asked if operations is None or problem.op in operations else default
        return int.from_bytes(bytes(policy), "little")

    hook = Hook(answer)
    _set(hook)
    try:
        yield
    finally:
        _set(Hook())


def attention_alone(heads, kv_heads, head_dim, sinks, size_class, most):
    """How one row of fused attention is computed over 1, 2, ... `most` keys on a GPU of that class: path and number of
    blocks, as in attention_plan.cpp."""
    shape = {"m": most, "n": head_dim, "k": head_dim, "batch": 1, "heads": heads, "kv_heads": kv_heads, "keys": most}
    problem = Problem(op=ATTENTION, **shape)
    call = Attention(causal=1, sinks=sinks, size_class=ord(size_class), threads=1024)
    rows = (AttentionRow * most)()
    fused = (ctypes.c_uint8 * most)()
    if _lib.mlx_row_plan_attention(ctypes.byref(problem), ctypes.byref(call), 0, fused, rows) != 0:
        raise RuntimeError(_lib.mlx_row_last_error().decode())
    return [(row.path, row.blocks) for row in rows]


@contextmanager
def recorded_kernels():
    """Yields a list that, at the end, contains the names of the kernels used by evaluations inside, on this thread."""
    names = []
    _lib.mlx_row_record_kernels()
    try:
        yield names
    finally:
        names += _lib.mlx_row_recorded_kernels().decode().split()


def kernels_of(compute):
    """The names of the kernels used by an evaluation on this thread, in order."""
    with recorded_kernels() as names:
        mx.eval(compute())
    return names
