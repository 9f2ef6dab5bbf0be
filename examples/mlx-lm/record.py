"""Finds where rows start to differ, by comparing the operations of a block with those of the same tokens one by one.

`install` wraps the functions of `mlx.core` and `mlx.core.fast`, the methods of its arrays, compiled functions and
custom kernels. A wrapper does nothing until a pass is recorded. Then it evaluates each operation separately, and
records its operands and results; modules and caches are recorded as well.

Row r of a block is matched with step r by shapes (`line_up`); the picks of a gather, which mlx-lm sorts in a block, are
matched by their values. An operation is named if a row has equal operands in both runs but other results. Operations
that cannot be matched are skipped; then the module around them is named.

Import this before mlx.nn and mlx_lm, which compile functions and make kernels when they are imported.
"""

import functools
import hashlib
import re
from collections import Counter, OrderedDict
from dataclasses import dataclass, replace

import mlx.core as mx
import numpy as np

from row_policy import recorded_kernels

# Functions that take arrays but are not operations on them, and functions with a separate wrapper. Functions without
# array arguments are never recorded.
_LEFT_OUT = {"async_eval", "compile", "eval", "export_function", "export_to_dot", "jvp", "metal_kernel", "vjp"}
_METHODS = """
    __add__ __iadd__ __radd__ __sub__ __isub__ __rsub__ __mul__ __imul__ __rmul__ __truediv__ __itruediv__ __rtruediv__
    __div__ __rdiv__ __floordiv__ __ifloordiv__ __rfloordiv__ __mod__ __imod__ __rmod__ __eq__ __lt__ __le__ __gt__
    __ge__ __ne__ __neg__ __pos__ __matmul__ __imatmul__ __pow__ __rpow__ __ipow__ __invert__ __and__ __iand__ __or__
    __ior__ __lshift__ __ilshift__ __rshift__ __irshift__ __xor__ __ixor__ __abs__ __getitem__ __setitem__ flatten
    reshape squeeze abs square sqrt rsqrt reciprocal exp log log2 log10 sin cos log1p all any moveaxis swapaxes
    transpose sum prod min max logcumsumexp logsumexp mean std var split argmin argmax cumsum cumprod cummax cummin
    round diagonal diag conj view astype
""".split()
_PROPERTIES = ["T", "mT"]
_GATHERS = {"mx.gather_mm", "mx.gather_qmm", "mx.gather_qqmm"}
# Operations that follow the policy: their results are compared even if their operands are constants.
_PRODUCTS = _GATHERS | {
    *("array.__matmul__", "array.__imatmul__", "mx.addmm", "mx.einsum", "mx.inner", "mx.matmul", "mx.qqmm"),
    *("mx.quantized_matmul", "mx.tensordot", "mx.fast.gated_delta_update", "mx.fast.scaled_dot_product_attention"),
}

# The name of the model itself, which has no path.
ROOT = "the model"

# The pass that is being recorded.
_active = None
_eval, _view = mx.eval, mx.array.__dict__["view"]


def install():
    """Installs the wrappers, once."""
    if hasattr(mx, "_mlx_overlay_recorder"):
        return
    mx._mlx_overlay_recorder = True
    for owner, prefix in ((mx, "mx"), (mx.fast, "mx.fast")):
        for name in dir(owner):
            function = getattr(owner, name)
            if type(function) is type(_eval) and name not in _LEFT_OUT:
                setattr(owner, name, functools.wraps(function)(_wrapped(function, f"{prefix}.{name}")))
    for name in _METHODS:
        if name in mx.array.__dict__:
            setattr(mx.array, name, _wrapped(mx.array.__dict__[name], f"array.{name}"))
    for name in _PROPERTIES:
        get = mx.array.__dict__[name].__get__
        setattr(mx.array, name, property(_wrapped(lambda array, get=get: get(array), f"array.{name}")))

    compile, metal_kernel = mx.compile, mx.fast.metal_kernel

    @functools.wraps(compile)
    def recorded_compile(fun, *args, **kwargs):
        inner = compile(fun, *args, **kwargs)
        return functools.wraps(fun)(_wrapped(inner, f"compiled {getattr(fun, '__name__', 'function')}"))

    @functools.wraps(metal_kernel)
    def recorded_kernel(*args, **kwargs):
        name = kwargs.get("name", args[0] if args else "")
        return _wrapped(metal_kernel(*args, **kwargs), f"metal kernel {name}")

    mx.compile, mx.fast.metal_kernel = recorded_compile, recorded_kernel


