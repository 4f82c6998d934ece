"""``convert`` of 2 GB to safetensors and back, verified and durable, against the libraries' own way and against ``cp``.

``python benchmarks/convert.py FOLDER``: the folder needs 5 GB of real space; files stay there for the next run.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from shutil import rmtree

import files
from measure import ckptdoctor, python, show, side_by_side

TO_SAFETENSORS = """
import os, sys, torch
from safetensors.torch import save_file
save_file(torch.load(sys.argv[1], mmap=True, weights_only=True), sys.argv[2], metadata={"format": "pt"})
os.sync()
"""
TO_TORCH = """
import os, sys, torch
from safetensors.torch import load_file
torch.save(load_file(sys.argv[1]), sys.argv[2])
os.sync()
"""
FROM_DCP = """
import os, sys, torch
from safetensors.torch import save_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
dcp_to_torch_save(sys.argv[1], sys.argv[2] + ".pt")
save_file(torch.load(sys.argv[2] + ".pt", mmap=True, weights_only=True), sys.argv[2], metadata={"format": "pt"})
os.remove(sys.argv[2] + ".pt")
os.sync()
"""


def remove(*paths: Path) -> None:
    """Remove files and folders, if they are there."""
    for path in paths:
        if path.is_dir():
            rmtree(path)
        else:
            path.unlink(missing_ok=True)


def main(folder: Path) -> None:
    """Print the comparison for each direction."""
    pairs = (
        (files.two_gb_pt, ".safetensors", "save_file(torch.load(mmap)), sync", TO_SAFETENSORS),
        (files.two_gb_safetensors, ".pt", "torch.save(load_file()), sync", TO_TORCH),
        (files.two_gb_dcp, ".safetensors", "dcp_to_torch_save, save_file(torch.load(mmap)), sync", FROM_DCP),
    )
    for recipe, suffix, name, code in pairs:
        source = files.made(folder, recipe)
        output = folder / f"converted{suffix}"
        commands = {
            "ckptdoctor convert": ckptdoctor("convert", str(source), str(output)),
            name: python(code, str(source), str(output)),
            "cp, then sync": ["sh", "-c", 'cp -r "$0" "$1" && sync', str(source), f"{output}.copy"],
        }

        before = partial(remove, output, Path(f"{output}.copy"))
        show(f"2 GB {source.name} → {suffix}", side_by_side(commands, rounds=5, before=before))
        before()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"))
