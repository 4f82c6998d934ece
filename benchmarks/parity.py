"""Parity of 2 GB in the page cache: what it adds to a seal and to verify, and how long a rebuild takes, in one run.

``python benchmarks/parity.py FOLDER [ROUNDS]``. The first line of each table is the same without parity.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import files
from measure import ckptdoctor, once, python, show, side_by_side

LOST = """
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(500_000_000)
    file.write(bytes(15_000_000))
"""


def main(folder: Path, rounds: int) -> None:
    """Print what is written and read with each share, and a rebuild of 15 MB next to a copy."""
    path = str(files.made(folder, files.two_gb_pt))
    commands = {"ckptdoctor seal": ckptdoctor("seal", "--force", path)}
    for share in ("0.5%", "1%", "2%", "5%", "10%"):
        commands[f"ckptdoctor seal --parity {share}"] = ckptdoctor("seal", "--force", "--parity", share, path)
    show(path, side_by_side(commands, rounds))

    plain, worn = f"{path}.plain.pt", f"{path}.worn.pt"
    shutil.copy(path, plain)
    shutil.copy(path, worn)
    once(ckptdoctor("seal", "--force", plain))
    once(ckptdoctor("seal", "--force", "--parity", "1%", worn))
    commands = {
        "ckptdoctor verify, sealed without parity": ckptdoctor("verify", plain),
        "ckptdoctor verify, sealed with 1 %, nothing lost": ckptdoctor("verify", worn),
    }
    show(worn, side_by_side(commands, rounds))

    once(python(LOST, worn))
    commands = {
        "cp and sync": ["sh", "-c", f"cp {worn} {folder}/copy.pt && sync {folder}/copy.pt"],
        "ckptdoctor rebuild of 15 MB in a row": ckptdoctor("rebuild", worn, "-o", f"{folder}/rebuilt.pt", "--force"),
    }
    show(worn, side_by_side(commands, rounds))
    for each in (plain, worn, f"{folder}/copy.pt", f"{folder}/rebuilt.pt"):
        Path(each).unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"), int(sys.argv[2]) if len(sys.argv) > 2 else 3)