def _wrapped(function, name):
    changes = name.startswith("array.__i") and name != "array.__invert__" or name == "array.__setitem__"

    def call(*args, **kwargs):
        if _active is None:
            return function(*args, **kwargs)
        result = _active.operation(function, name, args, kwargs)
        if changes:
            _active.forget(args[0])
        return result

    return call


def _leaves(value, label=""):
    """The parts of arguments or results, each with its position."""
    if isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield from _leaves(part, f"{label}.{i}" if label else str(i))
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(part, f"{label}.{key}" if label else str(key))
    else:
        yield label, value


_PLAIN = (str, int, float, bool, type(None), mx.Dtype, slice, type(Ellipsis), mx.Stream, mx.Device)


def line_up(block, alone, row, rows):
    """The part of an array of a block that belongs to a row, or None: slices by axis. The shapes are those of the array
    in the block and in that row's own step."""
    if len(block) != len(alone):
        return None
    part = []
    for b, a in zip(block, alone):
        if b == a:
            part.append(slice(None))
        elif b == rows * a:
            # Rows, alone or with what belongs to each row (picks, heads after them).
            part.append(slice(row * a, (row + 1) * a))
        elif b - a == rows - 1:
            # A window that moves with the row, as in a convolution; for row 0 also the keys that it sees.
            part.append(slice(row, row + a))
        elif b - a == rows - 1 - row:
            # Keys: the row sees its own key and all before it.
            part.append(slice(0, a))
        else:
            return None
    return tuple(part)


def _digest(bits):
    return hashlib.blake2b(np.ascontiguousarray(bits).tobytes(), digest_size=16).digest()


def _host(array):
    """The bits of an array on the host. Those of a bfloat16 are in a float16, so they do not look like positions."""
    if array.dtype == mx.bfloat16:
        return np.array(_view(array, mx.uint16)).view(np.float16)
    return np.array(array)


@dataclass
class Call:
    """An operation, a module or a cache, as recorded in one step of one token."""

    inputs: dict  # place: (shape, digest)
    outputs: dict
    plain: dict  # arguments that are not arrays
    kernels: list
    picks: dict  # of a gather: (row of x, expert): its results; a pick can occur more than once


@dataclass
class Difference:
    """An operation that computes a row differently in a block than alone."""

    name: str
    row: int
    certain: bool  # the row's operands were equal
    notes: list

    def __str__(self):
        text = "; ".join([f"{self.name}, row {self.row}", *self.notes])
        if self.certain:
            return text
        return f"{text} (the first result that differs; its operands differ too, or cannot be matched)"


