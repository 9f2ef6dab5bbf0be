"""Small versions of mlx-lm's own models: real head counts and head dims, few layers, narrow, random weights."""

import importlib
import importlib.metadata
import importlib.util
import sys
import types
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

VOCABULARY = 256
HIDDEN = 256

# No run is longer than this, so a window of this size never wraps.
WINDOW = 2048


def mlx_lm(module):
    """A module of mlx-lm. An empty package replaces the package's own __init__, which imports tokenizers and the hub's
    client; no model needs them."""
    if "mlx_lm" not in sys.modules:
        spec = importlib.util.find_spec("mlx_lm")
        if spec is None:
            sys.exit(
                "error: mlx-lm is not installed; run pip install --no-deps --require-hashes -r "
                f"{Path(__file__).parent / 'requirements.txt'}, or ci/mlx-lm.sh, which does so"
            )
        package = types.ModuleType("mlx_lm")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["mlx_lm"] = package
    return importlib.import_module(f"mlx_lm.{module}")


def mlx_lm_version():
    return importlib.metadata.version("mlx-lm")


def _args(**extra):
    return {
        "hidden_size": HIDDEN,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 40960,
        "rope_theta": 1e6,
        "tie_word_embeddings": False,
        **extra,
    }


def gemma4(heads, kv_heads, global_kv_heads, layer_types=("sliding_attention", "full_attention"), window=WINDOW):
    return _args(
        num_hidden_layers=len(layer_types),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        num_global_key_value_heads=global_kv_heads,
        head_dim=256,
        global_head_dim=512,
        attention_k_eq_v=True,
        num_kv_shared_layers=0,
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=VOCABULARY,
        sliding_window=window,
        layer_types=list(layer_types),
        use_double_wide_mlp=False,
        tie_word_embeddings=True,
    )


def gpt_oss(window=WINDOW):
    yarn = {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "original_max_position_embeddings": 4096,
        "truncate": False,
    }
    return _args(
        intermediate_size=256,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=64,
        num_local_experts=32,
        num_experts_per_tok=4,
        sliding_window=window,
        rope_theta=150000,
        rope_scaling=yarn,
        layer_types=["full_attention", "sliding_attention"],
    )


# name: (mlx-lm's module, its arguments). The name is that of the model with these head counts and head dims.
MODELS = {
    # Biased projections, 7 query heads per key head; the width follows from the heads: 14 of 64.
    "qwen2.5-0.5b": (
        "qwen2",
        _args(hidden_size=896, num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True),
    ),
    "qwen3-32b": ("qwen3", _args(num_attention_heads=64, num_key_value_heads=8, head_dim=128)),
    # 128 experts, 8 per token: a block of 16 rows has enough picks for mlx-lm to sort them.
    "qwen3-30b-a3b": (
        "qwen3_moe",
        _args(
            num_attention_heads=32,
            num_key_value_heads=4,
            head_dim=128,
            num_experts=128,
            num_experts_per_tok=8,
            decoder_sparse_step=1,
            mlp_only_layers=[],
            moe_intermediate_size=64,
            norm_topk_prob=True,
        ),
    ),
    # Local layers with head dim 256, and global ones with 512 whose values are the keys.
    "gemma4-31b": ("gemma4_text", gemma4(32, 16, 4)),
    "gemma4-12b": ("gemma4_text", gemma4(16, 8, 1)),
    # Gated delta and attention alternate. mlx-lm has its own kernel for gated delta.
    "qwen3.6-27b": (
        "qwen3_5",
        _args(
            model_type="qwen3_5",
            num_attention_heads=24,
            num_key_value_heads=4,
            head_dim=256,
            linear_num_value_heads=48,
            linear_num_key_heads=16,
            linear_key_head_dim=128,
            linear_value_head_dim=128,
            linear_conv_kernel_dim=4,
            full_attention_interval=2,
        ),
    ),
    # Attention with sinks, experts with biases.
    "gpt-oss-20b": ("gpt_oss", gpt_oss()),
    "llama-3.2-1b": (
        "llama",
        _args(num_attention_heads=32, num_key_value_heads=8, head_dim=64, rope_theta=5e5, tie_word_embeddings=True),
    ),
}


def build(module, arguments, dtype, weights, seed):
    """A model with random weights. `weights` is dense, or qB for B bits in groups of 64."""
    source = mlx_lm(f"models.{module}")
    arguments = dict(arguments)
    arguments.setdefault("model_type", module)
    model = source.Model(source.ModelArgs.from_dict(arguments))
    cast = getattr(model, "cast_predicate", lambda _: True)
    rng = np.random.default_rng(seed)

    def values(path, parameter):
        shape, name = parameter.shape, path.rsplit(".", 1)[-1]
        if name == "A_log":
            drawn = np.log(rng.uniform(1, 16, shape))
        elif "bias" in name or name == "sinks":
            drawn = 0.5 * rng.standard_normal(shape)
        elif len(shape) == 1:
            drawn = rng.uniform(0.9, 1.1, shape)
        else:
            drawn = 1.5 * rng.standard_normal(shape) / np.sqrt(shape[-1])
        return mx.array(drawn.astype(np.float32)).astype(dtype if cast(path) else mx.float32)

    parameters = tree_flatten(model.parameters())
    model.update(tree_unflatten([(path, values(path, parameter)) for path, parameter in parameters]))
    if weights != "dense":
        own = getattr(model, "quant_predicate", None)
        # The rule of mlx-lm's conversion: the model's own predicate, and rows of whole groups.
        nn.quantize(
            model,
            group_size=64,
            bits=int(weights[1:]),
            class_predicate=lambda path, module: hasattr(module, "to_quantized")
            and module.weight.shape[-1] % 64 == 0
            and (own(path, module) if own else True),
        )
    mx.eval(model.parameters())
    return model


def new_caches(model):
    return mlx_lm("models.cache").make_prompt_cache(model)


def caches_after(model, length, seed):
    """The caches after a prefix of `length` tokens.

    A prompt of 8 random tokens is run. For a longer prefix, `length` random keys and values then replace those of the
    attention layers, which costs nothing; the states of recurrent layers stay those of the prompt.
    """
    rng = np.random.default_rng(seed)
    caches = new_caches(model)
    prompt = mx.array(rng.integers(0, VOCABULARY, (1, min(length, 8))))
    mx.eval(model(prompt, cache=caches))
    if length > 8:
        fresh = new_caches(model)
        for i, (cache, new) in enumerate(zip(caches, fresh)):
            if not hasattr(cache, "update_and_fetch"):
                continue

            def random(like):
                shape = (*like.shape[:2], length, like.shape[3])
                return mx.array(rng.standard_normal(shape).astype(np.float32)).astype(like.dtype)

            new.update_and_fetch(random(cache.keys), random(cache.values))
            caches[i] = new
    mx.eval([cache.state for cache in caches])
    return caches
