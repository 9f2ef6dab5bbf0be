"""Compares a block of tokens with the same tokens one by one, for mlx-lm's own models.

A decoder that verifies drafted tokens computes M tokens in one forward pass, and expects the logits of M single steps.
This script runs both for small random models with real head counts, and compares every bit of every row.

The reference is computed under the policy `default` (for `wide`, under `wide`): one token at a time. Under each policy
the first 2, 5 and 16 of these tokens are then computed as a block, and one more token after the block, which reads the
caches that the block left.
"""

import argparse
import itertools
import sys
import time
from dataclasses import asdict
from pathlib import Path

import mlx.core as mx
import numpy as np

from compare import Results, Setting, cell, compare, device, exit_with
from limits import LIMITS
from row_policy import parse, row_policy
from tiny_models import MODELS, VOCABULARY, WINDOW, build, caches_after

DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16}
WEIGHTS = ["dense", "q4", "q6", "q8"]
POLICIES = ["default", "narrow", "exact"]
# 1,022 tokens: a block across 1,024 keys, from which on GPUs of sizes d and s use two passes. lengths.py asks the
# device for all such lengths, and model.py compares at each.
PREFIXES = [8, 100, 1022]
BLOCKS = [2, 5, 16]


def core():
    """float32, which shows differences that bfloat16 rounds away, and a case for each cause of differences."""
    for name in MODELS:
        # Dense products. gemma4-12b replaces gemma4-31b, which takes three times as long.
        if name != "gemma4-31b":
            yield Setting(name, "float32", "dense", 8), [2]
        # Quantized products; unfused attention: with head dim 512, and with 7 or more query heads per key head.
        yield Setting(name, "float32", "q4", 8), [5]
    # Attention across 1,024 keys, a model for each head dim.
    for name in ("qwen2.5-0.5b", "qwen3-30b-a3b", "qwen3.6-27b"):
        yield Setting(name, "float32", "q4", 1022), [2]
    # Enough picks of experts for mlx-lm to sort them.
    yield Setting("gpt-oss-20b", "float32", "q4", 100), [16]


def everything():
    """Every model, type, kind of weights, prefix and block."""
    for setting in itertools.product(MODELS, DTYPES, ["dense", "q4"], PREFIXES):
        yield Setting(*setting), BLOCKS


def run(cases, policies, seed, emit):
    """Runs cases of the same model one after another, so that it is built once."""
    results, built, model = [], None, None
    for setting, blocks in cases:
        wanted = (setting.model, setting.dtype, setting.weights)
        if wanted != built:
            module, arguments = MODELS[setting.model]
            model, built = build(module, arguments, DTYPES[setting.dtype], setting.weights, seed), wanted
        with row_policy("default"):
            caches = caches_after(model, setting.prefix, seed)
        tokens = np.random.default_rng(seed + 1).integers(0, VOCABULARY, max(blocks) + 1)
        # Under the control, rows must differ.
        for result in compare(setting, model, caches, blocks, policies, tokens, lambda policy: policy != "default"):
            results.append(result)
            emit(result)
    return results