class _Pass:
    """One forward pass while it is being recorded."""

    def __init__(self, model, caches):
        self.names = {id(module): name for name, module in model.named_modules()}
        self.path = [""]
        self.running = set()
        self.counts = Counter()
        self.paused = False
        # Parameters and values made only from parameters: recorded by name, because their bits would be slow. Except
        # products, which a policy changes.
        self.constants = {}
        for name, module in model.named_modules():
            for place, leaf in _leaves(dict(module)):
                if isinstance(leaf, mx.array):
                    self.constants[id(leaf)] = (leaf, f"{name} {place}")
        self.recent = OrderedDict()
        self.model, self.caches = model, caches

    def __enter__(self):
        global _active
        self.undo = []
        kinds = {kind for module in self.model.modules() for kind in type(module).__mro__}
        for kind in kinds:
            if kind.__module__ in ("builtins", "mlx.nn.layers.base"):
                continue
            for name, function in list(vars(kind).items()):
                if (
                    callable(function)
                    and (name == "__call__" or name[0] != "_")
                    and not isinstance(function, (type, staticmethod))
                ):
                    self._patch(kind, name, function, self._module_call)
        for kind in {type(cache) for cache in _all_caches(self.caches)}:
            for base in kind.__mro__:
                if "update_and_fetch" in vars(base):
                    self._patch(base, "update_and_fetch", vars(base)["update_and_fetch"], self._cache_call)
        _active = self
        return self

    def __exit__(self, *_):
        global _active
        _active = None
        for kind, name, function in reversed(self.undo):
            setattr(kind, name, function)

    def _patch(self, kind, name, function, call):
        @functools.wraps(function)
        def patched(this, *args, **kwargs):
            return call(function, name, this, args, kwargs)

        setattr(kind, name, patched)
        self.undo.append((kind, name, function))

    def _module_call(self, function, name, this, args, kwargs):
        again = (id(this), name)
        # A base class's method called by the class's own is the same call. Objects outside the model have no name.
        if _active is not self or self.paused or again in self.running or id(this) not in self.names:
            return function(this, *args, **kwargs)
        path = self.names[id(this)] + ("" if name == "__call__" else f".{name}")
        label = f"{path or ROOT} ({type(this).__name__})"
        self.path.append(path)
        self.running.add(again)
        try:
            return self._noted(label, lambda: function(this, *args, **kwargs), args, kwargs, leaf=False)
        finally:
            self.running.discard(again)
            self.path.pop()

    def _cache_call(self, function, _, this, args, kwargs):
        if _active is not self or self.paused:
            return function(this, *args, **kwargs)
        label = self._named(f"{type(this).__name__}.update_and_fetch")
        return self._noted(label, lambda: function(this, *args, **kwargs), args, kwargs, leaf=True, stateful=True)

    def operation(self, function, name, args, kwargs):
        if self.paused:
            return function(*args, **kwargs)
        return self._noted(self._named(name), lambda: function(*args, **kwargs), args, kwargs, leaf=True)

    def _named(self, name):
        return f"{self.path[-1] or ROOT}: {name}"

    def _noted(self, label, compute, args, kwargs, leaf, stateful=False):
        places = list(_leaves(list(args))) + list(_leaves(kwargs))
        given = {place: leaf for place, leaf in places if isinstance(leaf, mx.array)}
        if leaf and not given:
            self.paused = True
            try:
                return compute()
            finally:
                self.paused = False
        occurrence = self.counts[label]
        self.counts[label] += 1
        stateful |= any(not isinstance(leaf, _PLAIN + (mx.array,)) for _, leaf in places)
        plain = {
            place: _shown(leaf)
            for place, leaf in places
            if isinstance(leaf, _PLAIN) and not isinstance(leaf, mx.Stream)
        }
        # A function that is being traced returns arrays without values, so nothing inside it is a separate operation.
        try:
            _eval(list(given.values()))
        except ValueError:
            return compute()
        inputs = {place: self.value(array) for place, array in given.items()}
        if leaf:
            self.paused = True
            try:
                with recorded_kernels() as kernels:
                    result = compute()
                    if result is not NotImplemented:
                        _eval(result)
            finally:
                self.paused = False
        else:
            result, kernels = compute(), []
        made = {place: leaf for place, leaf in _leaves([result]) if isinstance(leaf, mx.array)}
        if not made:
            return result
        _eval(list(made.values()))
        operation = label.rsplit(": ", 1)[-1]
        fixed = operation not in _PRODUCTS and not operation.startswith("compiled ")
        if leaf and fixed and all(id(array) in self.constants for array in given.values()):
            key = (
                f"{operation} {sorted(plain.items())} {[self.constants[id(a)][1] for a in given.values()]}"
            )
            for place, array in made.items():
                self.constants[id(array)] = (array, f"{key} {place}")
            return result
        outputs = {place: self.value(array) for place, array in made.items()}
        self.done((label, occurrence), given, inputs, outputs, made, plain, kernels, stateful, kwargs)
        return result

    def forget(self, array):
        """Records that an array was changed in place."""
        self.recent.pop(id(array), None)
        self.constants.pop(id(array), None)

    def value(self, array):
        """What the pass stores of an array: its bits, or the name of a constant. The latest ones are cached."""
        if id(array) in self.constants:
            return self.constants[id(array)][1]
        if id(array) in self.recent:
            self.recent.move_to_end(id(array))
            return self.recent[id(array)][1]
        value = self.reduced(_host(array))
        self.recent[id(array)] = (array, value)
        if len(self.recent) > 64:
            self.recent.popitem(last=False)
        return value


