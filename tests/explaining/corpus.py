"""Messages as the programs print them, each with where it comes from and what it means: ``corpus/*.txt``.

An entry is a line "## CODES | SOURCE" and the text below it. CODES are the rules of which any is a right answer for the
root, "no rule" a cause that no rule is about, and "nothing" a text in which nothing is to be recognised.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"
# these say only that keys or shapes do not fit: true wherever another cause was to be found, if not the whole truth
GENERIC = {"R001", "R002", "R003"}


@dataclass(frozen=True)
class Message:
    """A text, the rules that explain it, and its source."""

    family: str
    codes: tuple[str, ...]
    source: str
    text: str

    def verdict(self, code):
        """How good an answer is: "right", "generic", "silent" or "wrong"."""
        if code in self.codes:
            return "right"
        if code is None:
            return "silent"
        return "generic" if code in GENERIC and "nothing" not in self.codes else "wrong"


def _entries(path):
    for entry in path.read_text(encoding="utf-8").split("## ")[1:]:
        head, _, text = entry.partition("\n")
        codes, _, source = head.partition(" | ")
        named = {"no rule": ("",), "nothing": ("nothing", None)}.get(codes, tuple(codes.split(",")))
        yield Message(path.stem, named, source, text)


MESSAGES = [each for path in sorted(FOLDER.glob("*.txt")) for each in _entries(path)]
