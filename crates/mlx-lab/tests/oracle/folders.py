"""Writes small model folders and, for each, the products that mlx-lm computes: the oracle of tests/oracle.rs.

usage: folders.py FOLDER

mlx-lm makes, quantizes, saves and loads the models. Some folders are then changed in ways in which converters and
downloads leave them. A product is recorded when mlx-lm computes it, so nothing here repeats the reader's rules.
"""

import importlib.util
import json
import sys
import types
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten


def stand_in(name, **attributes):
    module = types.ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module


# Modules that mlx-lm's loader imports but no model needs: tokenizers, and the hub's client. ci/mlx-lm.sh installs neither.
spec = importlib.util.find_spec("mlx_lm")
if spec is None:
    sys.exit("mlx-lm is not installed; run ci/mlx-lm.sh oracle")
stand_in("mlx_lm", __path__=list(spec.submodule_search_locations))
stand_in("mlx_lm.tokenizer_utils", TokenizerWrapper=None, load=None)
if importlib.util.find_spec("huggingface_hub") is None:
    stand_in("huggingface_hub", snapshot_download=None)

from mlx_lm import utils  # noqa: E402
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear  # noqa: E402

COMMON = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 1e-5,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "rope_theta": 1e4,
    "tie_word_embeddings": False,
}
AFFINE = {"group_size": 64, "bits": 4}
MOE = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
}


def model_of(config):
    model_class, args_class = utils._get_classes(config)
    mx.random.seed(7)
    return model_class(args_class.from_dict(config))