def _shown(leaf):
    return repr(leaf) if len(repr(leaf)) < 60 else repr(leaf)[:57] + "..."


def _all_caches(caches):
    for cache in caches:
        yield cache
        yield from _all_caches(getattr(cache, "caches", ()) or ())


class Step(_Pass):
    """Records a step of one token."""

    def __init__(self, model, caches):
        super().__init__(model, caches)
        self.calls = {}
        self.produced = set()

    def reduced(self, bits):
        return bits.shape, _digest(bits)

    def done(self, key, given, inputs, outputs, made, plain, kernels, stateful, kwargs):
        self.produced.update(value[1] for value in outputs.values() if not isinstance(value, str))
        picks = _picks(given, made, kwargs) if _is_gather(key) else {}
        self.calls[key] = Call(inputs, outputs, plain, kernels, picks)


class Block(_Pass):
    """Records a block and compares it with the steps of its rows meanwhile. `same_start`: both runs began with the
    same caches."""

    def __init__(self, model, caches, steps, same_start):
        super().__init__(model, caches)
        self.steps = steps
        self.same_start = same_start
        self.found = None  # the first result that differs while its operands are equal
        self.first = None  # the first result that differs

    def reduced(self, bits):
        return bits

    def equal_input(self, value, calls, place, row):
        """Whether a row's operand is known to be equal to that of its step."""
        alone = calls[row].inputs[place]
        if isinstance(value, str) or isinstance(alone, str):
            return isinstance(value, str) and value == alone
        if value.dtype.kind in "iu" and value.ndim < 2 and value.shape == alone[0]:
            # A position or a number of tokens: these differ between a step and its block.
            return True
        part = line_up(value.shape, alone[0], row, len(self.steps))
        if part is None:
            return False
        digest = _digest(value[part])
        if digest == alone[1]:
            return True
        # A state that is passed from step to step is one operand of a block: that of its first row. Later steps get the
        # output of the step before them.
        first = calls[0].inputs.get(place)
        carried = value.shape == alone[0] and not isinstance(first, str) and first is not None and digest == first[1]
        return row > 0 and carried and alone[1] in self.steps[row - 1].produced

    def differs(self, value, calls, place, row, constant):
        """Whether a row's result is known to differ from its step's. `constant`: it was made only from constants."""
        alone = calls[row].outputs.get(place)
        if alone is None or isinstance(value, str) or isinstance(alone, str):
            return False
        rows = len(self.steps)
        part = line_up(value.shape, alone[0], row, rows)
        if part is None:
            return False
        digest = _digest(value[part])
        if value.shape == alone[0] and not constant:
            # One result for all rows is the state after the last row, or the last state of a loop over the rows.
            return row == rows - 1 and all(digest != call.outputs[place][1] for call in calls if place in call.outputs)
        return digest != alone[1]

    def done(self, key, given, inputs, outputs, made, plain, kernels, stateful, kwargs):
        calls = [step.calls.get(key) for step in self.steps]
        if self.found or any(call is None for call in calls):
            return
        now = Call(inputs, outputs, plain, kernels, {})
        if _is_gather(key) and outputs["0"].ndim != len(calls[0].outputs["0"][0]):
            picks = _picks(given, made, kwargs)
            for row, call in enumerate(calls):
                equal = bool(call.picks) and call.picks.keys() <= picks.keys()
                # Rows with the same pick share its results: each row's result is one of them, and there are no others.
                known = {pick: set().union(*(other.picks.get(pick, ()) for other in calls)) for pick in call.picks}
                if any(not call.picks[pick] <= picks[pick] <= known[pick] for pick in known.keys() & picks.keys()):
                    self.note(key, row, equal, call, now)
            return
        constant = all(isinstance(value, str) for value in inputs.values())
        all_equal = not stateful or self.same_start
        for row, call in enumerate(calls):
            shared = inputs.keys() & call.inputs.keys()
            equal = bool(shared) and all(self.equal_input(inputs[place], calls, place, row) for place in shared)
            # An operation with a state depends on the rows before this one.
            all_equal = equal and (all_equal or not stateful)
            if any(self.differs(value, calls, place, row, constant) for place, value in outputs.items()):
                self.note(key, row, all_equal, call, now)

    def note(self, key, row, certain, alone, block):
        if self.found or self.first and not certain:
            return
        notes = []
        if alone.kernels != block.kernels:
            kernels = [list(dict.fromkeys(call.kernels)) for call in (alone, block)]
            # The function's name, unless it is the same in both.
            short = [[re.split(r"_?(float|bfloat16)(16|32)?", name)[0] for name in names] for names in kernels]
            names = [", ".join(names) or "no kernel" for names in (short if short[0] != short[1] else kernels)]
            notes.append("alone {}, in the block {}".format(*names))
        for place in sorted(alone.plain.keys() | block.plain.keys()):
            values = [call.plain.get(place, "an array" if place in call.inputs else None) for call in (alone, block)]
            if None not in values and values[0] != values[1]:
                notes.append(f"argument {place}: alone {values[0]}, in the block {values[1]}")
        if ": " not in key[0]:
            notes += self.unlike(key[0].rsplit(" (", 1)[0], row)
        difference = Difference(key[0], row, certain, notes)
        self.first = self.first or difference
        if certain:
            self.found = difference

    def unlike(self, path, row):
        """Operations of a module that only one of the runs has: one of them may cause the difference."""
        own = lambda run: Counter({name: n for name, n in run.counts.items() if name.startswith(f"{path}: ")})
        block, alone = own(self), own(self.steps[row])
        for where, names in (("alone", alone - block), ("in the block", block - alone)):
            if names:
                yield f"only {where}: {', '.join(sorted(name.split(': ', 1)[1] for name in names))}"


