"""The difference of two tensors as colours; or either of them, to look back and forth."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import ClassVar

from textual.content import Content

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.look.inspector import Going, Peek, Picture, Refused
from ckptdoctor.tui.models.slices import Slice
from ckptdoctor.tui.widgets.tensor.heatmap import Heatmap


class Seen(Enum):
    """What is drawn."""

    DIFFERENCE = "A − B"
    A = "A"
    B = "B"

    @property
    def next(self) -> Seen:
        """The one that comes after this one."""
        every = list(Seen)
        return every[(every.index(self) + 1) % len(every)]


class DifferenceMap(Heatmap):
    """A slice of both tensors, subtracted."""

    TITLE: ClassVar = Seen.DIFFERENCE.value

    def __init__(self, peeks: tuple[Peek, Peek], tensors: tuple[Tensor, Tensor], transposed: bool, id: str) -> None:
        super().__init__(None, 0, id=id)
        self._peeks = peeks
        a, b = tensors
        if transposed:  # read as if it lay the other way
            b = replace(b, shape=b.shape[::-1], stride=b.stride[::-1])
        self._pair = a, b
        self.seen = Seen.DIFFERENCE

    def refuse(self, why: Refused) -> None:
        """Say why there is nothing to draw."""
        self._show(why)

    def turn_side(self) -> None:
        """Draw the other one."""
        self.seen = self.seen.next
        self._read()

    def picture(self, slice_: Slice, room: tuple[int, int], how: str, going: Going) -> Picture | Refused:
        """Read a slice of one, or of both."""
        (one, other), (a, b) = self._peeks, self._pair
        box, rows = slice_.whole(), slice_.rows
        if self.seen is Seen.DIFFERENCE:
            return one.difference(a, other, b, box, rows, room, how, going)
        peek, tensor = (one, a) if self.seen is Seen.A else (other, b)
        return peek.picture(tensor, box, rows, room, how, going)

    def _tell(self, picture: Picture) -> None:
        super()._tell(picture)
        title = f"{self.seen.value} {self._slice}"
        self.border_title = Content(f"{title} · sampled" if picture.sampled else title)
