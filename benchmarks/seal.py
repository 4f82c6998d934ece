"""Sealing and verifying 2 GB in the page cache, beside ``sha256sum`` and OpenSSL's SHA-256, in one run.

``python benchmarks/seal.py FOLDER [ROUNDS]``. Reach: at most 1.15 times the time of ``sha256sum`` on two cores.
"""

from __future__ import annotations

import sys
from pathlib import Path

import files
from measure import ckptdoctor, python, show, side_by_side

WHOLE = """
import hashlib, sys
with open(sys.argv[1], "rb", buffering=0) as file:
    print(hashlib.file_digest(file, "sha256").hexdigest())
"""


def main(folder: Path, rounds: int) -> None:
    """Print both formats."""
    for recipe in (files.two_gb_pt, files.two_gb_safetensors):
        path = str(files.made(folder, recipe))
        commands = {
            "sha256sum": ["sha256sum", path],
            "hashlib's SHA-256, which is OpenSSL's, of the file alone": python(WHOLE, path),
            "ckptdoctor seal": ckptdoctor("seal", "--force", path),
            "ckptdoctor verify": ckptdoctor("verify", path),
        }
        show(path, side_by_side(commands, rounds))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"), int(sys.argv[2]) if len(sys.argv) > 2 else 5)
