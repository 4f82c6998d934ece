"""Test accuracy of LeNet in every strategy on 1, 2 and 4 workers: ``python benchmarks/train_accuracy.py [data …]``.

On the CPU replicas are virtual: this measures that every strategy learns as well as one device, not how fast.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ckptdoctor.trainer.config import STRATEGIES
from ckptdoctor.trainer.progress.metrics import read

EPOCHS = {"shapes": 3, "mnist5k": 6}
WORKERS = (1, 2, 4)


def trained(data: str, strategy: str, world_size: int) -> float:
    """The accuracy after the last epoch."""
    with tempfile.TemporaryDirectory() as out:
        epochs = str(EPOCHS[data])
        words = ["--data", data, "--strategy", strategy, "--world-size", str(world_size), "--device", "cpu"]
        command = [sys.executable, "-m", "ckptdoctor", "train", *words, "--epochs", epochs, "--every", epochs]
        subprocess.run([*command, "--out", str(Path(out) / "run")], check=True, stdout=subprocess.DEVNULL)
        done = [each for each in read(Path(out) / "run/metrics.jsonl") if each["event"] == "EpochDone"]
    return float(done[-1]["test_accuracy"])


def main() -> None:
    """One line a strategy."""
    for data in sys.argv[1:] or list(EPOCHS):
        print(f"{data}, {EPOCHS[data]} epochs", flush=True)
        for strategy in STRATEGIES:
            began = time.perf_counter()
            sizes = WORKERS[:1] if strategy == "single" else WORKERS
            figures = "   ".join(f"{size}: {trained(data, strategy, size):.3f}" for size in sizes)
            print(f"  {strategy:11} {figures}   ({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
