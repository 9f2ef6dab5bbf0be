"""Compares rows of a block with the same rows alone, bit for bit, in MLX's CUDA back-end.

    rows.py reference PART FILE     computes each row alone and writes the bits
    rows.py check PART FILE OUT     computes blocks, compares them, and writes a CSV file

PART is products, dense or attention. Run `reference` on stock MLX, and `check` on any build under the policy in
MLX_ROW_POLICY. With a policy other than default, the exit code is 1 if a row differs.
"""

import os
import sys

import mlx.core as mx
import numpy as np

ROWS = 16
TYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}
FP_MODES = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}


def bits_of(x):
    """The bits of an array, one row per entry of the first dimension."""
    kind = {4: mx.uint32, 2: mx.uint16}[x.dtype.size]
    return np.array(mx.view(mx.contiguous(x), kind))


def normal(rng, shape, dtype, scale=1.0):
    return mx.array((rng.standard_normal(shape) * scale).astype(np.float32)).astype(dtype)


def weights(rng, shape, mode, bits, group, dtype):
    """Packed weights with random codes, their scales, and biases for affine ones."""
    *batch, n, k = shape
    packed = mx.array(rng.integers(0, 2**32, (*batch, n, k * bits // 32), dtype=np.uint32))
    if mode == "affine":
        scales = normal(rng, (*batch, n, k // group), dtype, 0.02)
        return packed, scales, normal(rng, (*batch, n, k // group), dtype, 0.1)
    low, high = (0x30, 0x50) if mode == "nvfp4" else (120, 130)  # e4m3, and exponents
    return packed, mx.array(rng.integers(low, high, (*batch, n, k // group), dtype=np.uint8)), None


def formats():
    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            yield "affine", bits, group
    for mode, (bits, group) in FP_MODES.items():
        yield mode, bits, group


def most_rows(family, policy):
    """The rows of a block that are compared. From eight rows on, and for sorted picks, MLX may choose its matrix
    kernels, which have other bits and take 40 s each to compile."""
    if policy != "default" or not family.startswith(("quantized", "gathered")):
        return ROWS
    return {"quantized, a batch of matrices": 2, "gathered, sorted": 0}.get(family, 7)


def products():
    """For each case: family, name, a function for a row alone, and a function for a block of the first m rows."""
    for mode, bits, group in formats():
        for type_name, dtype in TYPES.items():
            name = f"{mode} {bits} bits, groups of {group}, {type_name}"
            # K without a tail, K with one, K too long for shared memory, and a size for which tensor cores exist.
            shapes = [(96, 2048), (72, 2048 + max(group, 32) * 3), (40, 32768), (256, 1024)]
            for n, k in shapes:
                rng = np.random.default_rng([bits, group, n, k, len(mode)])
                w, scales, biases = weights(rng, (n, k), mode, bits, group, dtype)
                x = normal(rng, (ROWS, k), dtype)

                def product(x, w=w, scales=scales, biases=biases, mode=mode, bits=bits, group=group):
                    return mx.quantized_matmul(
                        x, w, scales, biases, transpose=True, group_size=group, bits=bits, mode=mode
                    )

                size = f"{name}, N = {n}, K = {k}"
                yield "quantized", size, lambda i, x=x, f=product: f(x[i : i + 1]), lambda m, x=x, f=product: f(x[:m])
                if (n, k) == shapes[0]:
                    yield (
                        "quantized, a sequence each",
                        size,
                        lambda i, x=x, f=product: f(x[i : i + 1]),
                        lambda m, x=x, f=product: f(x[:m, None]).squeeze(1),
                    )
            n, k = 64, 1024
            rng = np.random.default_rng([bits, group, 7])
            w, scales, biases = weights(rng, (3, n, k), mode, bits, group, dtype)
            x = normal(rng, (3, ROWS, k), dtype)

            def batched(x, b=slice(None), w=w, scales=scales, biases=biases, mode=mode, bits=bits, group=group):
                biases = None if biases is None else biases[b]
                return mx.quantized_matmul(
                    x, w[b], scales[b], biases, transpose=True, group_size=group, bits=bits, mode=mode
                )

            def alone(i, x=x, f=batched):
                return mx.concatenate([f(x[b, i : i + 1], b)[None] for b in range(3)], axis=1)

            yield "quantized, a batch of matrices", name, alone, lambda m, x=x, f=batched: mx.swapaxes(f(x[:, :m]), 0, 1)
            if type_name == "float32" and group != 64:
                continue
            yield from gathers(name, mode, bits, group, dtype)


def gathers(name, mode, bits, group, dtype):
    experts, n, k = 4, 64, 1024
    rng = np.random.default_rng([bits, group, 11])
    w, scales, biases = weights(rng, (experts, n, k), mode, bits, group, dtype)
    x = normal(rng, (ROWS, 1, k), dtype)
    for order in ("sorted", "unsorted"):
        picks = rng.integers(0, experts, ROWS).astype(np.uint32)
        picks = np.sort(picks) if order == "sorted" else picks

        def gather(first, last, sorted, picks=picks):
            return mx.gather_qmm(
                x[first:last],
                w,
                scales,
                biases,
                rhs_indices=mx.array(picks[first:last]),
                transpose=True,
                group_size=group,
                bits=bits,
                mode=mode,
                sorted_indices=sorted,
            ).squeeze(1)

        yield (
            f"gathered, {order}",
            name,
            lambda i, f=gather: f(i, i + 1, False),
            lambda m, f=gather, order=order: f(0, m, order == "sorted"),
        )


def dense():
    for type_name, dtype in TYPES.items():
        for n, k in ((512, 512), (1000, 1080), (49, 4096)):
            rng = np.random.default_rng([n, k])
            x = normal(rng, (ROWS, k), dtype)
            stored = {"(N, K)": normal(rng, (n, k), dtype, 0.05).T, "(K, N)": normal(rng, (k, n), dtype, 0.05)}
            bias = normal(rng, (n,), dtype)
            for layout, w in stored.items():
                name = f"{type_name}, weights {layout}, N = {n}, K = {k}"
                yield "matmul", name, lambda i, x=x, w=w: x[i : i + 1] @ w, lambda m, x=x, w=w: x[:m] @ w
                yield (
                    "matmul, a sequence each",
                    name,
                    lambda i, x=x, w=w: x[i : i + 1] @ w,
                    lambda m, x=x, w=w: (x[:m, None] @ mx.broadcast_to(w[None], (m, *w.shape))).squeeze(1),
                )
                yield (
                    "addmm",
                    name,
                    lambda i, x=x, w=w, b=bias: mx.addmm(b, x[i : i + 1], w),
                    lambda m, x=x, w=w, b=bias: mx.addmm(b, x[:m], w),
                )
        experts, n, k = 4, 96, 512
        rng = np.random.default_rng([experts, n, k])
        x, w = normal(rng, (ROWS, 1, k), dtype), normal(rng, (experts, n, k), dtype, 0.05)
        picks = np.sort(rng.integers(0, experts, ROWS).astype(np.uint32))

        def gather(first, last, sorted, x=x, w=w, picks=picks):
            return mx.gather_mm(
                x[first:last], w.swapaxes(1, 2), rhs_indices=mx.array(picks[first:last]), sorted_indices=sorted
            ).squeeze(1)

        yield (
            "gather_mm, sorted",
            type_name,
            lambda i, f=gather: f(i, i + 1, False),
            lambda m, f=gather: f(0, m, True),
        )


def attention():
    for type_name, dtype in TYPES.items():
        for heads, kv_heads, dim in ((9, 3, 64), (8, 8, 128), (8, 2, 80)):
            # Keys before the block; MLX changes its kernel at 256 and at 1024.
            for before, capacity in ((40, 256), (250, 512), (300, 512), (1018, 2048)):
                rng = np.random.default_rng([heads, dim, before])
                q = normal(rng, (1, heads, ROWS, dim), dtype)
                k, v = (normal(rng, (1, kv_heads, capacity, dim), dtype) for _ in "kv")
                # A cache that has grown: the same keys, with more room behind them.
                grown = [mx.contiguous(mx.pad(x, [(0, 0), (0, 0), (0, capacity), (0, 0)])) for x in (k, v)]
                mx.eval(q, k, v, grown)
                scale = dim**-0.5

                def row(i, k=k, v=v, q=q, before=before, scale=scale):
                    n = before + i + 1
                    out = mx.fast.scaled_dot_product_attention(
                        q[:, :, i : i + 1], k[:, :, :n], v[:, :, :n], scale=scale
                    )
                    return out.transpose(2, 0, 1, 3).reshape(1, -1)

                def block(m, k=k, v=v, q=q, before=before, scale=scale, mask="causal"):
                    n = before + m
                    out = mx.fast.scaled_dot_product_attention(
                        q[:, :, :m], k[:, :, :n], v[:, :, :n], scale=scale, mask=mask
                    )
                    return out.transpose(2, 0, 1, 3).reshape(m, -1)

                def in_grown(m, row=row, grown=grown):
                    return mx.concatenate([row(i, grown[0], grown[1]) for i in range(m)])

                name = f"{type_name}, {heads}/{kv_heads} heads of {dim}, {before} keys before"
                yield "attention", name, row, block
                yield "attention, one row at a time in a larger cache", name, row, in_grown


PARTS = {"products": products, "dense": dense, "attention": attention}


def main():
    mode, part, file = (sys.argv[1:4] + [""] * 3)[:3]
    if part not in PARTS or len(sys.argv) != {"reference": 4, "check": 5}.get(mode):
        sys.exit(__doc__)
    mx.set_default_device(mx.gpu)
    cases = PARTS[part]
    policy = os.environ.get("MLX_ROW_POLICY", "default")
    if mode == "reference":
        rows = {}
        for family, name, alone, _ in cases():
            rows[f"{family}: {name}"] = np.concatenate([bits_of(alone(i)).reshape(1, -1) for i in range(ROWS)])
        np.savez(file, **rows)
        print(f"{len(rows)} cases")
        return
    expected = np.load(file)
    compared = refused = differing_in_all = 0
    with open(sys.argv[4], "w") as out:
        out.write("family,case,policy,rows,outputs,differing,error\n")
        for family, name, _, block in cases():
            key = f"{family}: {name}"
            for m in range(1, most_rows(family, policy) + 1):
                outputs = differing = 0
                error = ""
                try:
                    got = bits_of(block(m)).reshape(m, -1)
                    outputs = got.size
                    differing = int((got != expected[key][:m]).sum())
                except (RuntimeError, ValueError) as e:
                    error = str(e).split("\n")[0].replace(",", ";")
                    refused += 1
                compared += outputs
                differing_in_all += differing
                out.write(f'"{family}","{name}",{policy},{m},{outputs},{differing},"{error}"\n')
    print(f"{policy}: {differing_in_all} of {compared} outputs differ, {refused} blocks rejected")
    if compared == 0 or (policy != "default" and differing_in_all):
        sys.exit(1)


main()
