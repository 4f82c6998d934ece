"""The names of all tensors as a tree of modules, each piece once: 50,000 names have much in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from ckptdoctor.checkpoint import Checkpoint, KeyPath, show_part
from ckptdoctor.noun import noun
from ckptdoctor.report.escape import escape
from ckptdoctor.report.wrapping import abridged

_DEPTH = 64  # levels that are told apart: deeper ones are no architecture but an attack
_PIECE = 120  # characters of one piece of a name


@noun(frozen=False)
class Modules:
    """Level 0 is the whole file. Each level, and each tensor, has a number for its last piece and one for its parent.

    A piece carries what joins it to the next one: ``state_dict/`` + ``layer1.`` + ``weight``.
    """

    pieces: list[str] = field(default_factory=list)
    parents: list[int] = field(default_factory=lambda: [-1])
    levels: list[int] = field(default_factory=lambda: [-1])
    homes: list[int] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)

    def name(self, tensor: int) -> str:
        """The whole name of a tensor."""
        return self.level(self.homes[tensor]) + self.pieces[self.leaves[tensor]]

    def level(self, number: int) -> str:
        """The whole name of a level, with the sign that joins it to what is below."""
        found = []
        while number > 0:
            found.append(self.pieces[self.levels[number]])
            number = self.parents[number]
        return "".join(reversed(found))


def modules(checkpoint: Checkpoint) -> Modules:
    """The tree of a checkpoint: keys of state dicts unfold at their dots, everything else as it is nested."""
    dotted = {each.path for each in checkpoint.state_dicts}
    made = Modules()
    numbers: dict[str, int] = {}
    below: dict[tuple[int, str], int] = {}

    def numbered(piece: str) -> int:
        if piece not in numbers:
            numbers[piece] = len(made.pieces)
            made.pieces.append(abridged(escape(piece), _PIECE))
        return numbers[piece]

    for tensor in checkpoint.tensors:
        *steps, leaf = _pieces(tensor.path, tensor.path[:-1] in dotted)
        home = 0
        for step in steps:
            if (home, step) not in below:
                below[home, step] = len(made.parents)
                made.parents.append(home)
                made.levels.append(numbered(step))
            home = below[home, step]
        made.homes.append(home)
        made.leaves.append(numbered(leaf))
    return made


def _pieces(path: KeyPath, dotted: bool) -> Sequence[str]:
    if not path:
        return ["(root)"]
    *above, key = map(show_part, path)
    inner = key.split(".", _DEPTH) if dotted else [key]
    pieces = [*[f"{step}/" for step in above], *[f"{step}." for step in inner[:-1]], inner[-1]]
    return pieces if len(pieces) <= _DEPTH else [*pieces[: _DEPTH - 1], "".join(pieces[_DEPTH - 1 :])]


def children(made: Modules) -> dict[int, tuple[list[int], list[int]]]:
    """The levels and the tensors directly below each level."""
    found: dict[int, tuple[list[int], list[int]]] = {number: ([], []) for number in range(len(made.parents))}
    for number, parent in enumerate(made.parents):
        if parent >= 0:
            found[parent][0].append(number)
    for tensor, home in enumerate(made.homes):
        found[home][1].append(tensor)
    return found


def sizes(made: Modules, nbytes: Sequence[int]) -> list[int]:
    """The bytes at and below each level; a level comes after its parent."""
    found = [0] * len(made.parents)
    for home, size in zip(made.homes, nbytes, strict=True):
        found[home] += size
    for number in range(len(found) - 1, 0, -1):
        found[made.parents[number]] += found[number]
    return found