def write(folder, config, quantization=None, own=None, shards=1):
    """`own` maps the end of a module's path to that module's own format."""
    config = dict(config)
    model = model_of(config)
    if quantization is not None:
        entries = dict(quantization)

        def predicate(path, module):
            if not hasattr(module, "to_quantized"):
                return False
            if module.weight.shape[-1] % 64:
                return False
            for end, entry in (own or {}).items():
                if path.endswith(end):
                    if entry:
                        entries[path] = entry
                    return entry
            return True

        nn.quantize(model, **quantization, class_predicate=predicate)
        config["quantization"] = entries
    folder.mkdir(parents=True)
    model.set_dtype(mx.bfloat16)
    weights = dict(tree_flatten(model.parameters()))
    mx.eval(weights)
    names = sorted(weights)
    parts = [names[i::shards] for i in range(shards)]
    shards = [{name: weights[name] for name in part} for part in parts]
    names = ["model.safetensors"]
    if len(shards) > 1:
        names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
        index = {key: name for name, shard in zip(names, shards) for key in shard}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    for name, shard in zip(names, shards):
        mx.save_safetensors(str(folder / name), shard, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
    return weights


def edit(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def add(folder, tensors, file="model.safetensors"):
    path = str(folder / file)
    weights = dict(mx.load(path)) if Path(path).exists() else {}
    weights.update(tensors)
    mx.eval(weights)
    mx.save_safetensors(path, weights, metadata={"format": "mlx"})


def make(root):
    llama = {"model_type": "llama", **COMMON}
    write(root / "llama", llama, AFFINE)
    write(root / "llama-bf16", llama)
    write(root / "llama-sharded", llama, AFFINE, shards=2)
    write(root / "llama-tied", {**llama, "tie_word_embeddings": True}, AFFINE)
    untold = {key: value for key, value in llama.items() if key != "tie_word_embeddings"}
    write(root / "llama-tied-untold", untold, AFFINE)
    write(root / "llama-mxfp4", llama, {"group_size": 32, "bits": 4, "mode": "mxfp4"})
    write(root / "llama-nvfp4", llama, {"group_size": 16, "bits": 4, "mode": "nvfp4"})
    write(root / "llama-mxfp8", llama, {"group_size": 32, "bits": 8, "mode": "mxfp8"})
    mixed = {
        "v_proj": {"group_size": 32, "bits": 8},
        "o_proj": {"group_size": 64, "bits": 6},
        "down_proj": {"group_size": 32, "bits": 8},
        "lm_head": {"group_size": 32, "bits": 8},
        "gate_proj": False,
    }
    write(root / "llama-mixed", llama, AFFINE, mixed)
    write(root / "llama-mixed-untold", llama, AFFINE, mixed)
    edit(root / "llama-mixed-untold", lambda config: config.update(quantization=dict(AFFINE)))
    mxfp4 = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
    write(root / "llama-override", llama, mxfp4, {"up_proj": {"group_size": 64, "bits": 8}})
    own = {"up_proj": {"mode": "mxfp4"}, "k_proj": {"bits": 8}}
    write(root / "llama-default-of-mode", llama, {"group_size": 32, "bits": 8}, own)
    write(root / "llama-infinite", llama, AFFINE)
    edit(root / "llama-infinite", lambda config: config.update(a=float("inf"), b=[float("nan"), float("-inf")]))
    write(root / "llama-two-heads", {**llama, "tie_word_embeddings": True}, AFFINE)
    add(root / "llama-two-heads", {"lm_head.weight": mx.zeros((64, 128), mx.bfloat16)})
    write(root / "llama-beside", llama, AFFINE)
    add(root / "llama-beside", {"a.weight": mx.zeros((8, 8))}, "adapters.safetensors")
    write(
        root / "granite",
        {
            "model_type": "granite",
            **COMMON,
            "tie_word_embeddings": True,
            "embedding_multiplier": 1.0,
            "attention_multiplier": 1.0,
            "residual_multiplier": 1.0,
            "logits_scaling": 1.0,
            "attention_bias": False,
            "mlp_bias": False,
        },
        AFFINE,
    )
    add(root / "granite", {"lm_head.weight": mx.zeros((64, 128), mx.bfloat16)})
    write(root / "qwen2", {"model_type": "qwen2", **COMMON}, AFFINE)
    write(root / "qwen3", {"model_type": "qwen3", **COMMON}, AFFINE)
    gate = {"mlp.gate": {"group_size": 64, "bits": 8}}
    write(root / "qwen3-moe", {"model_type": "qwen3_moe", **COMMON, **MOE}, AFFINE, gate)
    write(
        root / "mixtral", {"model_type": "mixtral", **COMMON, "num_local_experts": 4, "num_experts_per_tok": 2}, AFFINE
    )
    write(root / "phi3", {"model_type": "phi3", **COMMON}, AFFINE)
    write(root / "olmo2", {"model_type": "olmo2", **COMMON}, AFFINE)
    write(
        root / "gemma2",
        {
            "model_type": "gemma2",
            **COMMON,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
            "query_pre_attn_scalar": 32.0,
        },
        AFFINE,
    )
    gemma3 = {**COMMON, "sliding_window": 256, "sliding_window_pattern": 2, "query_pre_attn_scalar": 32.0}
    write(root / "gemma3-text", {"model_type": "gemma3_text", **gemma3}, AFFINE)
    write(
        root / "gemma3",
        {"model_type": "gemma3", "vocab_size": 64, "text_config": {"model_type": "gemma3_text", **gemma3}},
        AFFINE,
    )
    # Global layers have heads of another size and count, and no values of their own.
    gemma4 = {
        **COMMON,
        "global_head_dim": 64,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 64,
        "sliding_window": 256,
        "layer_types": ["sliding_attention", "full_attention"],
        "use_double_wide_mlp": False,
        "tie_word_embeddings": True,
    }
    write(root / "gemma4-text", {"model_type": "gemma4_text", **gemma4}, AFFINE)
    write(root / "gemma4-look-ups", {"model_type": "gemma4_text", **gemma4, "hidden_size_per_layer_input": 64}, AFFINE)
    write(
        root / "gemma4-shared",
        {
            "model_type": "gemma4_text",
            **gemma4,
            "num_hidden_layers": 4,
            "num_kv_shared_layers": 2,
            "attention_k_eq_v": False,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
        AFFINE,
    )
    write(
        root / "gpt-oss",
        {
            "model_type": "gpt_oss",
            **COMMON,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 128,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        AFFINE,
    )
    write(
        root / "qwen3-next",
        {
            "model_type": "qwen3_next",
            **COMMON,
            **MOE,
            "shared_expert_intermediate_size": 64,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 32,
            "linear_value_head_dim": 32,
            "linear_conv_kernel_dim": 4,
            "partial_rotary_factor": 0.5,
            "full_attention_interval": 2,
        },
        AFFINE,
    )
    write(
        root / "deepseek-v2",
        {
            "model_type": "deepseek_v2",
            **COMMON,
            "kv_lora_rank": 64,
            "q_lora_rank": None,
            "qk_rope_head_dim": 32,
            "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
            "qk_nope_head_dim": 32,
            "v_head_dim": 32,
            "n_routed_experts": None,
            "first_k_dense_replace": 2,
            "moe_intermediate_size": 64,
            "num_key_value_heads": 4,
        },
        AFFINE,
    )
    write(
        root / "mamba",
        {
            "model_type": "mamba",
            "vocab_size": 64,
            "hidden_size": 128,
            "intermediate_size": 256,
            "state_size": 16,
            "num_hidden_layers": 2,
            "conv_kernel": 4,
            "use_bias": False,
            "use_conv_bias": True,
            "time_step_rank": 8,
            "tie_word_embeddings": True,
        },
        AFFINE,
    )
    write(
        root / "gpt2",
        {
            "model_type": "gpt2",
            "n_ctx": 128,
            "n_embd": 128,
            "n_head": 4,
            "n_layer": 2,
            "n_positions": 128,
            "layer_norm_epsilon": 1e-5,
            "vocab_size": 64,
        },
        AFFINE,
    )
    write(root / "starcoder2", {"model_type": "starcoder2", **COMMON, "norm_epsilon": 1e-5}, AFFINE)


class Watch:
    """Records what is multiplied while it is entered."""

    CLASSES = [nn.Linear, nn.QuantizedLinear, SwitchLinear, QuantizedSwitchLinear]
    LOOK_UPS = [nn.Embedding, nn.QuantizedEmbedding]

    def __init__(self, model):
        self.names = {id(module): name for name, module in model.named_modules()}
        self.products, self.attention = {}, []

    def __enter__(self):
        self.undo = []

        def patch(owner, name, before):
            original = getattr(owner, name)

            def called(*args, **kwargs):
                before(*args, **kwargs)
                return original(*args, **kwargs)

            setattr(owner, name, called)
            self.undo.append(lambda: setattr(owner, name, original))

        for kind in self.CLASSES:
            patch(kind, "__call__", self.multiplied)
        for kind in self.LOOK_UPS:
            patch(kind, "as_linear", self.multiplied)
        patch(mx.fast, "scaled_dot_product_attention", self.attended)
        return self

    def __exit__(self, *_):
        for undo in self.undo:
            undo()

    def multiplied(self, module, *_, **__):
        *batch, n, columns = module.weight.shape
        quantized = hasattr(module, "bits")
        self.products[self.names[id(module)]] = {
            "batch": batch,
            "n": n,
            "k": columns * 32 // module.bits if quantized else columns,
            "format": [module.mode, module.bits, module.group_size] if quantized else None,
        }

    def attended(self, q, k, v, **options):
        shape = [q.shape[1], k.shape[1], q.shape[3], v.shape[3], options.get("sinks") is not None]
        self.attention.append(shape)


def listing(folder):
    model, _ = utils.load_model(folder, lazy=True)
    with Watch(model) as watch:
        mx.eval(model(mx.array([[1, 2, 3]])))
    return {"products": watch.products, "attention": watch.attention}


def ties():
    """Families whose model file drops the head, with those that mlx-lm computes with such a file."""
    files = Path(utils.__file__).parent.glob("models/*.py")
    drop = {file.stem for file in files if 'weights.pop("lm_head.weight"' in file.read_text()}
    return sorted(drop | {name for name, file in utils.MODEL_REMAPPING.items() if file in drop})


def main():
    root = Path(sys.argv[1])
    mx.set_default_device(mx.cpu)
    make(root)
    listed = {folder.name: listing(folder) for folder in sorted(root.iterdir())}
    (root / "listing.json").write_text(json.dumps(listed, indent=1))
    (root / "ties.json").write_text(json.dumps(ties()))


main()
