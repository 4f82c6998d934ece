"""Audits stores that are computed from their names: how fast, how much memory, how large the database.

``python benchmarks/store_scale.py [RUNS]``: so many runs (500) of 20 checkpoints, on all processors. The second audit
finds everything unchanged. Nothing is read from a disk: the figures are those of listing, examining and writing.
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


def main() -> None:
    """Print a row for the first and the second audit, and what it took of the store."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare = f"from pathlib import Path; from tests.stores.simulated import installed; installed(Path({name!r}))"
        subprocess.run(
            [sys.executable, "-c", prepare], cwd=ROOT, check=True
        )  # with torch, which this one does not need
        store = f"simulated://5-{runs}-{PER}"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), name]), "SIMULATED_STORE": name}
        print(f"{runs * PER:,} checkpoints, {os.cpu_count()} processors")
        for which in ("first", "second"):
            line = [sys.executable, "-m", "ckptdoctor", "audit", store, "-o", str(folder / "store.db"), "-q"]
            started = perf_counter()
            process = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL)
            _, status, used = os.wait4(process.pid, 0)
            seconds = perf_counter() - started
            if os.waitstatus_to_exitcode(status) not in (0, 1):
                raise SystemExit(f"audit ended with {status}")
            size = (folder / "store.db").stat().st_size
            print(
                f"{which:6}  {seconds:7.1f} s  {runs * PER / seconds:7,.0f}/s  {used.ru_maxrss / 1e3:5.0f} MB  "
                f"database {size / 1e6:.1f} MB, {size / runs / PER:,.0f} bytes each"
            )
        with closing(sqlite3.connect(folder / "store.db")) as rows:
            found = rows.execute("SELECT path, level IS NOT NULL, step FROM checkpoint").fetchall()
        wrong = [path for path, valid, step in found if (bool(valid), step) != truth(path)]
        print(f"{len(wrong):,} of {len(found):,} differ from what was planted")
    print(f"largest process below: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3:.0f} MB")
    _requests()


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
