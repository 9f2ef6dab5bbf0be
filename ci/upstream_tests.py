"""Runs upstream's own unittest files and writes one line for each test as it ends.

usage: upstream_tests.py run RESULTS.tsv FILE[:PATTERN]...
       upstream_tests.py table RESULTS.tsv...

`run` leaves out the tests that RESULTS.tsv has already. `table` prints Markdown.
"""

import importlib
import os
import platform
import sys
import time
import traceback
import unittest
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

COLUMNS = ("file", "tests in file", "test", "outcome", "seconds", "subtests failed", "reason")
# Every test starts from this seed, so that a result does not depend on the tests before it.
SEED = 0


class Recorder(unittest.TestResult):
    """Appends a line to the results for each finished test."""

    def __init__(self, mx, out, total):
        super().__init__()
        self.mx, self.out, self.total = mx, out, total

    def startTest(self, test):
        super().startTest(test)
        self.outcome, self.reason, self.subtests = "pass", "", 0
        self.mx.random.seed(SEED)
        self.started = time.monotonic()

    def stopTest(self, test):
        seconds = f"{time.monotonic() - self.started:.1f}"
        file, _, name = test.id().partition(".")
        row = (file, self.total, name, self.outcome, seconds, self.subtests, self.reason)
        for out in (self.out, sys.stderr):
            print(*row, sep="\t", file=out, flush=True)
        super().stopTest(test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note("fail", err)

    def addError(self, test, err):
        super().addError(test, err)
        self.note("error", err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome, self.reason = "skip", one_line(reason)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.subtests += 1
            failed = issubclass(err[0], test.failureException)
            self.note("fail" if failed else "error", err, f"{subtest._subDescription()} ")

    def note(self, outcome, err, where=""):
        self.outcome = outcome
        # The first reason names the cause; later ones mostly follow from it.
        if not self.reason:
            line = traceback.extract_tb(err[2])[-1].lineno
            self.reason = one_line(f"{where}line {line}: {err[0].__name__}: {err[1]}")
        traceback.print_exception(*err, file=sys.stderr)


def one_line(text):
    return " ".join(str(text).split())[:300]


def tests_of(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests_of(item)
        else:
            yield item


def read(results):
    if not Path(results).exists():
        return []
    lines = Path(results).read_text(encoding="utf-8").splitlines()
    return [dict(zip(COLUMNS, line.split("\t"))) for line in lines]


def run(results, specs):
    import mlx.core as mx

    done = {f"{row['file']}.{row['test']}" for row in read(results)}
    with open(results, "a", encoding="utf-8") as out:
        for spec in specs:
            file, _, pattern = spec.partition(":")
            path = Path(file)
            sys.path.insert(0, str(path.parent))
            module = importlib.import_module(path.stem)
            tests = list(tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)))
            recorder = Recorder(mx, out, len(tests))
            for test in tests:
                if fnmatch(test.id(), f"*{pattern}*") and test.id() not in done:
                    test.run(recorder)
    mx.clear_streams()
    return 1 if any(row["outcome"] in ("fail", "error") for row in read(results)) else 0


def table(files):
    print(f"Host: {platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}.")
    print("\n| device | file | tests | passed | skipped | failed | not run | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    reasons, passed = [], []
    for name in files:
        rows = read(name)
        device = Path(name).stem.removeprefix("applegpu_")
        for file in dict.fromkeys(row["file"] for row in rows):
            mine = [row for row in rows if row["file"] == file]
            total = int(mine[0]["tests in file"])
            count = Counter(row["outcome"] for row in mine)
            failed = count["fail"] + count["error"]
            seconds = sum(float(row["seconds"]) for row in mine)
            cells = [device, f"`{file}.py`", total, count["pass"], count["skip"], failed]
            cells += [total - len(mine), f"{seconds:.0f}"]
            print("| " + " | ".join(map(str, cells)) + " |")
            names = (row["test"].split(".")[-1] for row in mine if row["outcome"] == "pass")
            passed.append(f"Passed on {device}: {', '.join(f'`{name}`' for name in sorted(names))}.")
            reasons += [(device, row) for row in mine if row["outcome"] != "pass"]
    for line in passed:
        print(f"\n{line}")
    if reasons:
        print("\n| device | test | outcome | reason |\n| --- | --- | --- | --- |")
    for device, row in reasons:
        reason = row["reason"].replace("|", "\\|")
        print(f"| {device} | `{row['test']}` | {row['outcome']} | {reason} |")
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", results, *specs] if specs:
            sys.exit(run(results, specs))
        case ["table", *files] if files:
            sys.exit(table(files))
        case _:
            print(__doc__, file=sys.stderr)
            sys.exit(2)
