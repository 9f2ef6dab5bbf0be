"""Reads ncu's raw page from standard input and keeps the requested metrics: one row per launch, in order."""

import csv
import sys

kept = ("gpu__time", "dram__", "sm__", "smsp__", "launch__grid_size", "launch__registers_per_thread")
reader = csv.DictReader(sys.stdin)
columns = [name for name in reader.fieldnames if name.startswith(kept)]
units = next(reader)
out = csv.writer(sys.stdout, lineterminator="\n")
out.writerow(["kernel"] + [f"{name} [{units[name]}]" if units[name] else name for name in columns])
for row in reader:
    out.writerow([row["Kernel Name"].split("(")[0]] + [row[name].replace(",", "") for name in columns])
