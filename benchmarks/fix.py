"""``fix -o`` of 2 GB, also a cast, and of 50,000 tensors, verified and durable, against ``cp`` + ``sync`` and torch.

``python benchmarks/fix.py FOLDER``: the folder needs 5 GB of real space; files stay there for the next run.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import files
from measure import ckptdoctor, python, show, side_by_side

TORCH = """
import os, sys, torch
state = torch.load(sys.argv[1], weights_only=True)
torch.save({key.removeprefix("module."): value for key, value in state.items()}, sys.argv[2])
os.sync()
"""


CAST = """
import os, sys, torch
state = torch.load(sys.argv[1], weights_only=True)
torch.save({key: value.to(torch.bfloat16) for key, value in state.items()}, sys.argv[2])
os.sync()
"""


def main(folder: Path) -> None:
    """Print the comparison for a .pt and a .safetensors file."""
    for recipe in (files.two_gb_pt, files.two_gb_safetensors):
        source = files.made(folder, recipe)
        output = folder / f"output{source.suffix}"
        mine = {"ckptdoctor fix --strip-module -o": ckptdoctor("fix", str(source), "--strip-module", "-o", str(output))}
        copy = {"cp, then sync": ["sh", "-c", 'cp "$0" "$1" && sync "$1"', str(source), str(output)]}
        before = partial(output.unlink, missing_ok=True)
        # a disk that writes back gigabytes is a noisy thing: few rounds say little
        show(f"2 GB {source.suffix}: strip module.", side_by_side({**mine, **copy}, rounds=11, before=before))
        if source.suffix == ".pt":
            slow = {"torch.load, rename, torch.save, sync": python(TORCH, str(source), str(output))}
            show(f"2 GB {source.suffix}: the same with torch", side_by_side({**mine, **slow}, rounds=3, before=before))
        output.unlink(missing_ok=True)
    source, output = files.made(folder, files.two_gb_pt), folder / "output.pt"
    before = partial(output.unlink, missing_ok=True)
    mine = {"ckptdoctor fix --dtype bf16 -o": ckptdoctor("fix", str(source), "--dtype", "bf16", "-o", str(output))}
    slow = {"torch.load, cast, torch.save, sync": python(CAST, str(source), str(output))}
    show("2 GB float32 .pt: cast to bfloat16", side_by_side({**mine, **slow}, rounds=5, before=before))
    source, output = files.made(folder, files.many_tensors_pt), folder / "output.pt"
    mine = {"ckptdoctor fix --strip-module -o": ckptdoctor("fix", str(source), "--strip-module", "-o", str(output))}
    slow = {"torch.load, rename, torch.save, sync": python(TORCH, str(source), str(output))}
    before = partial(output.unlink, missing_ok=True)
    show("50,000 tensors .pt: strip module.", side_by_side({**mine, **slow}, rounds=5, before=before))
    output.unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"))
