"""Prints the results of bench/sim.sh as Markdown. usage: report.py FOLDER"""

import csv
import platform
import re
import statistics
import sys
from itertools import groupby
from pathlib import Path

USES = ("use of a kernel, process start excluded", "runs", "ms, median (least)", "processor ms, median (least)")
PRODUCTS = (
    "product",
    "kernel",
    "threads",
    "M x N x K, bits",
    "ms, median (least)",
    "processor ms, median (least)",
    "G multiply-adds per processor second",
)


def rows(name):
    with open(Path(sys.argv[1]) / name, encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def values(group, name):
    return [float(row[name]) for row in group]


def times(group):
    for name in ("milliseconds", "processor_ms"):
        found = values(group, name)
        yield f"{statistics.median(found):.0f} ({min(found):.0f})"


def line(cells):
    print("| " + " | ".join(map(str, cells)) + " |")


def head(cells):
    line(cells)
    print("|" + "---|" * len(cells))


uses, products = rows("use.tsv"), rows("products.tsv")
cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
loads = values(uses + products, "load")
print("# The simulated device, measured\n")
print(f"{cpu[1] if cpu else platform.machine()}; load {min(loads)} to {max(loads)} during the runs.")
print("Written by `bench/sim.sh`; every run is in `use.tsv` and `products.tsv`. These times say nothing about a GPU.")
print("Processor time depends far less on the load than elapsed time; the last column uses its median.\n")
head(USES)
for what, group in groupby(uses, lambda row: row["what"]):
    group = list(group)
    line([what, len(group), *times(group)])
print()
head(PRODUCTS)
for (what, bits), group in groupby(products, lambda row: (row["what"], row["bits"])):
    group = list(group)
    m, n, k = (int(group[0][name]) for name in ("m", "n", "k"))
    kernel = ", ".join(re.findall(r'"([^"]+)"', group[0]["kernel"]))
    rate = m * n * k / statistics.median(values(group, "processor_ms")) / 1e6
    line([what, f"`{kernel}`", group[0]["threads"], f"{m} x {n} x {k}, {bits}", *times(group), f"{rate:.2f}"])
