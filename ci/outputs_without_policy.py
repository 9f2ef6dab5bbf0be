"""Runs upstream's unittest files for ci/outputs-without-policy.sh.

usage: outputs_without_policy.py FILE[:PATTERN]...

Names each test in the list (RECORD_OUTPUTS) before the library adds the test's outputs to it.
"""

import os
import sys
import unittest

import mlx.core as mx
from upstream_tests import SEED, load


def main(specs):
    result = unittest.TestResult()
    for spec in specs:
        for test in load(spec)[1]:
            with open(os.environ["RECORD_OUTPUTS"], "a", encoding="utf-8") as out:
                print(f"# {test.id()}", file=out)
            mx.random.seed(SEED)
            test.run(result)
            print(test.id(), file=sys.stderr, flush=True)
    for test, text in result.failures + result.errors:
        print(f"{test.id()}\n{text}", file=sys.stderr)
    mx.clear_streams()
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
