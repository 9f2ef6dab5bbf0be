"""Public reports of speculative decoding that changes its output on MLX, simulated with small models.

Each case has the head counts, head dims, format and block size of a report, and a device of the report's class. It
compares a block with single tokens under several arms. Then it leaves one kind of operation after another to MLX, to
find out which one breaks a row. Writes docs/reports/mlxcel-1279.md. Nothing here runs on an Apple GPU.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ISSUES = "https://github.com/"
OUTPUT = Path(__file__).parents[2] / "docs/reports/mlxcel-1279.md"

# Operations by number, as in row_policy.h. Gated delta is missing because mlx-lm computes it with its own kernel.
KINDS = {
    "quantized products": (0, 1, 2, 3),
    "dense products": (4, 5, 6),
    "attention": (7,),
}
EVERYTHING = tuple(range(9))

# name: (policy, operations that follow it)
ARMS = {
    "default": ("default", EVERYTHING),
    "narrow, quantized products alone": ("narrow", KINDS["quantized products"]),
    "narrow": ("narrow", EVERYTHING),
    "exact": ("exact", EVERYTHING),
}
WITHOUT = {
    f"exact without {kind}": ("exact", tuple(op for op in EVERYTHING if op not in operations))
    for kind, operations in KINDS.items()
}


@dataclass(frozen=True)
class Case:
    """The simulated model. `model` is a name of tiny_models, or the layers of a Gemma 4."""

    name: str
    architecture: str
    model: object
    weights: str
    prefix: int
    block: int
    draws: int = 1
    arms: tuple = tuple(ARMS)


def gemma(heads, kv_heads, global_kv_heads, global_layers):
    return (heads, kv_heads, global_kv_heads, global_layers)


CASES = [
    Case("31B", "applegpu_g15d", gemma(32, 16, 4, 10), "q4", 8, 4, draws=3),
    Case("12B", "applegpu_g15d", gemma(16, 8, 1, 8), "q4", 8, 4, draws=3),
    Case("mlx-lm-1423", "applegpu_g15d", "gemma4-31b", "q8", 100, 3),
    Case("mlx-lm-1470 on g13s", "applegpu_g13s", "qwen3-32b", "q6", 100, 5),
    Case("mlx-lm-1470 on g15d", "applegpu_g15d", "qwen3-32b", "q6", 100, 5),
    Case("mlx-swift-lm-542", "applegpu_g15s", "gemma4-12b", "q4", 200, 4, draws=3),
    Case("mlxcel-1186", "applegpu_g17s", "qwen3.6-27b", "q4", 100, 3),
    Case("mlxcel-1188", "applegpu_g17s", "gemma4-12b", "q4", 100, 5, draws=3),
    Case("omlx-2506", "applegpu_g17s", "qwen3.6-27b", "q8", 48388, 4),
]


@dataclass(frozen=True)
class Report:
    title: str
    link: str
    known: str
    cases: tuple
    missing: str


REPORTS = [
    Report(
        "mlx-lm 1423",
        "ml-explore/mlx-lm/issues/1423",
        "gemma-4-31b-it-8bit with 2 drafted tokens, so blocks of 3; M3 Ultra; MLX 0.31.2. Greedy output with a draft "
        "model differs from output without one. Head counts as in mlx 3885.",
        ("mlx-lm-1423",),
        "The real weights, the prompt, and MLX 0.31.2, whose kernels may differ from the pinned ones.",
    ),
    Report(
        "mlx-lm 1470",
        "ml-explore/mlx-lm/issues/1470",
        "Qwen3-32B-6bit with 4 drafted tokens, so blocks of 5. The thread explains it by ties of bfloat16 logits, which "
        "the block and the single steps round differently (mlx-lm 1592). The report does not name the GPU.",
        ("mlx-lm-1470 on g13s", "mlx-lm-1470 on g15d"),
        "The GPU is not known, so two classes are simulated.",
    ),
    Report(
        "mlx-swift-lm 542",
        "ml-explore/mlx-swift-lm/issues/542",
        "quantized Gemma 4 12B with blocks of 4; an unnamed Apple GPU with 128 GB; mlx-swift 0.31.6. The "
        "text differs after some 200 tokens. A comment names the kernels for several rows of products and attention.",
        ("mlx-swift-lm-542",),
        "The GPU (assumed: class s of generation 15), the bits of each layer (assumed: 4) and the real weights.",
    ),
    Report(
        "mlxcel 1186",
        "lablup/mlxcel/issues/1186",
        "Qwen 3.8 27B (24 query and 4 key heads of 256: mlxcel 1190), 4 bits in groups of 64, blocks of 3; M5 Max. "
        "On an M1 Ultra quantized products differ only from 12 rows on, which is the batch limit.",
        ("mlxcel-1186",),
        "The matrix units of generation 17, which the simulation does not have. The batch limit depends on the real "
        "widths, which the small models do not have.",
    ),
    Report(
        "mlxcel 1188",
        "lablup/mlxcel/issues/1188",
        "gemma-4-12b-it-4bit, blocks of 2 and 5; M5 Max. Differs by default; with MLX's kernel `qmv_wide` disabled, "
        "the two texts are identical.",
        ("mlxcel-1188",),
        "The matrix units of generation 17, the real weights and widths.",
    ),
    Report(
        "omlx 2506",
        "jundot/omlx/issues/2506",
        "Qwen3.6-27B (24 query and 4 key heads of 256: fak 447), affine 8 bits in groups of 64, draft depth 3, so "
        "blocks of 4, after a prompt of 48,388 tokens (omlx 2508); M5 Max; MLX 0.32.0.",
        ("omlx-2506",),
        "The matrix units of generation 17, the real weights and the decoder's own kernels. omlx 2508 reports that "
        "another artifact of the same format does not diverge; a simulation with random weights cannot explain that.",
    ),
]

HEAD = """\
# mlxcel 1279 and other reports, simulated

