"""Tests of model.py and record.py: operations that MLX computes otherwise in a block, and faults that are planted."""

import contextlib
import copy
import io
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

# `compare` comes before what imports mlx.nn: it records operations.
from compare import Setting, compare  # isort: skip

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

import lengths
import record
import model as script
from record import first_difference
from row_policy import ATTENTION, GATHER_MM, OPERATIONS, attention_alone, row_policy
from tiny_models import MODELS, VOCABULARY, build, caches_after, gemma4, gpt_oss, mlx_lm

SEED = 5


def smaller(module, arguments, **changes):
    return module, {**arguments, "num_attention_heads": 4, "num_key_value_heads": 2, **changes}


SMALL = smaller(*MODELS["llama-3.2-1b"])


def write(path, **changes):
    """A model folder as mlx-lm writes it, of 4 bits; `changes` are of config.json alone."""
    kind, arguments = SMALL
    model = build(kind, arguments, mx.float32, "q4", SEED)
    config = {"model_type": kind, **arguments, "quantization": {"group_size": 64, "bits": 4}, **changes}
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(path / "model.safetensors"), dict(tree_flatten(model.parameters())))
    return path


def run(*arguments):
    """The exit code and everything that model.py prints."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            code = script.main([str(argument) for argument in arguments])
        except SystemExit as exit:
            code = exit.code
            if isinstance(code, str):
                print(code, file=text)
                code = 1
    return code, text.getvalue()


def first(model, block, policy="exact", prefix=8, length=None, operations=None):
    """What is named for a block, or None if every row keeps its bits. `operations`: the others follow `default`."""
    with row_policy("default"):
        caches = caches_after(model, prefix, SEED)
    tokens = np.random.default_rng(SEED + 1).integers(0, VOCABULARY, block + 1)
    setting = Setting("tiny", "float32", "q4", prefix)
    (result,) = compare(setting, model, caches, [block], [policy], tokens, operations=operations)
    return result.first


def expect(found, *parts):
    """The text has all the parts."""
    for part in parts:
        assert part in (found or "None"), f"expected {part!r}, found: {found}"


# What MLX computes otherwise.


def a_folder_under_default_and_exact(root):
    """The quantized product is named under default, and nothing under exact."""
    path = write(root / "llama")
    code, text = run(path, "--tokens", "3,1,4,1,5", "--block", "5", "--policy", "default,exact", "--up-to", "100")
    assert code == 0, text
    expect(
        text,
        "block of 5, default: 5 of 5 rows, and the step after",
        "first: model.layers.0.self_attn.q_proj: mx.quantized_matmul, row 0",
        "alone affine_qmv, in the block affine_qmv_wide",
        "block of 5, exact: equal",
        "Every bit of the logits is that of single tokens under exact.",
    )
    assert text.count("first:") == 1, text


def nothing_under_exact(root):
    """Nothing is named if it is looked for, and recording leaves the logits as they are."""
    for model in (
        build(*SMALL, mx.float32, "q4", SEED),
        build("gemma4_text", gemma4(4, 2, 1), mx.float32, "q4", SEED),
        build(
            *smaller(*MODELS["qwen3.6-27b"], linear_num_value_heads=4, linear_num_key_heads=2), mx.float32, "q4", SEED
        ),
    ):
        with row_policy("default"):
            caches = caches_after(model, 8, SEED)
        runs = (lambda: row_policy("default")), (lambda: row_policy("exact"))
        found, (alone, together) = first_difference(model, np.arange(5), lambda: copy.deepcopy(caches), 4, *runs)
        assert found is None, found
        assert mx.array_equal(mx.concatenate(alone, axis=1), mx.concatenate(together, axis=1))


def rows_are_lined_up(root):
    rows = 3
    for block, alone, parts in [
        # Rows; picks of rows; a convolution's window; keys; a state, which is no row's; something else.
        ((1, 3, 8), (1, 1, 8), [(0, 1), (1, 2), (2, 3)]),
        ((1, 12, 8), (1, 4, 8), [(0, 4), (4, 8), (8, 12)]),
        ((1, 6, 8), (1, 4, 8), [(0, 4), (1, 5), (2, 6)]),
        ((1, 13, 8), [(1, 11, 8), (1, 12, 8), (1, 13, 8)], [(0, 11), (0, 12), (None, None)]),
        ((1, 4, 8), (1, 4, 8), [(None, None)] * 3),
        ((1, 5, 8), (1, 4, 8), [None, (0, 4), None]),
        ((3, 8), (1, 1, 8), [None] * 3),
    ]:
        for row, part in enumerate(parts):
            shape = alone[row] if isinstance(alone, list) else alone
            found = record.line_up(block, shape, row, rows)
            expected = part and (slice(None), slice(*part), slice(None))
            assert found == expected, f"{block}, {shape}, row {row}: {found}, expected {expected}"

    # A state: step 1 takes what step 0 made, and the block begins with what step 0 began with.
    states = [np.full((1, 4), value, np.float32) for value in range(3)]
    described = [(state.shape, record._digest(state)) for state in states]
    block = record.Block.__new__(record.Block)
    block.steps = [SimpleNamespace(produced={described[1][1]}), SimpleNamespace(produced=set())]
    calls = [SimpleNamespace(inputs={"0": state}) for state in described[:2]]
    assert block.equal_input(states[0], calls, "0", 1)
    assert not block.equal_input(states[2], calls, "0", 1)
    calls[1].inputs["0"] = described[2]
    assert not block.equal_input(states[0], calls, "0", 1)


def lengths_of_every_class(root):
    """The search steps over no change: libmlx's rules for GPUs of other sizes, asked at every number of keys."""
    ask, most = lengths.kernels_at, 70000
    try:
        for size, heads in itertools.product("psd", [(32, 4), (8, 4), (12, 2), (8, 8)]):
            sinks = heads == (12, 2)
            rules = attention_alone(*heads, 128, sinks, size, most)
            lengths.kernels_at = lambda shape, keys: rules[keys - 1]
            found = lengths.changes(lengths.Shape(*heads, 128, 128, mx.float32, sinks), most)
            every = [keys for keys in range(2, most + 1) if rules[keys - 1] != rules[keys - 2]]
            assert found == every, f"class {size}, {heads}: {found}, and libmlx says {every}"
        lengths.kernels_at = lambda shape, keys: keys // 300
        assert lengths.changes(None, 1000) == [300, 600, 900]
    finally:
        lengths.kernels_at = ask


