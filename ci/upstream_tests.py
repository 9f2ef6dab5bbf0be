"""Runs upstream's own unittest files and writes one line for each test as it ends.

usage: upstream_tests.py run RESULTS.tsv TREE SECONDS FILE[:PATTERN]...
       upstream_tests.py names FILE[:PATTERN]...
       upstream_tests.py table DOCUMENT RESULTS.tsv...

`run` leaves out the tests that RESULTS.tsv has as passed or skipped on TREE, and ends one that takes
longer than SECONDS. `names` runs the tests without checking anything, for a device whose kernels do
nothing. `table` writes the tables of all results into DOCUMENT, below its marker.
"""

import faulthandler
import importlib
import os
import platform
import subprocess
import sys
import time
import traceback
import unittest
from collections import Counter
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

COLUMNS = ("tree", "file", "tests in file", "test", "outcome", "seconds", "subtests failed", "reason", "cpu", "compilers")
MARKER = "<!-- What follows is written by ci/upstream-tests.sh. -->\n"
# Every test starts from this seed, so that a result does not depend on earlier tests.
SEED = 0
DONE = ("pass", "skip")


def one_line(text):
    return " ".join(str(text).split())[:300]


def read(results):
    if not Path(results).exists():
        return []
    lines = Path(results).read_text(encoding="utf-8").splitlines()
    return [dict(zip(COLUMNS, line.split("\t"))) for line in lines[1:]]


def write(results, rows):
    # Rows of earlier runs have no processor time.
    lines = ["\t".join(COLUMNS)] + ["\t".join(str(row.get(name, "")) for name in COLUMNS) for row in rows]
    partial = Path(f"{results}.new")
    partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    partial.replace(results)


def cpu_seconds():
    """Processor time of this process, and of the compilers that it waited for."""
    times = os.times()
    return times.user + times.system, times.children_user + times.children_system


def name_of(row):
    return f"{row['file']}.{row['test']}"


class Recorder(unittest.TestResult):
    """Writes a row for each finished test, in place of an earlier one."""

    def __init__(self, mx, results, tree, total):
        super().__init__()
        self.mx, self.results, self.tree, self.total = mx, results, tree, total

    def startTest(self, test):
        super().startTest(test)
        self.outcome, self.reason, self.subtests = "pass", "", 0
        self.mx.random.seed(SEED)
        self.started, self.cpu = time.monotonic(), cpu_seconds()
        # The entry if the process does not survive the test.
        self.record(test, "ended", "the process ended")

    def stopTest(self, test):
        self.record(test, self.outcome, self.reason)
        super().stopTest(test)

    def record(self, test, outcome, reason):
        file, _, name = test.id().partition(".")
        seconds = f"{time.monotonic() - self.started:.1f}"
        cpu = [f"{now - then:.1f}" for now, then in zip(cpu_seconds(), self.cpu)]
        values = (self.tree, file, self.total, name, outcome, seconds, self.subtests, reason, *cpu)
        row = dict(zip(COLUMNS, values))
        others = [other for other in read(self.results) if (other["file"], other["test"]) != (file, name)]
        write(self.results, others + [row])
        if outcome != "ended":
            print(*values[1:], sep="\t", file=sys.stderr, flush=True)

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
        # The first reason names the cause; later ones usually follow from it.
        if not self.reason:
            line = traceback.extract_tb(err[2])[-1].lineno
            self.reason = one_line(f"{where}line {line}: {err[0].__name__}: {err[1]}")
        traceback.print_exception(*err, file=sys.stderr)


def tests_of(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests_of(item)
        else:
            yield item


def means(spec, name):
    """Whether FILE[:PATTERN] means the test of that name, such as test_quantized.TestQuantized.test_qmv."""
    file, _, pattern = spec.partition(":")
    return name.startswith(f"{Path(file).stem}.") and fnmatch(name, f"*{pattern}*")


def load(spec):
    """All tests of a file, and those that the specification selects."""
    path = Path(spec.partition(":")[0])
    sys.path.insert(0, str(path.parent))
    module = importlib.import_module(path.stem)
    tests = list(tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)))
    meant = [test for test in tests if means(spec, test.id())]
    if not meant:
        sys.exit(f"{spec}: that pattern selects none of its {len(tests)} tests")
    return tests, meant


def run_here(results, tree, seconds, specs):
    import mlx.core as mx

    # A test that a run has started is not started again, so that a test that ends the process is met only once.
    known = {name_of(row) for row in read(results) if row["tree"] == tree}
    for spec in specs:
        tests, meant = load(spec)
        recorder = Recorder(mx, results, tree, len(tests))
        for test in meant:
            if test.id() not in known:
                faulthandler.dump_traceback_later(seconds, exit=True)
                test.run(recorder)
    faulthandler.cancel_dump_traceback_later()
    mx.clear_streams()