Written by `ci/mlx-lm.sh reports`. Every figure comes from a **simulated** Metal device ({devices}) that runs \
MLX {mlx}'s own Metal back-end and kernels, with mlx-lm {mlx_lm}'s own models, few layers, a width of 256 and \
random bfloat16 weights. None ran on an Apple GPU, and none used a real checkpoint. Generation 17 is simulated \
without its matrix units.

A block of M tokens is compared with the same tokens one by one, logits bit by bit. "Products alone" lets only \
quantized products follow the policy, as a build without the patches for attention and dense products would. \
"Breaks" lists the kinds of operations that make a row differ if only they are left to MLX and all others follow \
`exact`.

## mlxcel 1279

[The report]({issues}lablup/mlxcel/issues/1279): on an M3 Ultra (`applegpu_g15d`) the exactness probe of Gemma \
4 31B, 4 bits, block of 4, fails under both of MLX's kernels for quantized products; position 0 differs in \
231,782 of 524,288 bytes of its logits (44.2 %). [mlx 3885]({issues}ml-explore/mlx/issues/3885) gives the 31B \
50 local layers of 32 query and 16 key heads of 256 and 10 global ones of 32 and 4 heads of 512. The 12B has \
16 query heads, 8 local key heads ([mlxcel 1192]({issues}lablup/mlxcel/pull/1192)) and one global key head \
([tensai 224]({issues}mattn/tensai/pull/224)); on an M5 Max it is byte-identical once `qmv_wide` is off \
([mlxcel 1188]({issues}lablup/mlxcel/issues/1188)).

Simulated: 2 local layers and all global ones (10 and 8), a prompt of 8 random tokens, then a block of 4. As \
mlxcel's probe does ([mlxcel 1193]({issues}lablup/mlxcel/pull/1193)), each model gets three inputs, and passes if \
no row differs.

"""

WHY = """
Under `default`, attention of the global layers (head dim 512) uses these kernels at these lengths:

{kernels}
For a single token, the 31B's attention uses matrix-vector products, and for a block other products. So rows differ, \
however the quantized products are computed. The 12B has one key head, so its 16 query heads are rows of one matrix \
product even for a single token.

Not shown: the real weights, all local layers, the real width, and which commit of MLX the report used.

## Other reports

"""


def run_case(case):
    """Runs a case in this process, which must have the case's device."""
    import mlx.core as mx
    import numpy as np

    from compare import as_block, device, one_by_one
    from row_policy import row_policy
    from tiny_models import MODELS, build, caches_after, gemma4

    if isinstance(case.model, str):
        module, arguments = MODELS[case.model]
    else:
        heads, kv_heads, global_kv_heads, layers = case.model
        types = ["sliding_attention"] * 2 + ["full_attention"] * layers
        module, arguments = "gemma4_text", gemma4(heads, kv_heads, global_kv_heads, types)
    arms = {name: ARMS[name] for name in case.arms}
    model = build(module, arguments, mx.bfloat16, case.weights, 5)
    outcome = {}
    for draw in range(case.draws):
        with row_policy("default"):
            caches = caches_after(model, case.prefix, 100 + draw)
            tokens = np.random.default_rng(200 + draw).integers(0, 256, case.block + 1)
            alone = one_by_one(model, tokens, caches)
        for name, (policy, operations) in {**arms, **WITHOUT}.items():
            with row_policy(policy, operations):
                rows, after = as_block(model, tokens, caches, case.block)
            expected = alone[: case.block].view(np.uint8)
            differing = (rows.view(np.uint8) != expected).sum(axis=1)
            outcome.setdefault(name, []).append(
                {
                    "rows": [int(count) for count in differing],
                    "bytes": int(expected.shape[1]),
                    "step_after": bool((after[0] == alone[case.block]).all()),
                }
            )
    result = {**device(), "case": case.name, "arms": outcome}
    if not isinstance(case.model, str):
        result["kernels"] = attention_kernels(heads, global_kv_heads, case.prefix + case.block, case.block)
    return result


