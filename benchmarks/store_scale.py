"""Audits stores that are computed from their names: how fast, how much memory, how large the database.

``python benchmarks/store_scale.py [RUNS [PER]]``: so many runs (500) of 20 checkpoints, on all processors. The second
audit finds everything unchanged. Nothing is read from a disk: the figures are those of listing, examining and writing.
``python benchmarks/store_scale.py --late [RUNS]``: how much 4 and 8 processes help where each request takes 50 ms, with
so many runs (75, five minutes where nothing else runs); a small store would be examined before all of the processes
have started. What processors have to do is what no number of processes shortens: that is printed next to it.
"""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.stores.simulated import SimulatedStore, installed, truth  # noqa: E402 - the root of the tree comes first

PER = 20
LATE = 75  # runs of a store that answers late


def main() -> None:
    """Print a row for the first and the second audit, and what they took of the store; or how more processes help."""
    late = sys.argv[1:2] == ["--late"]
    numbers = [int(each) for each in sys.argv[1 + late :]]
    runs, per = (*numbers, *(LATE if late else 500, PER)[len(numbers) :])[:2]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare = f"from pathlib import Path; from tests.stores.simulated import installed; installed(Path({name!r}))"
        subprocess.run(
            [sys.executable, "-c", prepare], cwd=ROOT, check=True
        )  # with torch, which this one does not need
        os.environ |= {"PYTHONPATH": os.pathsep.join([str(ROOT), name]), "SIMULATED_STORE": name}
        print(f"{runs * per:,} checkpoints, {os.cpu_count()} processors", flush=True)
        if late:
            _latency(folder, f"simulated://5-{runs}-{per}")
            return
        for which in ("first", "second"):
            seconds, used = _audit(f"simulated://5-{runs}-{per}", folder / "store.db")
            size = (folder / "store.db").stat().st_size
            cpu = used.ru_utime + used.ru_stime
            print(
                f"{which:6}  {seconds:7.1f} s  {runs * per / seconds:7,.0f}/s  {cpu:7.1f} s of processors  "
                f"{used.ru_maxrss / 1e3:5.0f} MB  database {size / 1e6:.1f} MB, {size / runs / per:,.0f} bytes each",
                flush=True,
            )
        with closing(sqlite3.connect(folder / "store.db")) as rows:
            found = rows.execute("SELECT path, level IS NOT NULL, step FROM checkpoint")
            wrong = sum((bool(valid), step) != truth(path) for path, valid, step in found)
        print(f"{wrong:,} differ from what was planted")
    _requests()


def _audit(store: str, output: Path, *options: str) -> tuple[float, resource.struct_rusage]:
    """Return the seconds of an audit, and what it used: the memory of its largest process, the time of all."""
    line = [sys.executable, "-m", "ckptdoctor", "audit", store, "-o", str(output), "-q", *options]
    started = perf_counter()
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"audit ended with {status}")
    return perf_counter() - started, used


def _latency(folder: Path, store: str) -> None:
    """Print how much faster more processes are where each request takes 50 ms."""
    os.environ["SIMULATED_LATENCY"] = "0.05"
    alone = 0.0
    for jobs in (1, 8, 4):
        seconds, used = _audit(store, folder / f"late{jobs}.db", "--jobs", str(jobs))
        alone = alone or seconds
        busy = (used.ru_utime + used.ru_stime) / (os.cpu_count() or 1)
        print(
            f"50 ms a request, {jobs} processes: {seconds:6.1f} s, {alone / seconds / jobs:.2f} of {jobs} times as "
            f"fast; all processors were busy with it for {busy:.1f} s, {busy / seconds:.0%} of the time",
            flush=True,
        )
    del os.environ["SIMULATED_LATENCY"]


def _requests() -> None:
    """Print how many requests a checkpoint takes, by an audit in this process."""
    from tests.stores.asked import audited

    with tempfile.TemporaryDirectory() as name:
        installed(Path(name))
        done = audited("simulated://5-30-20", output=Path(name) / "store.db")
    for what, number in SimulatedStore.requests.items():
        print(f"{what:4}  {number / done.listed:.2f} requests a checkpoint")


if __name__ == "__main__":
    main()
