"""One pair and what comes of it: ``python -m tests.pairs NUMBER [FOLDER]``; a folder keeps its files."""

from __future__ import annotations

import os
import sys

from tests.pairs.judge import judged


def main() -> int:
    """Both modes, what was said, and the verdict."""
    number, folders = int(sys.argv[1]), sys.argv[2:]
    for unsafe in (False, True):
        folder = os.path.join(folders[0], "unsafe" if unsafe else "plain") if folders else None
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
        found = judged(number, unsafe, folder)
        print(f"pair {number}, {found.family}, {'--unsafe-fixes' if unsafe else 'plain'}")
        print(f"  {found.pair.what}\n")
        print("  " + found.said.replace("\n", "\n  "))
        print(f"{found.verdict.value}{f': {found.why}' if found.why else ''}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
