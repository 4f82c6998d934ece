"""Audits stores that are computed from their names: how fast, how much memory, how large the database.

``python benchmarks/store_scale.py [RUNS]``: so many runs (500) of 20 checkpoints, on all processors. The second audit
finds everything unchanged. Nothing is read from a disk: the figures are those of listing, examining and writing.
"""

from __future__ import annotations

import os
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
LATE = 30  # runs of a store that answers late


def main() -> None:
    """Print a row for the first and the second audit, what it took of the store, and how more processes help."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare = f"from pathlib import Path; from tests.stores.simulated import installed; installed(Path({name!r}))"
        subprocess.run(
            [sys.executable, "-c", prepare], cwd=ROOT, check=True
        )  # with torch, which this one does not need
        os.environ |= {"PYTHONPATH": os.pathsep.join([str(ROOT), name]), "SIMULATED_STORE": name}
        print(f"{runs * PER:,} checkpoints, {os.cpu_count()} processors")
        for which in ("first", "second"):
            seconds, peak = _audit(f"simulated://5-{runs}-{PER}", folder / "store.db")
            size = (folder / "store.db").stat().st_size
            print(
                f"{which:6}  {seconds:7.1f} s  {runs * PER / seconds:7,.0f}/s  {peak / 1e3:5.0f} MB  "
                f"database {size / 1e6:.1f} MB, {size / runs / PER:,.0f} bytes each"
            )
        with closing(sqlite3.connect(folder / "store.db")) as rows:
            found = rows.execute("SELECT path, level IS NOT NULL, step FROM checkpoint").fetchall()
        wrong = [path for path, valid, step in found if (bool(valid), step) != truth(path)]
        print(f"{len(wrong):,} of {len(found):,} differ from what was planted")
        _latency(folder)
    _requests()


def _audit(store: str, output: Path, *options: str) -> tuple[float, int]:
    """Return the seconds of an audit, and the most memory of its first process in kB."""
    line = [sys.executable, "-m", "ckptdoctor", "audit", store, "-o", str(output), "-q", *options]
    started = perf_counter()
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"audit ended with {status}")
    return perf_counter() - started, used.ru_maxrss


def _latency(folder: Path) -> None:
    """Print how much faster more processes are where each request takes 50 ms; listing is the work of one."""
    os.environ["SIMULATED_LATENCY"] = "0.05"
    alone = 0.0
    for jobs in (1, 2, 4, 8):
        seconds, _ = _audit(f"simulated://5-{LATE}-{PER}", folder / f"late{jobs}.db", "--jobs", str(jobs))
        alone = alone or seconds
        print(
            f"50 ms a request, {jobs} processes: {seconds:6.1f} s, {alone / seconds / jobs:.2f} of {jobs} times as fast"
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
