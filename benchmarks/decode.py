"""Decoding the pickle of 50,000 tensors against ``torch.load`` to meta; peak memory against the size of the pickle.

``python benchmarks/decode.py FOLDER``. Each side runs in a fresh process that times the work alone, without imports.
Reach: a fifth of torch's time for decoding (interpreting the graph has to fit into a third), 20 times the pickle.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import zipfile
from pathlib import Path

import files

# prints seconds, and by how many bytes the peak of resident memory grew
TIMED = """
import resource, sys, time
{setup}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
{work}
seconds = time.perf_counter() - start
print(seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""
DECODE = TIMED.format(
    setup="from ckptdoctor.pickles import decode; data = open(sys.argv[1], 'rb').read()", work="pickle = decode(data)"
)
PROVE = TIMED.format(
    setup="from ckptdoctor.pickles import decode, prove; data = open(sys.argv[1], 'rb').read(); pickle = decode(data)",
    work="prove(data, pickle)",
)
LOAD = TIMED.format(
    setup="import io, torch; torch.save([], f := io.BytesIO()); f.seek(0); torch.load(f, weights_only=True)",
    work="state = torch.load(sys.argv[1], map_location='meta', weights_only=True)",
)
ROUNDS = 5


def timed(code: str, *arguments: str) -> tuple[float, float]:
    """Seconds and growth in bytes that a fresh process tells."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True)
    seconds, growth = done.stdout.split()
    return float(seconds), float(growth)


def main(folder: Path) -> None:
    """Print each side's seconds, and both ratios."""
    checkpoint = files.made(folder, files.many_tensors_pt)
    pickle = checkpoint.with_suffix(".pkl")
    with zipfile.ZipFile(checkpoint) as archive:
        pickle.write_bytes(archive.read(f"{checkpoint.stem}/data.pkl"))
    runs: dict[str, list[tuple[float, float]]] = {"decode": [], "prove": [], "torch.load to meta": []}
    for _ in range(ROUNDS):
        runs["decode"].append(timed(DECODE, str(pickle)))
        runs["prove"].append(timed(PROVE, str(pickle)))
        runs["torch.load to meta"].append(timed(LOAD, str(checkpoint)))
    loading = statistics.median(seconds for seconds, _ in runs["torch.load to meta"])
    for name, each in runs.items():
        seconds = statistics.median(seconds for seconds, _ in each)
        print(f"{name:<20} {seconds:7.3f} s   ×{seconds / loading:.3f} of torch.load")
    size = pickle.stat().st_size
    growth = max(growth for _, growth in runs["decode"])
    print(f"peak memory of decode: {growth / size:.1f} times the pickle of {size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"))
