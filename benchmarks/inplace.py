"""``fix --in-place`` of sparse files and shards of 100 GB, shorter and longer names, against ``cp`` of 2 GB and torch.

``python benchmarks/inplace.py FOLDER``: the folder needs 7 GB of real space on a file system with holes. The bytes
are those that the system counts for the process (``/proc/PID/io``), not those that the report tells.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import files
from fix import TORCH
from measure import ckptdoctor, python

ROUNDS = 5
LONGER = "a.much.longer.prefix.than.there.is.room.for."


def main(folder: Path) -> None:
    """Print seconds and bytes for each, the median of some rounds; each change is undone again."""
    for recipe in (files.hundred_gb_pt, files.hundred_gb_safetensors, files.hundred_gb_shards):
        path = files.made(folder, recipe)
        for name, options in (
            ("shorter names", ["--rename", r"layers\.=l."]),
            ("longer names", ["--add-prefix", LONGER]),
        ):
            runs = []
            for _ in range(ROUNDS):
                runs.append(counted(ckptdoctor("fix", str(path), "--in-place", *options)))
                undone = counted(ckptdoctor("undo", str(path)))
            tell(f"sparse 100 GB {path.suffix or 'in 20 shards'}, {name}", sorted(runs)[ROUNDS // 2])
            tell("  undo", undone)
    dense, output = files.made(folder, files.two_gb_pt), folder / "output.pt"
    tell("cp of a dense 2 GB .pt, then sync", counted(["sh", "-c", f"cp '{dense}' '{output}' && sync '{output}'"]))
    tell("torch.load, rename, torch.save, sync", counted(python(TORCH, str(dense), str(output))))
    output.unlink()


def counted(command: list[str]) -> tuple[float, int]:
    """Seconds, and bytes that the process and its children caused to be written to the disk."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, but its counters are still there
        seconds = time.perf_counter() - started
        counts = dict(line.split(": ") for line in Path(f"/proc/{process.pid}/io").read_text().splitlines())
    if process.returncode not in (0, 1):
        raise subprocess.CalledProcessError(process.returncode, command)
    return seconds, int(counts["write_bytes"])


def tell(what: str, measured: tuple[float, int]) -> None:
    """Print one line."""
    print(f"  {what:<46} {measured[0]:8.3f} s  {measured[1]:>13,} bytes written", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"))
