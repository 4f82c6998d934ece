"""How ``check`` and ``fix --strip-module`` grow with the number of tensors, from a hundred to a million.

``python benchmarks/growth.py FOLDER [MOST]``: the folder needs 1 GB; files stay there for the next run. Each line says
what a tensor costs beyond the smallest file, in microseconds: the same on every line where the growth is linear. The
slope is that of the straight line through all sizes, of least squares. Seconds are those of the processor, which other
work on the machine changes least: medians of three runs, and of one for more than 10,000 tensors. A ``.pt`` has at most
400,000 tensors here, for an archive of more than 500,000 records is refused. All of it takes some twenty minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import files
from measure import Measured, ckptdoctor, side_by_side
from measure import once as run_once

COUNTS = (100, 1_000, 10_000, 100_000, 1_000_000)
MOST_RECORDS = 400_000
ONCE_BEYOND = 10_000  # more tensors than this are measured once, without a warm-up: the slope is theirs anyway


def slope(counts: Sequence[int], seconds: Sequence[float]) -> float:
    """Seconds for each tensor: of the straight line that is nearest to all of these."""
    middle, mean = sum(counts) / len(counts), sum(seconds) / len(seconds)
    both = zip(counts, seconds, strict=True)
    return sum((x - middle) * (y - mean) for x, y in both) / sum((x - middle) ** 2 for x in counts)


def grown(title: str, counts: Sequence[int], measured: Callable[[int], Measured]) -> None:
    """Measure one command on files of every size, and print the table with its slope."""
    print(f"\n{title}")
    seconds: list[float] = []
    for count in counts:
        found = measured(count)
        seconds.append(found.cpu)
        each = f"{1e6 * (seconds[-1] - seconds[0]) / count:7.1f} µs each" if count > counts[0] else ""
        print(f"  {count:>9,} tensors  {seconds[-1]:8.3f} s  {found.peak_mb:7.0f} MB  {each}", flush=True)
    print(f"  slope {1e6 * slope(counts, seconds):.1f} µs a tensor")


def once(folder: Path, recipe: Callable[..., Path], fixed: bool, count: int) -> Measured:
    """One command on a file of so many tensors, in whole processes."""
    path = files.made(folder, recipe, count)
    output = folder / f"output{path.suffix}"
    command = (
        ckptdoctor("fix", str(path), "--strip-module", "-o", str(output)) if fixed else ckptdoctor("check", str(path))
    )
    before = partial(output.unlink, missing_ok=True)
    if count <= ONCE_BEYOND:
        found = side_by_side({"": command}, rounds=3, before=before)[""]
    else:
        before()
        found = run_once(command)
    before()
    return found


def main(folder: Path, most: int) -> None:
    """Print the growth of each command on each container."""
    for recipe, limit in ((files.many_tensors_pt, MOST_RECORDS), (files.many_tensors_safetensors, COUNTS[-1])):
        counts = sorted({min(count, limit) for count in COUNTS if count <= most})
        suffix = "." + recipe.__name__.rpartition("_")[2]
        grown(f"check {suffix}", counts, partial(once, folder, recipe, False))
        grown(f"fix --strip-module {suffix}", counts, partial(once, folder, recipe, True))


if __name__ == "__main__":
    given = sys.argv[1:]
    main(Path(given[0] if given else "benchmark_files"), int(given[1]) if len(given) > 1 else COUNTS[-1])
