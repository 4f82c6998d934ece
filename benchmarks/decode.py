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

# prints the seconds of the work alone
TIMED = """
import sys, time
{setup}
start = time.perf_counter()
{work}
print(time.perf_counter() - start)
"""
# prints the bytes that Python had allocated at the peak of decoding, apart from the pickle itself
PEAK = """
import sys, tracemalloc
from ckptdoctor.pickles import decode
data = open(sys.argv[1], 'rb').read()
tracemalloc.start()
pickle = decode(data)
print(tracemalloc.get_traced_memory()[1])
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


def told(code: str, *arguments: str) -> float:
    """The number that a fresh process prints."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True)
    return float(done.stdout)


def main(folder: Path) -> None:
    """Print each side's seconds, and both ratios."""
    checkpoint = files.made(folder, files.many_tensors_pt)
    pickle = checkpoint.with_suffix(".pkl")
    with zipfile.ZipFile(checkpoint) as archive:
        pickle.write_bytes(archive.read(f"{checkpoint.stem}/data.pkl"))
    runs: dict[str, list[float]] = {"decode": [], "prove": [], "torch.load to meta": []}
    for _ in range(ROUNDS):
        runs["decode"].append(told(DECODE, str(pickle)))
        runs["prove"].append(told(PROVE, str(pickle)))
        runs["torch.load to meta"].append(told(LOAD, str(checkpoint)))
    loading = statistics.median(runs["torch.load to meta"])
    for name, each in runs.items():
        seconds = statistics.median(each)
        print(f"{name:<20} {seconds:7.3f} s   ×{seconds / loading:.3f} of torch.load")
    size = pickle.stat().st_size
    peak = told(PEAK, str(pickle))
    print(f"peak memory of decode: {peak / size:.1f} times the pickle of {size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"))