def attention_across_a_change(root):
    model = build(*SMALL, mx.float32, "q4", SEED)
    (shape,) = lengths_of(model)
    rules = attention_alone(4, 2, 64, False, mx.device_info()["architecture"][-1], 1100)
    every = [keys for keys in range(2, 1101) if rules[keys - 1] != rules[keys - 2]]
    assert lengths.changes(shape, 1100) == every == [1024], f"{lengths.changes(shape, 1100)}, {every}"
    others = OPERATIONS - {ATTENTION}
    expect(
        first(model, 2, prefix=1022, operations=others),
        "model.layers.0.self_attn: mx.fast.scaled_dot_product_attention, row 0",
        "alone sdpa_vector, in the block sdpa_vector_2pass_1",
    )


def lengths_of(model):
    with lengths.shapes_seen() as shapes:
        mx.eval(model(mx.array([[1]])))
    return shapes


def sorted_picks(root):
    """mlx-lm sorts 64 picks, and not 8: they are lined up by what they multiply."""
    model = build(*smaller(*MODELS["qwen3-30b-a3b"], num_experts=16), mx.float32, "dense", SEED)
    others = OPERATIONS - {GATHER_MM}
    expect(first(model, 8, operations=others), "model.layers.0.mlp.switch_mlp.up_proj: mx.gather_mm, row 0")


def a_wrapped_ring(root):
    model = build(*smaller("gpt_oss", gpt_oss(window=32), num_local_experts=4), mx.float32, "q4", SEED)
    expect(first(model, 2, prefix=40), "model.layers.1.self_attn: RotatingKVCache.update_and_fetch, row 0")


# Faults that are planted. Rows of more than one are made otherwise; alone nothing changes.


def planted(place, fault):
    """A small model with a fault in a module. Both policies must be named for it: `exact` is not to blame."""
    model = build(*SMALL, mx.float32, "q4", SEED)
    owner, name = place(model)
    setattr(owner, name, fault(getattr(owner, name)))
    return model


