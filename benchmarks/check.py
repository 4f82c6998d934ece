"""``check`` against ``torch.load`` in fresh processes: 2 GB, 100 GB sparse, 50,000 tensors.

``python benchmarks/check.py FOLDER``: the folder needs 5 GB of real space; files stay there for the next run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import files
from measure import ckptdoctor, python, show, side_by_side

MMAP = "import sys, torch; torch.load(sys.argv[1], mmap=True, weights_only=True)"
META = "import sys, torch; torch.load(sys.argv[1], map_location='meta', weights_only=True)"
SAFE_OPEN = "import sys\nfrom safetensors.torch import load_file\nload_file(sys.argv[1])"


def main(folder: Path) -> None:
    """Print every comparison."""
    path = str(files.made(folder, files.two_gb_pt))
    commands = {"ckptdoctor check": ckptdoctor("check", path), "torch.load(mmap, weights_only)": python(MMAP, path)}
    show("2 GB .pt, headers", side_by_side(commands))
    path = str(files.made(folder, files.two_gb_safetensors))
    commands = {"ckptdoctor check": ckptdoctor("check", path), "safetensors.torch.load_file": python(SAFE_OPEN, path)}
    show("2 GB .safetensors, headers", side_by_side(commands))
    for recipe in (files.hundred_gb_pt, files.hundred_gb_safetensors):
        path = str(files.made(folder, recipe))
        show(f"100 GB sparse {Path(path).suffix}", side_by_side({"ckptdoctor check": ckptdoctor("check", path)}))
    path = str(files.made(folder, files.many_tensors_pt))
    commands = {"ckptdoctor check": ckptdoctor("check", path), "torch.load(meta, weights_only)": python(META, path)}
    show("50,000 tensors .pt", side_by_side(commands))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"))