def table(results, policies):
    """One row per case, one column per policy."""
    lines = [
        "| model | type | weights | prefix | block | " + " | ".join(policies) + " |",
        "|---|---|---|--:|--:|" + "---|" * len(policies),
    ]
    cases = {}
    for result in results:
        case = (result.model, result.dtype, result.weights, result.prefix, result.block)
        cases.setdefault(case, {})[result.policy] = result
    for case, by_policy in cases.items():
        cells = [*map(str, case), *(cell(by_policy.get(policy)) for policy in policies)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def verdict(results, policies):
    """The problems with the results, one line each."""
    wrong = []
    for result in results:
        if result.policy != "default" and not result.equal:
            case = f"{result.model} {result.dtype} {result.weights}, prefix {result.prefix}, block {result.block}"
            wrong.append(f"{result.policy} does not keep the bits of single steps: {case}: {cell(result)}")
    if "default" in policies:
        for name in dict.fromkeys(result.model for result in results):
            if all(result.equal for result in results if result.model == name and result.policy == "default"):
                wrong.append(f"{name}: no row differs under default, so its cases prove nothing about the policies")
    return wrong


def limits(policies, seed, emit):
    """Runs cases that no policy can handle, because the program passes MLX other operands. Returns those that did not
    differ."""
    unseen = []
    for limit in LIMITS:
        results = list(limit.run(policies, seed))
        for result in results:
            emit(result, limit.name)
        if all(result.equal for result in results if result.policy != "default"):
            unseen.append(f"{limit.name}: every row kept its bits, although README.md lists the case under Limits")
    return unseen


def number(text):
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def listed(kind, known=None):
    """A comma-separated list as an argument. The error lists unknown values and the known ones."""

    def read(text):
        values = []
        for part in text.split(","):
            try:
                value = kind(part)
            except ValueError:
                raise argparse.ArgumentTypeError(f"{part!r} is not a positive whole number") from None
            if known is not None and value not in known:
                raise argparse.ArgumentTypeError(f"unknown value {part!r}; expected {', '.join(map(str, known))}")
            values.append(value)
        return values

    return read


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="run every case, not only the core")
    parser.add_argument("--limits", action="store_true", help="run the cases that no policy can handle")
    parser.add_argument("--model", type=listed(str, MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--dtype", type=listed(str, DTYPES), help=f"of {', '.join(DTYPES)}")
    parser.add_argument("--weights", type=listed(str, WEIGHTS), help=f"of {', '.join(WEIGHTS)} (bits, groups of 64)")
    parser.add_argument("--prefix", type=listed(number), help="tokens before the block")
    parser.add_argument("--block", type=listed(number), help="tokens in a block")
    parser.add_argument("--policy", type=lambda text: text.split(","), default=POLICIES, help="default is the control")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a JSON line for each case and policy")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the table as Markdown")
    args = parser.parse_args()
    for policy in args.policy:
        try:
            parse(policy)
        except ValueError as error:
            parser.error(f"--policy: {error}")
    if args.seed < 0:
        parser.error(f"--seed: {args.seed} is negative")
    longest = max(args.prefix or [0]) + max(args.block or [0]) + 1
    if longest > WINDOW:
        parser.error(f"a run of {longest} tokens wraps the sliding window of {WINDOW}, which --limits shows")
    return args


def chosen(args):
    """The cases of the core, or all cases; a given option replaces the default for its dimension."""
    if not (args.model or args.dtype or args.weights or args.prefix or args.block):
        return everything() if args.full else core()
    settings = itertools.product(
        args.model or MODELS, args.dtype or DTYPES, args.weights or ["dense", "q4"], args.prefix or PREFIXES
    )
    return ((Setting(*setting), args.block or BLOCKS) for setting in settings)


def main():
    args = arguments()
    start = time.monotonic()
    facts = device()
    output = Results(args.json)
    try:
        if args.report:
            args.report.touch()
    except OSError as error:
        sys.exit(f"error: cannot write the results: {error}")

    def emit(result, limit=None):
        output.write(**facts, **asdict(result), equal=result.equal, **({"limit": limit} if limit else {}))
        case = f"{result.model} {result.dtype} {result.weights} prefix {result.prefix} block {result.block}"
        print(f"{limit + ': ' if limit else ''}{case} {result.policy}: {cell(result)} ({result.seconds} s)", flush=True)
        if result.first:
            print(f"  first: {result.first}", flush=True)
        shown.append(result)

    shown = []
    if args.limits:
        wrong = limits(args.policy, args.seed, emit)
    else:
        wrong = verdict(run(chosen(args), args.policy, args.seed, emit), args.policy)
    seconds = time.monotonic() - start

    if args.report:
        head = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
        args.report.write_text(
            f"{head}; seed {args.seed}; {len(shown)} comparisons in {seconds:.0f} s.\n\n" + table(shown, args.policy),
            encoding="utf-8",
        )
    print(f"{facts['device']}: {len(shown)} comparisons in {seconds:.1f} s")
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    exit_with(main)
