"""Runs upstream's unittest files for ci/quantized-outputs.sh.

usage: quantized_outputs.py FILE[:PATTERN]...

Names each test in the list (RECORD_OUTPUTS) before the library adds the test's outputs to it.
"""

import importlib
import os
import sys
import unittest
from fnmatch import fnmatch
from pathlib import Path

import mlx.core as mx


def tests_of(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests_of(item)
        else:
            yield item


def main(specs):
    result = unittest.TestResult()
    for spec in specs:
        file, _, pattern = spec.partition(":")
        path = Path(file)
        sys.path.insert(0, str(path.parent))
        module = importlib.import_module(path.stem)
        for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)):
            if not fnmatch(test.id(), f"*{pattern}*"):
                continue
            with open(os.environ["RECORD_OUTPUTS"], "a", encoding="utf-8") as out:
                print(f"# {test.id()}", file=out)
            mx.random.seed(0)
            test.run(result)
            print(test.id(), file=sys.stderr, flush=True)
    for test, text in result.failures + result.errors:
        print(f"{test.id()}\n{text}", file=sys.stderr)
    mx.clear_streams()
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
