"""Error texts as people pasted them in public threads, with the cause that the thread found: ``threads/*.txt``.

An entry is a line "## SOURCE | PROGRAM | CODES", a line "= CAUSE", and the text, cut to the message and some of its
keys, with the names of users taken out of paths. SOURCE is a repository on GitHub and the number of the thread. CODES
are the rules of which any is a right answer; "honest": the cause lies outside of the checkpoint or nobody found it, and
it is right to say so, or that the text is not known. The answers were written from the threads, before any was asked of
the program.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from tests.explaining.corpus import GENERIC

FOLDER = Path(__file__).parent / "threads"
HELD_OUT = 80
"""Texts that nobody looks at while messages are mended: those whose sources have the last digests."""


@dataclass(frozen=True)
class Pasted:
    """A text, where it was pasted, the cause that was found there, and the rules that explain it."""

    source: str
    program: str
    codes: tuple[str, ...]
    cause: str
    text: str

    def verdict(self, hits):
        """How good an explanation is: "right", "honest", "generic", "silent", "wrong", or only "named".

        "named": another rule comes first, and this one among those that the same words may mean (``Hit.also``).
        """
        code = hits[0].code if hits else None
        if code and code in self.codes:
            return "right"
        if not code and "honest" in self.codes:
            return "honest"
        if code is None:
            return "silent"
        if code in GENERIC:
            return "generic"
        return "named" if set(hits[0].also) & set(self.codes) else "wrong"


def _entries(path):
    for entry in re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        head, cause, text = entry.split("\n", 2)
        source, program, codes = head.split(" | ")
        yield Pasted(source, program, tuple(codes.split(",")), cause.removeprefix("= "), text)


def _digest(pasted):
    return hashlib.sha256(pasted.source.encode()).hexdigest()


PASTED = sorted([each for path in sorted(FOLDER.glob("*.txt")) for each in _entries(path)], key=_digest)
LATER = list(_entries(FOLDER / "later" / "all.txt"))  # written down when the others had been mended
SEEN, UNSEEN = PASTED[:-HELD_OUT], PASTED[-HELD_OUT:]
