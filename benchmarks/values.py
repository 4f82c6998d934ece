"""Every value of 2 GB in the page cache: the scan for NaN, full statistics and checksums, against one ``sum()``.

All sides map the file anew, as a process does that has just started.

``python benchmarks/values.py FOLDER``: the folder needs 4 GB of real space; files stay there for the next run. All
sides take turns in one process. Wall clock is what counts on a quiet machine; CPU seconds of
all threads tell more on a busy one. Reach: the scan within 1.5 times ``sum()`` and 8 times as fast as ``isnan().any()
or isinf().any()``; full statistics within 3 times the scan.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import files
import torch

import ckptdoctor
from ckptdoctor import formats
from ckptdoctor.facts.integrity import examine_integrity
from ckptdoctor.values.examine import examine_values

ROUNDS = 5


def weights(folder: Path, dtype: torch.dtype) -> Path:
    """A 2 GB torch zip of 300 tensors with values as weights have them."""
    path = folder / f"weights_{str(dtype).removeprefix('torch.')}.pt"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        each = files.TWO_GB // dtype.itemsize // files.LAYERS
        keys = [f"layers.{number}.weight" for number in range(files.LAYERS)]
        torch.save({key: (torch.randn(each) * 0.02).to(dtype) for key in keys}, path)
    return path


def mapped(path: Path) -> list[torch.Tensor]:
    """The tensors, of which nothing is read yet."""
    return list(ckptdoctor.load(path).values())


def naive(tensors: list[torch.Tensor]) -> bool:
    """What scripts do: both are asked of every tensor that is healthy."""
    return any(bool(each.isnan().any()) or bool(each.isinf().any()) for each in tensors)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of wall clock, and CPU seconds of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def compare(path: Path) -> None:
    """Print every side's seconds, and how many times as long as ``sum()`` it takes."""
    nbytes = sum(each.nbytes for each in mapped(path))
    with formats.opened(str(path)) as (source, container):
        checkpoint = formats.read(source, container)
        sides: dict[str, Callable[[], object]] = {
            "sum()": lambda: [each.sum() for each in mapped(path)],
            "scan for NaN and infinities": lambda: examine_values(checkpoint, source, only_finite=True),
            "full statistics": lambda: examine_values(checkpoint, source),
            "isnan().any() or isinf().any()": lambda: naive(mapped(path)),
            "checksums": lambda: examine_integrity(checkpoint, source),
        }
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for turn in range(ROUNDS + 1):
            for name, work in sides.items():
                measured = timed(work)
                if turn:
                    runs[name].append(measured)
    show(f"{path.name}, {torch.get_num_threads()} threads", runs, nbytes)


def show(title: str, runs: dict[str, list[tuple[float, float]]], nbytes: int) -> None:
    """Print medians."""
    medians = {name: [statistics.median(column) for column in zip(*each, strict=True)] for name, each in runs.items()}
    first = medians["sum()"]
    print(f"\n{title}")
    for name, (wall, cpu) in medians.items():
        ratios = f"×{wall / first[0]:.2f}   {cpu:6.3f} s CPU  ×{cpu / first[1]:.2f}"
        print(f"  {name:<34} {wall:7.3f} s  {nbytes / wall / 1e9:5.1f} GB/s  {ratios}")
    sys.stdout.flush()


def main(folder: Path) -> None:
    """Both dtypes."""
    for dtype in (torch.float32, torch.bfloat16):
        compare(weights(folder, dtype))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"))
