"""``ckptdoctor latest`` over runs of 10 to 20,000 checkpoints: whole processes, and how many checkpoints were opened.

``python benchmarks/latest.py FOLDER [ROUNDS]``: the folder needs 500 MB, and its files are links to a few. Reach: at
most 1 s for 20,000 checkpoints of which the newest is intact. Where names contradict contents, all are opened: that is
measured for 1,000.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from measure import ckptdoctor, show, side_by_side

COUNTS = (10, 1_000, 20_000)


def main(folder: Path, rounds: int) -> None:
    """Print the figures of each kind of run."""
    parts = folder / "parts"
    if not (parts / "rng_state.pth").exists():  # by a process of its own: a child's peak begins with its parent's
        subprocess.run([sys.executable, __file__, "--parts", str(parts)], check=True)
    commands = {}
    for count in COUNTS:
        for name, make in (("files of a script", _script), ("folders of the Trainer", _trainer)):
            commands[f"{count:,} {name}"] = _made(folder / f"{make.__name__}_{count}", make, parts, count)
    commands["1,000 files whose names contradict them"] = _made(folder / "misnamed", _script, parts, 1_000, label=7)
    found = side_by_side(
        {name: ckptdoctor("latest", "-q", "--resumable", run) for name, run in commands.items()}, rounds
    )
    show("ckptdoctor latest --resumable", found)
    for name, run in commands.items():
        said = json.loads(subprocess.run(ckptdoctor("latest", "--json", run), capture_output=True, check=True).stdout)
        print(f"  {name:<58} {found[name].cpu:8.3f} s of the processor, {said['opened']:,} opened")


def _write_parts(folder: Path) -> None:
    """The files that all runs have in common: a network of 1 MB, its optimizer, and what the Trainer adds."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    network = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(1, 256)).sum().backward()
    optimizer.step()
    torch.save(network.state_dict(), folder / "pytorch_model.bin")
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    torch.save({"last_epoch": 1}, folder / "scheduler.pt")
    contents = {"iter_num": 7, "model": network.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(contents, folder / "numbered.pt")
    torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict()}, folder / "plain.pt")
    torch.save({"cpu": torch.get_rng_state()}, folder / "rng_state.pth")


def _made(run: Path, make, parts: Path, count: int, **how: int) -> str:
    if not (run / ".made").exists():
        run.mkdir(parents=True, exist_ok=True)
        for at in range(count):
            make(run, parts, at, **how)
        (run / ".made").touch()
    return str(run)


def _script(run: Path, parts: Path, at: int, label: int | None = None) -> None:
    os.link(parts / ("plain.pt" if label is None else "numbered.pt"), run / f"step_{at + 100}.pt")


def _trainer(run: Path, parts: Path, at: int) -> None:
    folder = run / f"checkpoint-{at}"
    folder.mkdir()
    for name in ("pytorch_model.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        os.link(parts / name, folder / name)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": at, "epoch": at / 100}))


if __name__ == "__main__" and sys.argv[1:2] == ["--parts"]:
    _write_parts(Path(sys.argv[2]))
elif __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"), int(sys.argv[2]) if len(sys.argv) > 2 else 3)