def attention_kernels(heads, kv_heads, keys, block):
    """The kernels of attention for the last row alone and for the block, in bfloat16."""
    import mlx.core as mx

    from row_policy import kernels_of, row_policy

    def ask(rows):
        query, key = mx.ones((1, heads, rows, 512), mx.bfloat16), mx.ones((1, kv_heads, keys, 512), mx.bfloat16)
        mx.eval(query, key)
        mask = "causal" if rows > 1 else None
        return kernels_of(lambda: mx.fast.scaled_dot_product_attention(query, key, key, scale=1.0, mask=mask))

    with row_policy("default"):
        return {"alone": ask(1), "block": ask(block)}


def differs(draws):
    return [draw for draw in draws if any(draw["rows"]) or not draw["step_after"]]


def described(draws):
    different = differs(draws)
    if not different:
        return "no row differs"
    shares = [100 * count / draw["bytes"] for draw in different for count in draw["rows"] if count]
    rows = sum(bool(count) for draw in different for count in draw["rows"])
    total = len(draws) * len(draws[0]["rows"])
    span = f", {min(shares):.0f} to {max(shares):.0f} % of a differing row's bytes" if shares else ""
    return f"{rows} of {total} rows differ{span}"


def breaks(arms):
    if differs(arms["exact"]):
        return "not known: `exact` differs"
    kinds = [kind for kind in KINDS if differs(arms[f"exact without {kind}"])]
    return ", ".join(kinds) or "none"


def page(results):
    first = next(iter(results.values()))
    devices = ", ".join(sorted({f"`{result['architecture']}`" for result in results.values()}))
    text = HEAD.format(devices=devices, mlx=first["mlx"], mlx_lm=first["mlx_lm"], issues=ISSUES)
    arms = list(ARMS)
    text += "| heads of | " + " | ".join(arms) + " | breaks |\n" + "|---" * (len(arms) + 2) + "|\n"
    for name in ("31B", "12B"):
        result = results[name]["arms"]
        text += f"| Gemma 4 {name} | " + " | ".join(described(result[arm]) for arm in arms)
        text += f" | {breaks(result)} |\n"
    kernels = ""
    for name in ("31B", "12B"):
        for rows, names in results[name]["kernels"].items():
            products = [kernel for kernel in names if kernel.startswith(("gemv", "steel", "sdpa"))]
            kernels += f"- {name}, {rows}: " + ", ".join(f"`{kernel}`" for kernel in products) + "\n"
    text += WHY.format(kernels=kernels)
    for report in REPORTS:
        text += f"**[{report.title}]({ISSUES}{report.link})**: {report.known}\n\n"
        for name in report.cases:
            case, result = next(case for case in CASES if case.name == name), results[name]["arms"]
            text += (
                f"- Simulated on `{case.architecture}`: heads of {case.model}, {case.weights}, prefix {case.prefix}, "
                f"block {case.block}. "
            )
            text += "; ".join(f"{arm}: {described(result[arm])}" for arm in case.arms)
            text += f". Breaks: {breaks(result)}.\n"
        text += f"- Missing: {report.missing}\n\n"
    return text.rstrip("\n") + "\n"


def wrong(results):
    """Results that contradict the page, one line each."""
    lines = []
    for name, result in results.items():
        for arm in ("narrow", "exact"):
            if arm in result["arms"] and differs(result["arms"][arm]):
                lines.append(f"{name}: rows differ under {arm}")
        if not differs(result["arms"]["default"]):
            lines.append(f"{name}: no row differs under default, so the case proves nothing")
    alone = "narrow, quantized products alone"
    if not differs(results["31B"]["arms"][alone]):
        lines.append("31B: expected rows to differ when products alone follow narrow")
    if differs(results["12B"]["arms"][alone]):
        lines.append("12B: expected no row to differ when products alone follow narrow")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=[case.name for case in CASES], help="run one case here; prints JSON")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the page to write")
    args = parser.parse_args()
    if args.case:
        print(json.dumps(run_case(next(case for case in CASES if case.name == args.case))))
        return 0

    # A process has one device, so each case is a process.
    results = {}
    for case in CASES:
        print(f"{case.name} on {case.architecture}", file=sys.stderr, flush=True)
        environment = {**os.environ, "MTL_SIM_ARCH": case.architecture}
        command = [sys.executable, __file__, "--case", case.name]
        ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        if ran.returncode != 0:
            sys.exit(f"error: {case.name} failed with exit status {ran.returncode}; its message is above")
        results[case.name] = json.loads(ran.stdout.splitlines()[-1])
        if not results[case.name]["device"].startswith("Simulated"):
            sys.exit(f"error: {results[case.name]['device']} is not a simulated device, and the page describes one")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(page(results), encoding="utf-8")
    print(args.output)
    lines = wrong(results)
    for line in lines:
        print(f"error: {line}", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
