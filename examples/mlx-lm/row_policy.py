"""Row policies from Python: which policy the operations of this process follow.

MLX's bindings know nothing of the policies, so this calls the C functions of libmlx (mlx/row_policy.h). A program that
keeps one policy for its whole life needs none of this: MLX_ROW_POLICY=exact is enough.
"""

import ctypes
import sys
from contextlib import contextmanager
from pathlib import Path

import mlx.core as mx

# A kind of policy, as in row_policy.h.
WIDE = 3


class Policy(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("rows", ctypes.c_int32)]


class Problem(ctypes.Structure):
    # Only the operation matters here; the rest gives the structure its size.
    _fields_ = [("op", ctypes.c_int32), ("rest", ctypes.c_int32 * 16)]


# ctypes has no callbacks that return a structure. One of eight bytes comes back as an integer of eight bytes does, on
# x86-64 and on arm64.
Hook = ctypes.CFUNCTYPE(ctypes.c_uint64, Problem, ctypes.c_void_p)


def _unavailable(library, lacks):
    sys.exit(f"error: {library} {lacks}; expected a Metal or a simulated build of this repository (ci/mlx-lm.sh)")


def _load():
    folder = Path(mx.__file__).parent / "lib"
    library = next((file for file in (folder / "libmlx.so", folder / "libmlx.dylib") if file.exists()), None)
    if library is None:
        _unavailable(folder, "holds no libmlx")
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
    """The policy that a text names; raises ValueError with the known ones."""
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
    others compute as MLX does."""
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


@contextmanager
def recorded_kernels():
    """A list that has, at the end, the names of the kernels that evaluations inside, on this thread, asked for."""
    names = []
    _lib.mlx_row_record_kernels()
    try:
        yield names
    finally:
        names += _lib.mlx_row_recorded_kernels().decode().split()


def kernels_of(compute):
    """The names of the kernels that an evaluation on this thread asks for, in their order."""
    with recorded_kernels() as names:
        mx.eval(compute())
    return names
