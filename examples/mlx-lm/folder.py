"""A model folder, read by mlx-lm's own loader, a prompt for it, and caches of any length."""

import importlib.util
import sys
import types

import mlx.core as mx

from tiny_models import mlx_lm, mlx_lm_version, new_caches

# The number of prompt tokens that are computed at once.
CHUNK = 512
TEXT = "Speculative decoding drafts several tokens and checks them in one pass. The output should be"
EXPECTED = "expected a model folder as mlx_lm.convert writes it, with config.json and model*.safetensors"


def load(path):
    """The model and its config; exits with a message if there is none."""
    if not path.is_dir():
        hint = ""
        if not path.is_absolute() and len(path.parts) == 2 and not path.parent.exists():
            hint = f"; if it is a name on Hugging Face, download it: hf download {path} --local-dir {path.name}"
        sys.exit(f"error: the folder {path} does not exist: {EXPECTED}{hint}")
    if not (path / "config.json").is_file():
        sys.exit(f"error: {path} has no config.json: {EXPECTED}")
    if not list(path.glob("model*.safetensors")):
        sys.exit(f"error: {path} has no model*.safetensors: {EXPECTED}; mlx_lm.convert converts other formats")
    # The loader imports these modules but does not need them: folders are local, and `tokens_of` reads the tokenizer.
    mlx_lm("models.base")
    for name, attributes in (
        ("mlx_lm.tokenizer_utils", {"TokenizerWrapper": None, "load": None}),
        ("huggingface_hub", {"snapshot_download": None}),
    ):
        if name not in sys.modules and (name.startswith("mlx_lm.") or importlib.util.find_spec(name) is None):
            sys.modules[name] = types.ModuleType(name)
            vars(sys.modules[name]).update(attributes)
    try:
        return mlx_lm("utils").load_model(path)
    except (ValueError, KeyError, TypeError, OSError, RuntimeError, NotImplementedError) as error:
        sys.exit(f"error: mlx-lm {mlx_lm_version()} cannot load {path}: {error}")


def context(config):
    """The most positions of the model, or None if config.json does not state them."""
    for part in (config, config.get("text_config") or {}):
        for name in ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length"):
            if isinstance(part.get(name), int):
                return part[name]
    return None


def vocabulary(model):
    """The number of tokens: the width of the logits, because config.json may not state it. Computes nothing."""
    return model(mx.array([[0]]), cache=new_caches(model)).shape[-1]


def tokens_of(path, text):
    """The tokens of a text; exits with a message if they cannot be determined."""
    file = path / "tokenizer.json"
    if not file.is_file():
        sys.exit(
            f"error: {path} has no tokenizer.json, which --prompt needs; give token numbers instead: --tokens 1,2,3"
        )
    if importlib.util.find_spec("tokenizers") is None:
        sys.exit("error: --prompt needs the package tokenizers: pip install tokenizers, or give --tokens 1,2,3")
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(file)).encode(text).ids


def has_tokenizer(path):
    return (path / "tokenizer.json").is_file() and importlib.util.find_spec("tokenizers") is not None


def after_prompt(model, tokens):
    """The caches after a prompt, computed in chunks as in mlx-lm."""
    caches = new_caches(model)
    for start in range(0, len(tokens), CHUNK):
        mx.eval(model(mx.array(tokens[start : start + CHUNK])[None], cache=caches))
    mx.eval([cache.state for cache in caches])
    return caches


def can_fill(caches):
    """Whether `of_length` supports these caches."""
    return all(
        isinstance(cache.keys, mx.array) and isinstance(cache.values, mx.array) and cache.offset > 0
        for cache in parts(caches)
        if hasattr(cache, "update_and_fetch")
    )


def grown(before, after):
    """The number of key-value caches to which a model has added keys."""
    pairs = zip(parts(before), parts(after))
    return sum(hasattr(old, "update_and_fetch") and old.offset != new.offset for old, new in pairs)


def parts(caches):
    """Caches, with lists of caches flattened."""
    for cache in caches:
        inner = getattr(cache, "caches", None)
        yield from parts(inner) if inner else [cache]


def window(caches):
    """The smallest number of positions after which a ring cache wraps, or None."""
    sizes = [cache.max_size for cache in parts(caches) if getattr(cache, "max_size", None)]
    return min(sizes, default=None)


def of_length(model, caches, length):
    """Caches as after a prompt of `length` tokens: their keys and values are those of the prompt, repeated if it is
    shorter. Recurrent states stay those of the prompt."""
    fresh = new_caches(model)
    for old, new in zip(parts(caches), parts(fresh)):
        if hasattr(old, "update_and_fetch"):
            again = mx.arange(length) % min(old.offset, old.keys.shape[-2])
            new.update_and_fetch(old.keys[..., again, :], old.values[..., again, :])
        else:
            new.state = old.state
    mx.eval([cache.state for cache in fresh])
    return fresh
