"""``diff --values`` of 2 GB and 2 GB in the page cache, equal and differing, against a loop with torch.

``python benchmarks/diff.py FOLDER``: the folder needs 6 GB; files stay there for the next run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import files
from measure import ckptdoctor, python, show, side_by_side

# what people write: equal or not, and the largest difference
LOOP = """
import sys, torch
a, b = (torch.load(path, mmap=True, weights_only=True) for path in sys.argv[1:])
assert a.keys() == b.keys()
for key, value in a.items():
    if not torch.equal(value, b[key]):
        print(key, (value - b[key]).abs().max().item())
"""
# the same figures as ckptdoctor's
FIGURES = """
import sys, torch
a, b = (torch.load(path, mmap=True, weights_only=True) for path in sys.argv[1:])
assert a.keys() == b.keys()
for key, one in a.items():
    other = b[key]
    if not torch.equal(one, other):
        apart = one - other
        size = apart.abs()
        relative = apart.norm() / one.norm()
        cosine = torch.nn.functional.cosine_similarity(one.view(1, -1), other.view(1, -1))
        print(key, (apart != 0).sum().item(), size.max().item(), size.mean().item(), relative.item(), cosine.item())
"""
CHANGE = """
import sys, torch
state = torch.load(sys.argv[1], weights_only=True)
for value in state.values():
    value.mul_(1.01)
torch.save(state, sys.argv[2])
"""


def main(folder: Path) -> None:
    """Print the comparison for equal files, and for files of which every value differs."""
    one = files.made(folder, files.two_gb_pt)
    same, other = folder / "two_gb_copy.pt", folder / "two_gb_changed.pt"
    if not same.exists():
        shutil.copyfile(one, same)
    if not other.exists():
        subprocess.run(python(CHANGE, str(one), str(other)), check=True)
    for title, second in (("equal", same), ("every value differs", other)):
        pair = str(one), str(second)
        commands = {
            "ckptdoctor diff --values": ckptdoctor("diff", *pair, "--values"),
            "torch.load(mmap), torch.equal, (a - b).abs().max()": python(LOOP, *pair),
            "the same with all of its figures": python(FIGURES, *pair),
        }
        show(f"2 GB and 2 GB, {title}", side_by_side(commands))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"))
