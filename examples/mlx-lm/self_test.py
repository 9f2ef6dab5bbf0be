"""Tests of model.py and record.py: operations that MLX computes differently in a block, and planted faults."""

import contextlib
import copy
import io
import os
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

# `compare` must be imported before anything that imports mlx.nn: it records operations.
from compare import Setting, compare  # isort: skip

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

import folder
import lengths
import record
import model as script
from record import first_difference
from row_policy import ATTENTION, GATHER_MM, OPERATIONS, attention_alone, row_policy
from tiny_models import MODELS, VOCABULARY, build, caches_after, gemma4, gpt_oss, mlx_lm, mlx_lm_version

SEED = 5


def smaller(module, arguments, **changes):
    return module, {**arguments, "num_attention_heads": 4, "num_key_value_heads": 2, **changes}


SMALL = smaller(*MODELS["llama-3.2-1b"])
EXPERTS = smaller(*MODELS["qwen3-30b-a3b"], num_experts=16, num_hidden_layers=1)


def write(path, model=SMALL, **changes):
    """A 4-bit model folder as mlx-lm writes it; `changes` apply only to config.json."""
    kind, arguments = model
    model = build(kind, arguments, mx.float32, "q4", SEED)
    config = {"model_type": kind, **arguments, "quantization": {"group_size": 64, "bits": 4}, **changes}
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(path / "model.safetensors"), dict(tree_flatten(model.parameters())))
    return path


def run(*arguments):
    """The exit code and the complete output of model.py."""
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


def first(model, block, policies=("exact",), prefix=8, operations=None):
    """The operation named for a block, or None if every row keeps its bits; it must be the same under each policy. All
    operations except `operations` follow `default`."""
    with row_policy("default"):
        caches = caches_after(model, prefix, SEED)
    tokens = np.random.default_rng(SEED + 1).integers(0, VOCABULARY, block + 1)
    setting = Setting("tiny", "float32", "q4", prefix)
    results = compare(setting, model, caches, [block], policies, tokens, operations=operations)
    found = {result.first for result in results}
    assert len(found) == 1, f"policies differ: {found}"
    return found.pop()


def expect(found, *parts):
    """Checks that the text has all the parts."""
    for part in parts:
        assert part in (found or "None"), f"expected {part!r}, found: {found}"


# Operations that MLX computes differently.


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
        "Every bit of the logits is that of single tokens under exact at 1 of 1 lengths up to 100 keys",
        "in blocks of 5.",
    )
    assert text.count("first:") == 1 and "ot compared" not in text, text


def what_is_left_out(root):
    """A verdict lists the lengths for which it is valid, and the exit code shows whether there are others."""
    options = "--tokens", "3,1,4,1,5", "--block", "2", "--policy", "exact"
    verdict = "Every bit of the logits is that of single tokens under exact at 1 of"
    ring = smaller("gpt_oss", gpt_oss(window=128), num_local_experts=4)
    reason = "1024 keys, attention of 4/2 heads of 64 with sinks"
    code, text = run(write(root / "ring", ring), *options, "--up-to", "1030")
    assert code == 3, f"{code}: {text}"
    expect(
        text,
        f"not compared: {reason}: a ring cache of 128 positions wraps",
        f"{verdict} 2 lengths up to 1030 keys, in blocks of 2. Not compared: {reason}.",
    )
    own = smaller("gemma2", SMALL[1], head_dim=64)
    code, text = run(write(root / "own", own), *options)
    assert code == 3, f"{code}: {text}"
    expect(
        text,
        "not compared: numbers of keys other than the prompt's: this model has attention of its own",
        f"{verdict} an unknown number of lengths up to 1100 keys, in blocks of 2. Not compared: numbers of keys other",
    )
    expect(str(script.unfused(1, 2)[0]), "numbers of keys other than these: of 2 layers, 1 have attention of its own")
    assert not script.unfused(2, 2) and not script.unfused(0, 0)


def lengths_around_a_prompt(root):
    """Caches are filled or cut to a length; the prompt's own length is not used twice."""
    model = build(*SMALL, mx.float32, "q4", SEED)
    with row_policy("default"):
        caches = caches_after(model, 12, SEED)
    (shape,) = shapes_of(model)
    for prompt, expected in [(12, [11, 1022]), (1023, [1022]), (1024, [1023, 1022]), (1500, [1499, 1022])]:
        kept, left_out = script.starts([0] * prompt, caches, [shape], 1100, None)
        assert list(kept) == expected and not left_out, f"{prompt} tokens: {kept}, {left_out}"
    kept, left_out = script.starts([0] * 12, caches, [shape], 1100, 1000)
    assert list(kept) == [11] and len(left_out) == 1, f"{kept}, {left_out}"
    for length in (5, 30):
        made = folder.of_length(model, caches, length)
        for old, new in zip(caches, made):
            keys = np.array(old.keys)[..., np.arange(length) % 12, :]
            assert new.offset == length and (np.array(new.keys)[..., :length, :] == keys).all(), length
    assert folder.grown(made, made) == 0 and folder.grown(caches, made) == 2


