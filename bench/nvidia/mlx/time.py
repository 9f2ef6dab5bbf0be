"""Times chains of quantized products in MLX's CUDA back-end; weights rotate so that none stays in the cache.

    time.py ARM OUT    appends lines to a CSV file: arm, shape, bits, rows, microseconds
"""

import statistics
import sys
import time

import mlx.core as mx

SHAPES = {"head": (248320, 2560), "mlp": (17408, 5120), "down": (5120, 17408), "o": (4096, 4096), "kv": (1024, 5120)}
CACHE = 60e6  # bytes; an H200 has 50 MiB of L2


def chain(x, matrices, bits, length):
    """`length` products, each of which feeds the next; the operation between them costs the same in every arm."""
    k = x.shape[1]
    for i in range(length):
        w, scales, biases = matrices[i % len(matrices)]
        y = mx.quantized_matmul(x, w, scales, biases, transpose=True, group_size=64, bits=bits)
        part = y[:, : min(k, y.shape[1])]
        x = mx.maximum(x[:, : part.shape[1]], part) if part.shape[1] == k else x + part[:, :1]
    return x


def microseconds(n, k, bits, m):
    count = max(2, int(4 * CACHE // (n * k * bits // 8)) + 1)
    matrices = []
    for i in range(min(count, 40)):
        packed = mx.random.randint(0, 2**31 - 1, (n, k * bits // 32), dtype=mx.uint32, key=mx.random.key(i))
        scales = mx.random.normal((n, k // 64), dtype=mx.bfloat16, scale=0.01, key=mx.random.key(i + 100))
        matrices.append((packed, scales, -8 * scales))
    x = mx.random.normal((m, k), dtype=mx.bfloat16)
    mx.eval(x, matrices)
    length = max(24, len(matrices))
    for _ in range(2):
        mx.eval(chain(x, matrices, bits, length))
    times = []
    for _ in range(15):
        out = chain(x, matrices, bits, length)  # Python's part is not timed
        mx.synchronize()
        start = time.perf_counter()
        mx.eval(out)
        mx.synchronize()
        times.append((time.perf_counter() - start) / length * 1e6)
    return statistics.median(times)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    arm, file = sys.argv[1:]
    with open(file, "a") as out:
        for shape, (n, k) in SHAPES.items():
            for bits in (4, 8):
                for m in (1, 2, 3, 4, 6, 7, 8, 16):
                    out.write(f"{arm},{shape},{bits},{m},{microseconds(n, k, bits, m):.1f}\n")
                    out.flush()


main()
