"""``fix --strip-module -o`` of 2 GB, verified and durable, against ``cp`` + ``sync`` and against torch.

``python benchmarks/fix.py FOLDER``: the folder needs 5 GB of real space; files stay there for the next run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import files
from measure import ckptdoctor, python, show, side_by_side

TORCH = """
import os, sys, torch
state = torch.load(sys.argv[1], weights_only=True)
torch.save({key.removeprefix("module."): value for key, value in state.items()}, sys.argv[2])
os.sync()
"""


def main(folder: Path) -> None:
    """Print the comparison for a .pt and a .safetensors file."""
    for recipe in (files.two_gb_pt, files.two_gb_safetensors):
        source = files.made(folder, recipe)
        output = folder / f"output{source.suffix}"
        commands = {
            "ckptdoctor fix --strip-module -o": ckptdoctor("fix", str(source), "--strip-module", "-o", str(output)),
            "cp, then sync": ["sh", "-c", 'cp "$0" "$1" && sync "$1"', str(source), str(output)],
        }
        if source.suffix == ".pt":
            commands["torch.load, rename, torch.save, sync"] = python(TORCH, str(source), str(output))
        measured = side_by_side(commands, rounds=3, before=lambda output=output: output.unlink(missing_ok=True))
        show(f"2 GB {source.suffix}: strip module.", measured)
        output.unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"))
