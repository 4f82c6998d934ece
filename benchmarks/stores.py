"""``ckptdoctor audit`` over stores of many checkpoints: checkpoints a second, memory, and the size of the database.

``python benchmarks/stores.py FOLDER [COUNT]``: files are links to a few hundred whose bytes differ, so that COUNT
(20,000) of them take little room, and what is remembered of one file does not help with the next. Reach, on two cores:
600 checkpoints a second, at most 300 MB of memory, and a second run without changes in at most 60 s for 10^6
checkpoints.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from measure import ckptdoctor, once

PER_RUN = 100
DISTINCT = 300  # files of each kind: a training saves one after another, and each step changes all of it


def main(folder: Path, count: int) -> None:
    """Print the figures of each kind of checkpoint."""
    parts = folder / "parts"
    if not (parts / ".made").exists():  # torch is imported in a process of its own
        subprocess.run([sys.executable, __file__, "--parts", str(parts)], check=True)
    print("  kind                                           first run   a second     memory   database   second run")
    for name in ("weights.pt", "training.pt", "small.safetensors"):
        store = _made(folder / name.replace(".", "_"), [parts / str(at) / name for at in range(DISTINCT)], count)
        database = folder / f"{name}.db"
        database.unlink(missing_ok=True)
        command = ckptdoctor("audit", "-q", store, "-o", str(database))
        first, second = once(command), once(command)
        size = database.stat().st_size
        print(
            f"  {count:,} x {name:<34} {first.seconds:9.1f} s {count / first.seconds:10,.0f} {first.peak_mb:7,.0f} MB "
            f"{size / count:6,.0f} B each {second.seconds:8.2f} s ({first.cpu / count * 1e3:.2f} ms of processor each)"
        )


def _write_parts(folder: Path) -> None:
    """What the stores are made of: weights alone, what a training saves, and a file of safetensors."""
    import safetensors.torch
    import torch

    network = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(8)])
    optimizer = torch.optim.Adam(network.parameters())
    for at in range(DISTINCT):
        optimizer.param_groups[0]["lr"] = 0.001 * (1 - at / DISTINCT)  # as a schedule changes it
        optimizer.zero_grad()
        network(torch.randn(8, 64)).square().sum().backward()
        optimizer.step()
        made = folder / str(at)
        made.mkdir(parents=True, exist_ok=True)
        torch.save(network.state_dict(), made / "weights.pt")
        torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict()}, made / "training.pt")
        safetensors.torch.save_file(network.state_dict(), made / "small.safetensors")
    (folder / ".made").touch()


def _made(store: Path, parts: list[Path], count: int) -> str:
    if not (store / ".made").exists():
        for at in range(count):
            run = store / f"run{at // PER_RUN}"
            run.mkdir(parents=True, exist_ok=True)
            part = parts[at % len(parts)]
            os.link(part, run / f"step_{at}{part.suffix}")
        (store / ".made").touch()
    return str(store)


if __name__ == "__main__" and sys.argv[1:2] == ["--parts"]:
    _write_parts(Path(sys.argv[2]))
elif __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20_000)