def a_vocabulary_of_the_model(root):
    """config.json may not state the vocabulary: gemma-3's has 262,208 tokens. Nothing of this model is computed."""
    source = mlx_lm("models.gemma3")
    text = {"model_type": "gemma3_text", "hidden_size": 64, "num_hidden_layers": 6, "intermediate_size": 64}
    arguments = {"model_type": "gemma3", "text_config": {**text, "vocab_size": 262144}}
    assert folder.vocabulary(source.Model(source.ModelArgs.from_dict(arguments))) == 262208


def results_of_earlier_runs(root):
    """Old results are removed when there are new ones, and a full disk is an error."""
    path, results = write(root / "small"), root / "results"
    results.write_text("earlier\n" * 1000)
    for arguments in ([root / "none"], [path, "--tokens", "1,256"], [path, "--prompt", "text"]):
        assert run(*arguments, "--json", results)[0] == 1
        assert results.read_text() == "earlier\n" * 1000, arguments
    options = path, "--tokens", "1,2", "--block", "2", "--policy", "exact", "--up-to", "16", "--json"
    assert run(*options, results)[0] == 0
    (line,) = map(json.loads, results.read_text().splitlines())
    assert line["equal"] and line["block"] == 2, line
    if os.path.exists("/dev/full"):
        found = run(*options, "/dev/full")
        assert found[0] == 1 and "error: cannot write the results to /dev/full: " in found[1], found


def nothing_under_exact(root):
    """If nothing differs, nothing is named, and recording does not change the logits."""
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
        # Rows; picks of rows; a convolution's window; keys; a state, which does not belong to a row; other arrays.
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

    # A state: step 1 gets the result of step 0, and the block starts like step 0.
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
    """The search misses no change: compared with libmlx's rules for GPUs of other sizes at every number of keys."""
    ask, most = lengths.kernels_at, 70000
    try:
        for size, heads in itertools.product("psd", [(32, 4), (8, 4), (12, 2), (8, 8)]):
            sinks = heads == (12, 2)
            rules = attention_alone(*heads, 128, sinks, size, most)
            lengths.kernels_at = lambda shape, keys: rules[keys - 1]
            found = lengths.changes(lengths.Shape(*heads, 128, 128, mx.float32, sinks), most)
            every = [keys for keys in range(2, most + 1) if rules[keys - 1] != rules[keys - 2]]
            assert found == every, f"class {size}, {heads}: {found}, but libmlx has {every}"
        lengths.kernels_at = lambda shape, keys: keys // 300
        assert lengths.changes(None, 1000) == [300, 600, 900]
    finally:
        lengths.kernels_at = ask


def attention_across_a_change(root):
    model = build(*SMALL, mx.float32, "q4", SEED)
    (shape,) = shapes_of(model)
    rules = attention_alone(4, 2, 64, False, mx.device_info()["architecture"][-1], 1100)
    every = [keys for keys in range(2, 1101) if rules[keys - 1] != rules[keys - 2]]
    assert lengths.changes(shape, 1100) == every == [1024], f"{lengths.changes(shape, 1100)}, {every}"
    others = OPERATIONS - {ATTENTION}
    expect(
        first(model, 2, prefix=1022, operations=others),
        "model.layers.0.self_attn: mx.fast.scaled_dot_product_attention, row 0",
        "alone sdpa_vector, in the block sdpa_vector_2pass_1",
    )


def shapes_of(model):
    with lengths.attention_seen() as shapes:
        mx.eval(model(mx.array([[1]])))
    return shapes


def sorted_picks(root):
    """mlx-lm sorts 64 picks but not 8: they are matched by what they multiply."""
    model = build(*EXPERTS, mx.float32, "dense", SEED)
    others = OPERATIONS - {GATHER_MM}
    expect(first(model, 8, operations=others), "model.layers.0.mlp.switch_mlp.up_proj: mx.gather_mm, row 0")


