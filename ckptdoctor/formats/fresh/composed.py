"""What a container is that is written out of nouns alone: its files, what it must hold, and where each byte is from."""

from __future__ import annotations

from collections.abc import Mapping

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.noun import noun
from ckptdoctor.writing.recipe import Recipe, Segment


@noun
class Stored:
    """One storage of the output: its length, its bytes, and their checksum where that is known.

    ``shown`` is a tensor of the source that shows all of it, where that is to be proven element by element.
    """

    key: str
    nbytes: int
    data: tuple[Segment, ...]
    crc: int | None = None
    shown: Tensor | None = None


@noun
class Composed:
    """A container before it is written.

    ``recipes`` are those of its files by their names, or the one of "" where it is one file; ``values`` is the recipe
    of the file that tensors lie in. ``contents`` are what reading it must give, and ``stored`` what its storages hold,
    by their keys there. ``swapped``: the bytes that it is made of are big-endian.
    """

    recipes: Mapping[str, Recipe]
    values: Recipe
    contents: Checkpoint
    stored: Mapping[str, Stored]
    swapped: bool = False
