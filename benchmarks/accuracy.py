"""How often ``fix --auto`` is right, refuses, and is wrong: ``python benchmarks/accuracy.py [PAIRS [FIRST]]``.

Over pairs of a broken checkpoint and a target of which the truth is known (``tests/pairs``), in both modes.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections import Counter

import torch

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests.pairs.judge import FAMILIES, Verdict, judged

PAIRS = 1_200
PROCESSES = 2
Row = tuple[int, str, bool, Verdict, bool, bool, str, str]


def row(job: tuple[int, bool]) -> Row:
    """What one process tells of one pair in one mode."""
    torch.set_num_threads(1)
    found = judged(*job)
    what = found.pair.what
    return (*job[:1], found.family, job[1], found.verdict, found.repaired, found.pair.answerable, what, found.why)


def table(rows: list[Row]) -> None:
    """One line a family."""
    columns = list(Verdict)
    print(f"\n{'family':32}" + "".join(f"{each:>10}" for each in ("right", "+ command", "refused", "wrong", "crash")))
    for name in [*FAMILIES, "all"]:
        counts = Counter(each[3] for each in rows if name in (each[1], "all"))
        print(f"{name:32}" + "".join(f"{counts[each] or '·':>10}" for each in columns))
    with_answer = [each for each in rows if each[5]]
    repaired = sum(each[4] for each in with_answer)
    print(f"\nrepaired, of those with an answer: {repaired:,} of {len(with_answer):,} "
          f"({100 * repaired / max(len(with_answer), 1):.1f} %)")  # fmt: skip


def main() -> int:
    """Both tables, the share that was repaired, and the wrong ones with the command that shows each."""
    count, first = (*map(int, sys.argv[1:]), *(PAIRS, 0)[len(sys.argv) - 1 :])
    began, rows = time.perf_counter(), []
    jobs = [(number, unsafe) for number in range(first, first + count) for unsafe in (False, True)]
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        rows = list(pool.imap_unordered(row, jobs, chunksize=16))
    for unsafe in (False, True):
        print(f"\n--unsafe-fixes, {count:,} pairs" if unsafe else f"plain, {count:,} pairs", end="")
        table([each for each in rows if each[2] is unsafe])
    bad = sorted([each for each in rows if each[3] in (Verdict.WRONG, Verdict.CRASH)], key=lambda each: each[:3])
    print(f"\n{len(bad):,} wrong or crashed, {time.perf_counter() - began:.0f} s")
    for number, family, unsafe, verdict, *_, what, why in bad:
        print(f"  python -m tests.pairs {number:<5} {'unsafe' if unsafe else 'plain ':6} {verdict.value:6} {family:24} "
              f"{what[:90]} · {why}")  # fmt: skip
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