class Same(nn.Module):
    """Gives experts the same row for each token, so that picks are equal."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __call__(self, x, indices):
        return self.inner(mx.ones_like(x), indices)


def equal_picks(root):
    """One of the picks of an expert is computed differently, and the last is not."""
    model = build(*EXPERTS, mx.float32, "dense", SEED)
    experts = model.model.layers[0].mlp
    experts.switch_mlp = Same(experts.switch_mlp)
    gather = mx.gather_mm
    others = OPERATIONS - {GATHER_MM}

    def faulty(x, w, **options):
        y = gather(x, w, **options)
        if options.get("sorted_indices"):
            y[0] *= 1.001
        return y

    mx.gather_mm = record._wrapped(faulty, "mx.gather_mm")
    try:
        expect(first(model, 8), "model.layers.0.mlp.switch_mlp.inner.up_proj: mx.gather_mm, row")
    finally:
        mx.gather_mm = gather


def a_wrapped_ring(root):
    model = build(*smaller("gpt_oss", gpt_oss(window=32), num_local_experts=4), mx.float32, "q4", SEED)
    expect(first(model, 2, prefix=40), "model.layers.1.self_attn: RotatingKVCache.update_and_fetch, row 0")


# Planted faults. They change blocks of several rows, but not a row alone.


def planted(place, fault, dtype=mx.float32):
    """The operation named in a small model with a faulty module: the same under both policies."""
    model = build(*SMALL, dtype, "q4", SEED)
    owner, name = place(model)
    setattr(owner, name, fault(getattr(owner, name)))
    return first(model, 3, ("exact", "narrow"))


class Fault(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner


class AnotherSum(Fault):
    def __call__(self, x):
        y = self.inner(x)
        return y if x.shape[1] == 1 else y * 1.0001


class ThroughNumpy(Fault):
    """A change that no wrapper sees. Later operations have other operands, and are not named."""

    def __call__(self, x):
        y = np.array(self.inner(x))
        y[:, 1:] += 1e-3
        return mx.array(y) * 2


class OtherScale(Fault):
    """The same, but the factor of a row has one axis and other bits, and is not a position."""

    def __call__(self, x):
        y = self.inner(x)
        scale = np.full(y.shape[-1], 1 if x.shape[1] == 1 else 1.5, np.float32)
        return y * mx.array(scale, dtype=y.dtype)


class Learned(Fault):
    """A product of parameters alone."""

    def __init__(self, inner):
        super().__init__(inner)
        rng = np.random.default_rng(SEED)
        self.rows = mx.array(rng.standard_normal((5, 512)).astype(np.float32))

    def __call__(self, x):
        return self.inner(x) + self.inner(self.rows)[0]


class InPlace(Fault):
    """The result of a module is changed after an operation made it."""

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
    """Rows that mix: a row of a block depends on the row before it."""

    def __call__(self, x):
        y = self.inner(x)
        return y + 0.001 * mx.concatenate([mx.zeros_like(y[:, :1]), y[:, :-1]], axis=1)


def a_module(root):
    layer = lambda model: (model.model.layers[1].mlp, "down_proj")
    expect(
        planted(layer, AnotherSum),
        "model.layers.1.mlp.down_proj (AnotherSum), row 0; only in the block: array.__mul__",
    )
    expect(planted(layer, ThroughNumpy), "model.layers.1.mlp.down_proj (ThroughNumpy), row 1")
    expect(planted(layer, OtherScale, mx.bfloat16), "model.layers.1.mlp.down_proj (OtherScale), row 0")
    expect(planted(layer, OtherRows), "model.layers.1.mlp.down_proj: mx.concatenate, row 1")
    expect(
        planted(layer, InPlace),
        "model.layers.1.mlp.down_proj (InPlace), row 2; only in the block: array.__setitem__",
    )


def a_product_of_parameters(root):
    """It follows the policy like any product: here with other kernels than MLX's own for five rows."""
    model = build(*SMALL, mx.float32, "q4", SEED)
    layer = model.model.layers[1].mlp
    layer.down_proj = Learned(layer.down_proj)
    expect(
        first(model, 3),
        "model.layers.1.mlp.down_proj.inner: mx.quantized_matmul, row 0",
        "alone affine_qmv_wide, in the block affine_qmv",
    )


class Turned(Fault):
    """Positions are an array here: a block has one, and each step another."""

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
    expect(planted(norm, OwnKernel), "model.layers.0.post_attention_layernorm: metal kernel planted, row 0")
    expect(planted(norm, Compiled), "model.layers.0.post_attention_layernorm: compiled planted, row 0")


