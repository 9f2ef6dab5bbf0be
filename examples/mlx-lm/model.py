"""Compares blocks of tokens with the same tokens one by one, for a model folder of mlx-lm: every bit of the logits.

A prompt is computed, then 17 tokens one at a time under the policy `default`, each the most likely next token: the
reference. Under each policy the first M of these tokens are then computed as a block, and one more token, which reads
the caches that the block left. This is repeated at the numbers of keys at which MLX changes its attention kernels. If a
row differs, the first module and operation that computes it differently is named.

Exit codes: 0 every policy except `default` keeps all bits, 1 a row differs or an error, 2 wrong usage, 3 nothing that
was compared differs, but something was not compared.
"""

import argparse
import copy
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

try:
    import mlx.core as mx
except ImportError as error:
    sys.exit(f"error: this Python has no MLX ({error}); examples/mlx-lm/README.md explains how to install a patched one")

# `compare` must be imported before anything that imports mlx.nn: it records operations.
from compare import Results, Setting, cell, compare, device, exit_with  # isort: skip

import numpy as np

import folder
import lengths
from forward import listed, number
from row_policy import parse, row_policy

# Tokens of the longest block, and the one after it.
MOST = 16
POLICIES = ["default", "exact", "narrow"]


def blocks(text):
    """Numbers and ranges: 2,5,8-16."""
    rows = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        try:
            rows += range(int(first), int(last or first) + 1)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{part!r} is neither a number nor a range") from None
    if not rows or min(rows) < 2 or max(rows) > MOST:
        raise argparse.ArgumentTypeError(f"a block has 2 to {MOST} tokens; found {text}")
    return sorted(set(rows))


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a model folder as mlx_lm.convert writes it")
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", help="text; needs the package tokenizers")
    prompt.add_argument("--prompt-file", type=Path, metavar="FILE", help="the same from a file")
    prompt.add_argument("--tokens", type=listed(int), help="tokens of the prompt, separated by commas")
    parser.add_argument(
        "--policy", type=lambda text: text.split(","), default=POLICIES, help=f"default: {','.join(POLICIES)}"
    )
    parser.add_argument("--block", type=blocks, help="tokens in a block; default: 2-16, on a simulated device 2,5,16")
    parser.add_argument(
        "--up-to",
        type=number,
        metavar="KEYS",
        help="also compare where kernels change, up to this many keys; default: 16400, on a simulated device 1100",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a JSON line for each comparison")
    args = parser.parse_args(argv)
    for policy in args.policy:
        try:
            parse(policy)
        except ValueError as error:
            parser.error(f"--policy: {error}")
    return args


def prompt_of(args, vocabulary):
    """The tokens of the prompt, and their description."""
    if args.tokens:
        tokens, what = args.tokens, "the given tokens"
    elif args.prompt is None and args.prompt_file is None and not folder.has_tokenizer(args.folder):
        tokens = np.random.default_rng(5).integers(0, vocabulary, 24).tolist()
        what = "random tokens, as there is no tokenizer.json or no package tokenizers"
    else:
        text, what = folder.TEXT if args.prompt is None else args.prompt, "text"
        if args.prompt_file:
            try:
                text = args.prompt_file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                sys.exit(f"error: cannot read {args.prompt_file}: {error}")
        tokens = folder.tokens_of(args.folder, text)
    if len(tokens) < 2:
        sys.exit(f"error: the prompt has {len(tokens)} tokens; expected two or more")
    unknown = [token for token in tokens if not 0 <= token < vocabulary]
    if unknown:
        expected = f"expected tokens from 0 to {vocabulary - 1}, the vocabulary"
        sys.exit(f"error: the prompt has the token {unknown[0]}; {expected}")
    return tokens, what


def continued(model, caches, token, count):
    """Tokens that the model generates greedily, and the type of the logits."""
    tokens = [token]
    while len(tokens) < count:
        logits = model(mx.array([[tokens[-1]]]), cache=caches)
        tokens.append(mx.argmax(logits[0, -1]).item())
    return np.array(tokens), str(logits.dtype).removeprefix("mlx.core.")


@dataclass
class LeftOut:
    """Something that is not compared."""

    what: str
    why: str
    length: bool = True  # one number of keys

    def __str__(self):
        return f"{self.what}: {self.why}"


def starts(prompt, caches, shapes, limit, most):
    """The numbers of tokens before the blocks, each with its reason, and the numbers of keys that are not compared."""
    kept, left_out, changes = {len(prompt) - 1: "the prompt"}, [], {}
    for shape in shapes:
        for length in lengths.changes(shape, limit):
            changes.setdefault(length, []).append(str(shape))
    window = folder.window(caches)
    for length, of in sorted(changes.items()):
        # The first row of a block sees one key less than this, the others as many or more.
        prefix, end, reason = length - 2, length - 1 + MOST, f"{length} keys, attention of {', '.join(of)}"
        if prefix in kept:
            kept[prefix] += f"; {reason}"
        elif most and end > most:
            left_out.append(LeftOut(reason, f"the model has {most} positions"))
        elif window and end > window:
            left_out.append(LeftOut(reason, f"a ring cache of {window} positions wraps (README.md, Limits)"))
        elif not folder.can_fill(caches):
            why = f"a cache of this model cannot be filled; use a prompt of {prefix + 1} tokens"
            left_out.append(LeftOut(reason, why))
        else:
            kept[prefix] = reason
    return kept, left_out


def unfused(calls, updates):
    """What is not compared if a step updates more key caches than it has calls of MLX's fused attention."""
    if calls >= updates:
        return []
    of = f"of {updates} layers, {updates - calls} have" if calls else "this model has"
    why = f"{of} attention of its own, not MLX's fused attention, so it is not known where the kernels change"
    what = "numbers of keys other than these" if calls else "numbers of keys other than the prompt's"
    return [LeftOut(what, why, length=False)]


def joined(words):
    """One, two and three."""
    *most, last = map(str, words)
    return f"{', '.join(most)} and {last}" if most else last


def verdict(policies, blocks, limit, compared, left_out):
    """The verdict for policies under which no row differs."""
    of = compared + len(left_out) if all(part.length for part in left_out) else "an unknown number of"
    text = (
        f"Every bit of the logits is that of single tokens under {joined(policies)} at {compared} of {of} lengths "
        f"up to {limit} keys, in blocks of {joined(blocks)}."
    )
    return f"{text} Not compared: {'; '.join(part.what for part in left_out)}." if left_out else text


def main(argv=None):
    args = arguments(argv)
    model, config = folder.load(args.folder)
    facts = device()
    simulated = facts["device"].startswith("Simulated")
    wanted = args.block or ([2, 5, MOST] if simulated else list(range(2, MOST + 1)))
    limit = args.up_to or (1100 if simulated else 16400)
    prompt, what = prompt_of(args, folder.vocabulary(model))
    most = folder.context(config)
    if most and len(prompt) + MOST > most:
        sys.exit(
            f"error: the prompt has {len(prompt)} tokens and the longest block {MOST} more, and "
            f"{args.folder}/config.json allows {most} positions; expected a prompt of up to {most - MOST} tokens"
        )
    output = Results(args.json)
    print(", ".join(f"{name} {value}" for name, value in facts.items() if value))
    print(f"{args.folder}: {config.get('model_type')}; prompt: {what}, {len(prompt)} tokens", flush=True)

    with row_policy("default"):
        caches = folder.after_prompt(model, prompt[:-1])
        after = copy.deepcopy(caches)
        with lengths.attention_seen() as shapes:
            tokens, dtype = continued(model, after, prompt[-1], MOST + 1)
        cases, left_out = starts(prompt, caches, shapes, limit, most)
        left_out += unfused(shapes.total() // MOST, folder.grown(caches, after))
    window = folder.window(caches)
    if window and len(prompt) + MOST > window:
        print(
            f"note: the prompt fills a ring cache of {window} positions, and no policy keeps its order (README.md, Limits)"
        )
    for line in left_out:
        print(f"not compared: {line}")
    weights = "quantized" if config.get("quantization") or config.get("quantization_config") else "dense"

    wrong, differs = [], set()
    for prefix, reason in cases.items():
        print(f"\n{prefix} tokens before the block: {reason}", flush=True)
        with row_policy("default"):
            before = caches if prefix == len(prompt) - 1 else folder.of_length(model, caches, prefix)
        setting = Setting(str(args.folder), dtype, weights, prefix)
        for result in compare(setting, model, before, wanted, args.policy, tokens):
            print(f"  block of {result.block}, {result.policy}: {cell(result)} ({result.seconds} s)", flush=True)
            if result.first:
                print(f"    first: {result.first}", flush=True)
            output.write(**facts, **asdict(result), equal=result.equal)
            if not result.equal:
                differs.add(result.policy)
                if result.policy != "default":
                    wrong.append(f"{result.policy}, block of {result.block}, {prefix} tokens before it")
    print()
    kept = [policy for policy in args.policy if policy != "default" and policy not in differs]
    if kept:
        print(verdict(kept, wanted, limit, len(cases), left_out))
    if "default" in args.policy and "default" not in differs:
        print("No row differs under default either, so this proves little about the policies.")
    for line in wrong:
        print(f"error: rows differ from single tokens: {line}", file=sys.stderr)
    if wrong:
        return 1
    return 3 if left_out else 0


if __name__ == "__main__":
    exit_with(main)
