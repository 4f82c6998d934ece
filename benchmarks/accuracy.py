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
Row = tuple[int, str, bool, Verdict, bool, str, str, str]
# what a pair asks for: an answer, one that gives something up, one that only a person can choose, or a refusal
ANSWER, LOSS, CHOICE, NONE = "answer", "loss", "choice", "none"


def row(job: tuple[int, bool]) -> Row:
    """What one process tells of one pair in one mode."""
    torch.set_num_threads(1)
    found = judged(*job)
    pair = found.pair
    asks = CHOICE if pair.choice else ANSWER if pair.answers else LOSS if pair.with_loss else NONE
    return (job[0], found.family, job[1], found.verdict, found.repaired, asks, pair.what, found.why)


def table(rows: list[Row]) -> None:
    """One line a family."""
    columns = list(Verdict)
    print(f"\n{'family':32}" + "".join(f"{each:>10}" for each in ("right", "+ command", "refused", "wrong", "crash")))
    for name in [*FAMILIES, "all"]:
        counts = Counter(each[3] for each in rows if name in (each[1], "all"))
        print(f"{name:32}" + "".join(f"{counts[each] or '·':>10}" for each in columns))
    shares(rows)


def shares(rows: list[Row]) -> None:
    """How many were repaired of what this mode may answer, of all that have an answer, and of those with choices, too.

    Without ``--unsafe-fixes`` nothing may be written that gives something up, and in neither mode what is a choice.
    """
    unsafe = any(each[2] for each in rows)
    may = (ANSWER, LOSS) if unsafe else (ANSWER,)
    counted = (
        ("pairs that this mode may answer", may),
        ("all that have an answer that a program can know, with or without loss", (ANSWER, LOSS)),
        ("these and those of which only a person can choose the answer", (ANSWER, LOSS, CHOICE)),
    )
    print()
    for what, asks in counted:
        some = [each for each in rows if each[5] in asks]
        repaired = sum(each[4] for each in some)
        print(f"repaired, of {what}: {repaired:,} of {len(some):,} ({100 * repaired / max(len(some), 1):.1f} %)")
    refused = [each for each in rows if each[5] in (ANSWER, LOSS, CHOICE) and not each[4]]
    commands = sum(each[3] is Verdict.COMMAND for each in refused)
    print(f"of the {len(refused):,} that were refused and have an answer, a printed command finishes {commands:,}")
    if not unsafe:
        counts = Counter(each[5] for each in rows)
        print(f"the pairs: {counts[ANSWER]:,} with an answer, {counts[LOSS]:,} with one that gives something up, "
              f"{counts[CHOICE]:,} that are a person's choice, {counts[NONE]:,} without an answer")  # fmt: skip


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
