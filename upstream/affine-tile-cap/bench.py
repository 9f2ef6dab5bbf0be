#!/usr/bin/env python3
"""Times small-M affine quantized products, one build after the other.

    bench.py run --label A --out a1.tsv            with one build of MLX
    bench.py merge a.tsv b1.tsv a1.tsv a2.tsv b2.tsv

Run it in the order B A A B (B: with the change, A: without), each time with that build on PYTHONPATH, and let the machine
cool down between the runs. The raw times of every run are kept.
"""

import argparse
import platform
import subprocess
import sys
import time

SHAPES = [(5120, 17408), (2560, 248320), (4096, 4096), (4096, 1024)]  # K, N
ROWS = range(1, 13)
REPEATS = 30
ORDER = ["B", "A", "A", "B"]


def hardware():
    if platform.system() != "Darwin":
        return platform.processor() or platform.machine()
    name = subprocess.check_output(["sysctl", "-n", "machdep.cpu.brand_string"], text=True)
    return f"{name.strip()}, macOS {platform.mac_ver()[0]}"


def run(label, out):
    import mlx.core as mx

    if not mx.metal.is_available():
        sys.exit("this build of MLX has no Metal device; there is nothing to time")
    mx.set_default_device(mx.gpu)
    with open(out, "w") as table:
        print(f"# hardware: {hardware()}", file=table)
        print(f"# device: {mx.device_info()}", file=table)
        print(f"# mlx: {mx.__version__}, label {label}", file=table)
        print("label\tbits\tK\tN\tM\trepeat\tmicroseconds", file=table)
        for bits in (4, 8):
            for K, N in SHAPES:
                w = mx.quantize(mx.random.normal((N, K)).astype(mx.bfloat16), 64, bits)
                mx.eval(w)
                for M in ROWS:
                    x = mx.random.normal((M, K)).astype(mx.bfloat16)
                    mx.eval(x)
                    for repeat in range(-3, REPEATS):
                        start = time.perf_counter_ns()
                        mx.eval(mx.quantized_matmul(x, *w, True, 64, bits))
                        spent = (time.perf_counter_ns() - start) / 1000
                        # The first three warm the caches and compile the kernel.
                        if repeat >= 0:
                            print(label, bits, K, N, M, repeat, f"{spent:.1f}", sep="\t", file=table)


def merge(out, runs):
    labels = []
    with open(out, "w") as table:
        for number, path in enumerate(runs):
            lines = open(path).read().splitlines()
            head = [line for line in lines if line.startswith("#")]
            rows = [line for line in lines if not line.startswith("#")]
            labels.append(rows[1].split("\t")[0])
            print("\n".join(head), file=table)
            if number == 0:
                print(f"run\t{rows[0]}", file=table)
            print("\n".join(f"{number + 1}\t{row}" for row in rows[1:]), file=table)
    if labels != ORDER:
        sys.exit(f"expected the runs in the order {' '.join(ORDER)}, found {' '.join(labels)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run")
    one.add_argument("--label", choices=["A", "B"], required=True)
    one.add_argument("--out", required=True)
    all_runs = commands.add_parser("merge")
    all_runs.add_argument("out")
    all_runs.add_argument("runs", nargs=4)
    args = parser.parse_args()
    if args.command == "run":
        run(args.label, args.out)
    else:
        merge(args.out, args.runs)


if __name__ == "__main__":
    main()
