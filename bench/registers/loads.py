"""Counts the loads of packed weights in each candidate's optimised code: LLVM's text on standard input.

Loads are told apart by the type that the compiler notes at each (TBAA): no other data are char, short or int.
"""

import re
import sys
from collections import Counter

text = sys.stdin.read()
access = dict(re.findall(r"^!(\d+) = !\{!(\d+), !\d+, i64 0\}", text, re.M))
names = dict(re.findall(r'^!(\d+) = !\{!"([^"]+)"', text, re.M))
counts = Counter()
function = None
for line in text.splitlines():
    if found := re.match(r"define .*@(b\d+_v\d+_\w+)\(", line):
        function = found[1]
    elif found := re.search(r"= load (.*?), ptr.*!tbaa !(\d+)", line):
        # Four values of x at once are no short.
        if "half" not in found[1] and names.get(access.get(found[2])) in ("omnipotent char", "short", "int"):
            counts[function] += 1
for name, count in counts.items():
    print(name, count, "loads of weights")