def run(results, tree, seconds, specs):
    kept = [row for row in read(results) if row["tree"] != tree or row["outcome"] in DONE]
    write(results, kept)
    while True:
        began = time.monotonic()
        child = subprocess.run([sys.executable, __file__, "here", results, tree, str(seconds), *specs])
        if child.returncode == 0:
            break
        rows = read(results)
        ended = [row for row in rows if row["outcome"] == "ended"]
        if not ended:
            return 1
        for row in ended:
            signal = child.returncode < 0
            row["outcome"] = "crash" if signal else "timeout"
            row["seconds"] = f"{time.monotonic() - began:.1f}" if signal else f"{seconds:.1f}"
            row["reason"] = f"signal {-child.returncode}" if signal else f"longer than {seconds} s"
        write(results, rows)
    asked = [
        row
        for row in read(results)
        if row["tree"] == tree and any(means(spec, name_of(row)) for spec in specs)
    ]
    return 0 if all(row["outcome"] in DONE for row in asked) else 1


def names_here(first, specs):
    import mlx.core as mx
    import numpy as np

    def evaluate(*values, **_):
        mx.eval([value for value in values if isinstance(value, mx.array)])

    for owner in (unittest.TestCase, np.testing):
        for name in dir(owner):
            if name.startswith("assert") and "Raises" not in name and "Warns" not in name:
                setattr(owner, name, evaluate)
    tests = [test for spec in specs for test in load(spec)[1]]
    for test in tests[first:]:
        print(test.id(), flush=True)
        faulthandler.dump_traceback_later(600, exit=True)
        # Without results a test may end early; the kernels that it needed until then count.
        with suppress(Exception):
            test.run(unittest.TestResult())
    faulthandler.cancel_dump_traceback_later()


def names(specs):
    """A test may end its process, especially if nothing is computed. A new process continues with the next test."""
    begun = 0
    while True:
        command = [sys.executable, __file__, "names-from", str(begun), *specs]
        child = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        tests = child.stdout.splitlines()
        print(child.stdout, end="", file=sys.stderr, flush=True)
        if child.returncode == 0:
            return 0
        if not tests:
            return 1
        print(f"{tests[-1]} ended the process ({child.returncode})", file=sys.stderr, flush=True)
        begun += len(tests)


def processor(rows):
    """Seconds of processor time as text: all of it, and that of the compilers. Rows of earlier runs have none."""
    if not all(row.get("cpu") for row in rows):
        return ["", ""]
    compilers = sum(float(row["compilers"]) for row in rows)
    return [f"{sum(float(row['cpu']) for row in rows) + compilers:.0f}", f"{compilers:.0f}"]


def table(document, files):
    out = [f"Host: {platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}.\n"]
    out.append("| device | file | tree | tests | passed | skipped | failed | not run | seconds | CPU | of compilers |")
    out.append("|" + " --- |" * 11)
    reasons, slow = [], []
    for name in files:
        # A test during which a run was ended has no result.
        rows = [row for row in read(name) if row["outcome"] != "ended"]
        device = Path(name).stem.removeprefix("applegpu_")
        for file, tree in dict.fromkeys((row["file"], row["tree"]) for row in rows):
            mine = [row for row in rows if (row["file"], row["tree"]) == (file, tree)]
            total = int(mine[0]["tests in file"])
            count = Counter(row["outcome"] for row in mine)
            failed = len(mine) - count["pass"] - count["skip"]
            seconds = sum(float(row["seconds"]) for row in mine)
            cells = [device, f"`{file}.py`", tree[:12], total, count["pass"], count["skip"], failed]
            cells += [total - len(mine), f"{seconds:.0f}", *processor(mine)]
            out.append("| " + " | ".join(map(str, cells)) + " |")
            reasons += [(device, row) for row in mine if row["outcome"] != "pass"]
            slow += [(float(row["seconds"]), device, row) for row in mine]
    if reasons:
        out.append("\nNot passed:\n\n| device | test | outcome | reason |\n| --- | --- | --- | --- |")
        for device, row in reasons:
            reason = row["reason"].replace("|", "\\|")
            out.append(f"| {device} | `{row['file']}: {row['test']}` | {row['outcome']} | {reason} |")
    slow = sorted(slow, key=lambda one: -one[0])[:10]
    out.append("\nThe longest:\n\n| device | test | seconds | CPU | of compilers |\n|" + " --- |" * 5)
    for seconds, device, row in slow:
        cells = [device, f"`{row['file']}: {row['test']}`", f"{seconds:.0f}", *processor([row])]
        out.append("| " + " | ".join(cells) + " |")
    path = Path(document)
    head, marker, _ = path.read_text(encoding="utf-8").partition(MARKER)
    if not marker:
        sys.exit(f"{document} lacks the line {MARKER}")
    path.write_text(f"{head}{marker}\n" + "\n".join(out) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", results, tree, seconds, *specs] if specs:
            sys.exit(run(results, tree, float(seconds), specs))
        case ["here", results, tree, seconds, *specs]:
            run_here(results, tree, float(seconds), specs)
        case ["names", *specs] if specs:
            sys.exit(names(specs))
        case ["names-from", first, *specs]:
            names_here(int(first), specs)
        case ["table", document, *files] if files:
            sys.exit(table(document, files))
        case _:
            print(__doc__, file=sys.stderr)
            sys.exit(2)