def a_cache(root):
    """A wrong cache after a block shows only in the next step."""
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
        expect(first(model, 3), "model.layers.0.self_attn: KVCache.update_and_fetch, in the step after the block, row 3")
    finally:
        cache.update_and_fetch = update


# User errors.


def generator():
    """mlx-lm's module `generate`. The packages of tokenizers that it imports are not needed here, nor installed."""
    unused = {name: mock.MagicMock() for name in ("transformers", "mlx_lm.tokenizer_utils", "mlx_lm.utils", "mlx_lm.processors")}
    with mock.patch.dict(sys.modules, unused):
        return mlx_lm("generate")


def a_draft_model(root):
    """mlx-lm's own speculative decoding: every bit of its log-probabilities under exact, and none of them under
    default, is that of its plain decoding."""
    generate = generator()
    model, draft = (build(*SMALL, mx.float32, weights, SEED) for weights in ("q8", "q4"))
    prompt = mx.array(np.random.default_rng(SEED).integers(0, VOCABULARY, 24))

    def decode(step, *models):
        # The same chunks of the prompt: the defaults of the two functions differ.
        steps = list(step(prompt, *models, max_tokens=20, prefill_step_size=16))
        drafted = sum(bool(other) for _, _, *rest in steps for other in rest)
        return [(int(token), np.array(found.view(mx.uint32)).ravel().tolist()) for token, found, *_ in steps], drafted

    for policy, expected in ("default", 0), ("exact", 20):
        with row_policy(policy):
            plain, _ = decode(generate.generate_step, model)
            drafts, drafted = decode(generate.speculative_generate_step, model, draft)
        equal = sum(a == b for a, b in zip(plain, drafts, strict=True))
        assert equal == expected, f"{policy}: {equal} of {len(plain)} steps have equal bits"
        assert 0 < drafted < 20, f"{drafted} of {len(plain)} tokens are the draft model's"


def messages(root):
    path = write(root / "small", max_position_embeddings=20)
    none, empty = root / "none", root / "empty"
    empty.mkdir()
    unknown = root / "unknown"
    unknown.mkdir()
    (unknown / "config.json").write_text('{"model_type": "nobody_knows"}')
    (unknown / "model.safetensors").touch()
    for arguments, code, text in [
        ([none], 1, f"error: the folder {none} does not exist: expected a model folder"),
        (["mlx-community/Qwen3-0.6B-4bit"], 1, "hf download mlx-community/Qwen3-0.6B-4bit --local-dir Qwen3-0.6B-4bit"),
        ([empty], 1, f"error: {empty} has no config.json"),
        ([unknown], 1, f"error: mlx-lm {mlx_lm_version()} cannot load {unknown}"),
        ([path, "--tokens", "1,2,3,4,5"], 1, "expected a prompt of up to 4 tokens"),
        ([path, "--tokens", "1,256"], 1, "has the token 256; expected tokens from 0 to 255"),
        ([path, "--tokens", "1,-5,2"], 1, "has the token -5; expected tokens from 0 to 255"),
        ([path, "--tokens", "1"], 1, "the prompt has 1 tokens; expected two or more"),
        ([path, "--prompt", "text"], 1, f"{path} has no tokenizer.json"),
        ([path, "--block", "1-4"], 2, "a block has 2 to 16 tokens; found 1-4"),
        ([path, "--policy", "streamed"], 2, 'which is now "exact"'),
        ([path, "--tokens", "1,2", "--json", root], 1, "error: cannot write the results"),
    ]:
        found = run(*arguments)
        assert found[0] == code and text in found[1], f"{arguments}: expected {code}, {text!r}; found {found}"


TESTS = [
    a_folder_under_default_and_exact,
    what_is_left_out,
    lengths_around_a_prompt,
    a_vocabulary_of_the_model,
    results_of_earlier_runs,
    nothing_under_exact,
    rows_are_lined_up,
    lengths_of_every_class,
    attention_across_a_change,
    sorted_picks,
    equal_picks,
    a_wrapped_ring,
    a_module,
    a_product_of_parameters,
    a_rotation,
    a_kernel_and_a_compiled_function,
    a_cache,
    a_draft_model,
    messages,
]


def main():
    failed, tests = 0, {test.__name__: test for test in TESTS}
    unknown = set(sys.argv[1:]) - tests.keys()
    if unknown:
        print(f"error: unknown test {', '.join(sorted(unknown))}; expected some of {', '.join(tests)}", file=sys.stderr)
        return 2
    for test in map(tests.get, sys.argv[1:] or tests):
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