def _is_gather(key):
    return key[0].rsplit(": ", 1)[-1] in _GATHERS


def _picks(given, made, kwargs):
    """For a gather: what each pick multiplies (a row of x and an expert), and the results. This does not depend on the
    order of the picks or on other dimensions."""
    x, (out,) = _host(given["0"]), map(_host, made.values())
    experts, rows = kwargs.get("rhs_indices"), kwargs.get("lhs_indices")
    if experts is None or x.shape[-2] != 1:
        return {}
    experts = np.array(experts)
    if rows is not None:
        x = x.reshape(-1, x.shape[-1])[np.array(rows)]
    else:
        x = np.broadcast_to(x[..., 0, :], (*experts.shape, x.shape[-1]))
    x, out = x.reshape(experts.size, -1), out.reshape(experts.size, -1)
    picks = {}
    for i, expert in enumerate(experts.flat):
        picks.setdefault((_digest(x[i]), int(expert)), set()).add(_digest(out[i]))
    return picks


def first_difference(model, tokens, caches, block, alone, together):
    """The operation that computes a row of a block, or the step after it, differently than a step of one token; None if
    there is none. `alone` and `together` are context managers around the runs, `caches` makes new caches.

    Also returns the logits of both runs, so that the caller can check that recording changed nothing.
    """
    steps, logits = [], []
    with alone():
        state = caches()
        for i in range(block + 1):
            with Step(model, state) as step:
                logits.append(model(mx.array(tokens[i : i + 1])[None], cache=state))
                _eval(logits[-1])
            steps.append(_light(step))
    with together():
        state = caches()
        with Block(model, state, steps[:block], same_start=True) as rows:
            made = model(mx.array(tokens[:block])[None], cache=state)
            _eval(made)
        with Block(model, state, steps[block:], same_start=False) as after:
            last = model(mx.array(tokens[block : block + 1])[None], cache=state)
            _eval(last)
    found, late = rows.found or rows.first, after.found or after.first
    if not found and late:
        found = replace(late, name=f"{late.name}, in the step after the block", row=block)
    return found, (logits, [made, last])


def _light(step):
    """Releases the arrays of a pass."""
    step.recent.clear()
    step.constants.clear()
    return step


install()