class Fault(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner


class AnotherSum(Fault):
    def __call__(self, x):
        y = self.inner(x)
        return y if x.shape[1] == 1 else y * 1.0001


class ThroughNumpy(Fault):
    """What no wrapper sees; what follows has other operands, and is not to blame."""

    def __call__(self, x):
        y = np.array(self.inner(x))
        y[:, 1:] += 1e-3
        return mx.array(y) * 2


class InPlace(Fault):
    """What a module returns was changed after an operation made it."""

    def __call__(self, x):
        y = self.inner(x)
        if x.shape[1] > 1:
            y[:, -1] = 0
        return y


class OwnKernel(Fault):
    def __init__(self, inner):
        super().__init__(inner)
        self.kernel = mx.fast.metal_kernel(
            name="planted",
            input_names=["x"],
            output_names=["y"],
            source="uint i = thread_position_in_grid.x; y[i] = x[i] * (x_shape[1] > 1 ? 1.0001f : 1.0f);",
        )

    def __call__(self, x):
        (y,) = self.kernel(
            inputs=[self.inner(x)],
            grid=(x.size, 1, 1),
            threadgroup=(32, 1, 1),
            output_shapes=[x.shape],
            output_dtypes=[x.dtype],
        )
        return y


class Compiled(Fault):
    def __init__(self, inner):
        super().__init__(inner)

        @mx.compile
        def planted(x):
            return x if x.shape[1] == 1 else x + 0.001

        self.function = planted

    def __call__(self, x):
        return self.function(self.inner(x))


class OtherRows(Fault):
    """Rows that mix: a row of a block depends on the one before it."""

    def __call__(self, x):
        y = self.inner(x)
        return y + 0.001 * mx.concatenate([mx.zeros_like(y[:, :1]), y[:, :-1]], axis=1)


def a_module(root):
    layer = lambda model: (model.model.layers[1].mlp, "down_proj")
    expect(
        first(planted(layer, AnotherSum), 3),
        "model.layers.1.mlp.down_proj (AnotherSum), row 0; only in the block: array.__mul__",
    )
    expect(first(planted(layer, ThroughNumpy), 3), "model.layers.1.mlp.down_proj (ThroughNumpy), row 1")
    expect(first(planted(layer, OtherRows), 3), "model.layers.1.mlp.down_proj")
    expect(
        first(planted(layer, InPlace), 3),
        "model.layers.1.mlp.down_proj (InPlace), row 2; only in the block: array.__setitem__",
    )


class Turned(Fault):
    """Positions are an array here, which a block has one of and each step another."""

    def __call__(self, x, offset):
        y = self.inner(x, offset=offset)
        if x.shape[2] > 1:
            y[..., -1, :] = 0
        return y


def a_rotation(root):
    model = build("gemma4_text", gemma4(4, 2, 1), mx.float32, "q4", SEED)
    attention = model.model.layers[0].self_attn
    attention.rope = Turned(attention.rope)
    expect(first(model, 3), "model.layers.0.self_attn.rope (Turned), row 2")


def a_kernel_and_a_compiled_function(root):
    norm = lambda model: (model.model.layers[0], "post_attention_layernorm")
    expect(first(planted(norm, OwnKernel), 3), "model.layers.0.post_attention_layernorm: metal kernel planted, row 0")
    expect(first(planted(norm, Compiled), 3), "model.layers.0.post_attention_layernorm: compiled planted, row 0")


def a_cache(root):
    """What a block leaves in the cache shows in the step after it alone."""
    cache = mlx_lm("models.cache").KVCache
    update = cache.update_and_fetch

    def changed(self, keys, values):
        result = update(self, keys, values)
        if keys.shape[2] > 1:
            self.keys[..., self.offset - 1, :] *= 1.001
        return result

    cache.update_and_fetch = changed
    try:
        model = build(*SMALL, mx.float32, "q4", SEED)
        expect(first(model, 3), "model.layers.0.self_attn: KVCache.update_and_fetch")
    finally:
        cache.update_and_fetch = update


# What a user gets wrong.


def messages(root):
    path = write(root / "small", max_position_embeddings=20)
    none, empty = root / "none", root / "empty"
    empty.mkdir()
    unknown = root / "unknown"
    unknown.mkdir()
    (unknown / "config.json").write_text('{"model_type": "nobody_knows"}')
    (unknown / "model.safetensors").touch()
    for arguments, code, text in [
        ([none], 1, f"error: there is no folder {none}: expected a model folder"),
        (["mlx-community/Qwen3-0.6B-4bit"], 1, "hf download mlx-community/Qwen3-0.6B-4bit --local-dir Qwen3-0.6B-4bit"),
        ([empty], 1, f"error: {empty} has no config.json"),
        ([unknown], 1, f"error: mlx-lm 0.32.2 cannot load {unknown}"),
        ([path, "--tokens", "1,2,3,4,5"], 1, "expected a prompt of up to 4 tokens"),
        ([path, "--tokens", "1,256"], 1, "has the token 256; expected tokens from 0 to 255"),
        ([path, "--tokens", "1"], 1, "the prompt has 1 tokens; expected two or more"),
        ([path, "--prompt", "text"], 1, f"{path} has no tokenizer.json"),
        ([path, "--block", "1-4"], 2, "a block has 2 to 16 tokens; found 1-4"),
        ([path, "--policy", "streamed"], 2, 'which is now "exact"'),
        ([path, "--json", root], 1, "error: cannot write the results"),
    ]:
        found = run(*arguments)
        assert found[0] == code and text in found[1], f"{arguments}: expected {code}, {text!r}; found {found}"


TESTS = [
    a_folder_under_default_and_exact,
    nothing_under_exact,
    rows_are_lined_up,
    lengths_of_every_class,
    attention_across_a_change,
    sorted_picks,
    a_wrapped_ring,
    a_module,
    a_rotation,
    a_kernel_and_a_compiled_function,
    a_cache,
    messages,
]


def main():
    failed = 0
    for test in TESTS:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as root:
            try:
                test(Path(root))
            except AssertionError as error:
                failed += 1
                print(f"FAILED {test.__name__}: {error}", flush=True)
                continue
        print(f"ok {test.__name__} ({time.monotonic() - start:.1f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
