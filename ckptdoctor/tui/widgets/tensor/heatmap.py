"""Draws a slice as colours: half blocks, two rows of cells in each line; without colours, shades."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from math import inf, nan
from typing import ClassVar

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.content import Content
from textual.events import Click, Resize
from textual.strip import Strip

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.look.inspector import Inspector, Picture, Refused
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.value_numbers import number
from ckptdoctor.tui.background import Background, until_cancelled
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.messages import ElementWanted
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.slices import Slice
from ckptdoctor.tui.models.values import DARK, LIGHT, RGB, Colours, halves, limit, merged, shade, zoomed

_WAYS = ("mean", "absmax")
_LEGEND = 11  # cells of the legend


class Heatmap(Background, can_focus=True):
    """A picture of a slice: a small one is drawn large; of a large one cells are put together, as the border says."""

    TITLE: ClassVar = "heatmap"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("m", "way", "mean or largest", "Heatmap: the mean of what a cell stands for, or the largest by size"),
    ]

    def __init__(self, opened: OpenedCheckpoint | None, row: int, id: str | None = None) -> None:
        super().__init__(id=id)
        self._opened, self._row = opened, row
        self._slice: Slice | None = None
        self._how = _WAYS[0]
        self._picture: Picture | Refused | None = None
        self._limit = 0.0
        self._cells: list[list[float | None]] = []
        self._strips: dict[int, Strip] = {}

    def on_mount(self) -> None:
        """Name it."""
        self.border_title = self.TITLE

    def show(self, slice_: Slice) -> None:
        """Show another slice."""
        if slice_ != self._slice:
            self._slice = slice_
            self._read()

    def on_resize(self, event: Resize) -> None:
        """More or fewer cells."""
        self._read()

    def action_way(self) -> None:
        """The other way to put values together."""
        self._how = _WAYS[1 - _WAYS.index(self._how)]
        self._read()

    def _read(self) -> None:
        slice_, (width, height) = self._slice, self.content_size
        if slice_ is None or width < 2 or height < 2:
            return
        if not slice_.height or not slice_.across:
            self._show(Refused("no elements"))
            return
        room = (2 * (height - 1), width)

        def work() -> Picture | Refused:
            return self.picture(slice_, room, self._how, Work(listener=until_cancelled()))

        self.compute(work, self._show, "values")

    def picture(self, slice_: Slice, room: tuple[int, int], how: str, work: Work) -> Picture | Refused:
        """Read what is drawn; for a thread. Subclasses draw something else than the values of one tensor."""
        assert self._opened is not None
        tensor = self._opened.table.tensors[self._row]
        return self._opened.inspector.picture(tensor, slice_.whole(), slice_.rows, room, how, work)

    def _show(self, picture: Picture | Refused) -> None:
        self._picture = picture
        if isinstance(picture, Picture):
            width, height = self.content_size
            self._limit = limit(picture.cells)
            self._cells = zoomed(picture.cells, 2 * (height - 1), width)
            self._tell(picture)
        self._strips.clear()
        self.refresh()

    def _tell(self, picture: Picture) -> None:
        """In the border: what a cell stands for."""
        title = f"heatmap {self._slice}"
        if picture.sampled:
            title += " · sampled"
        self.border_title = Content(title)
        if picture.down > 1 or picture.across > 1:
            size = f"{number(picture.down)} × {number(picture.across)}" if picture.down > 1 else number(picture.across)
            self.border_subtitle = f"a cell is the {'mean' if self._how == 'mean' else 'largest'} of {size} · m changes"
        else:
            self.border_subtitle = "a cell is a value"

    def render_line(self, y: int) -> Strip:
        """Two rows of cells, or the legend."""
        if y not in self._strips:
            self._strips[y] = self._line(y)
        return self._strips[y]

    def notify_style_update(self) -> None:
        """Another theme: other colours."""
        self._strips.clear()
        super().notify_style_update()

    def _line(self, y: int) -> Strip:
        width, height = self.content_size
        if not isinstance(self._picture, Picture):
            said = "" if y else "reading…" if self._picture is None else escape(self._picture.reason)
            return Strip([Segment(said[:width], self._dim)]).adjust_cell_length(width, self.rich_style)
        if y == height - 1:
            return Strip(self._legend()).adjust_cell_length(width, self.rich_style)
        pairs = next(halves(self._cells[2 * y : 2 * y + 2]), [])
        drawn = list(self._drawn(pairs))
        return Strip(Segment.simplify(drawn)).adjust_cell_length(width, self.rich_style)

    @property
    def _colours(self) -> Colours:
        return DARK if self.app.current_theme.dark else LIGHT

    @property
    def _dim(self) -> Style:
        return self.rich_style + Style(dim=True)

    def _drawn(self, pairs: Iterable[tuple[float | None, float | None]]) -> Iterator[Segment]:
        """Pairs of cells, one above the other, as characters."""
        most, colours, behind = self._limit, self._colours, self.background_colors[1].rgb
        if self.app.no_color:
            style = self.rich_style
            yield from [Segment(shade(merged(upper, lower), most), style) for upper, lower in pairs]
            return
        for upper, lower in pairs:
            yield _half_block(colours.of(upper, most), colours.of(lower, most), behind)

    def _legend(self) -> list[Segment]:
        """From the most negative over zero to the most positive colour, with their numbers."""
        most = self._limit
        beyond = any(each is not None and abs(each) > most for row in self._cells for each in row)
        sign = ("≤ ", "≥ ") if beyond else ("", "")
        steps = [most * (2 * at / (_LEGEND - 1) - 1) for at in range(_LEGEND)]
        found = [Segment(f"{sign[0]}{number(-most)} ", self._dim)]
        found += self._drawn([(step, step) for step in steps])
        found.append(Segment(f" {sign[1]}{number(most)}", self._dim))
        flat = [each for row in self._cells for each in row if each is not None and not abs(each) < inf]
        if any(each != each for each in flat):
            found += [Segment("  ", self._dim), *self._drawn([(nan, nan)]), Segment(" NaN", self._dim)]
        if any(each == each for each in flat):
            found += [Segment("  ", self._dim), *self._drawn([(inf, inf)]), Segment(" inf", self._dim)]
        return found

    def on_click(self, event: Click) -> None:
        """To the value that was clicked on."""
        offset = event.get_content_offset(self)
        if offset is None or self._slice is None or not isinstance(self._picture, Picture) or not self._cells:
            return
        times = len(self._cells[0]) // len(self._picture.cells[0])
        row, column = 2 * offset.y // times, offset.x // times
        across = self._picture.across
        if self._slice.rows is None:
            place = int((row * len(self._picture.cells[0]) + column) * across)
            index = self._slice.index(*divmod(place, self._slice.across))
        else:
            index = self._slice.index(int(row * self._picture.down), int(column * across))
        if index is not None:
            self.post_message(ElementWanted(index))


@lru_cache(maxsize=1 << 14)
def _half_block(upper: RGB | None, lower: RGB | None, background: RGB) -> Segment:
    """Two cells, one above the other, as one character."""
    if upper is None and lower is None:
        return Segment(" ", Style(bgcolor=Color.from_rgb(*background)))
    if upper is None:
        return Segment("▄", Style(color=Color.from_rgb(*(lower or background)), bgcolor=Color.from_rgb(*background)))
    return Segment("▀", Style(color=Color.from_rgb(*upper), bgcolor=Color.from_rgb(*(lower or background))))


class DrawnValues(Enum):
    """The values that are drawn."""

    DIFFERENCE = "A − B"
    A = "A"
    B = "B"

    @property
    def next(self) -> DrawnValues:
        """The one that comes after this one."""
        every = list(DrawnValues)
        return every[(every.index(self) + 1) % len(every)]


class DifferenceMap(Heatmap):
    """A slice of both tensors, subtracted."""

    TITLE: ClassVar = DrawnValues.DIFFERENCE.value

    def __init__(
        self, inspectors: tuple[Inspector, Inspector], tensors: tuple[Tensor, Tensor], transposed: bool, id: str
    ) -> None:
        super().__init__(None, 0, id=id)
        self._inspectors = inspectors
        a, b = tensors
        if transposed:  # read as if it lay the other way
            b = replace(b, shape=b.shape[::-1], stride=b.stride[::-1])
        self._pair = a, b
        self.seen = DrawnValues.DIFFERENCE

    def refuse(self, why: Refused) -> None:
        """Say why there is nothing to draw."""
        self._show(why)

    def turn_side(self) -> None:
        """Draw the other one."""
        self.seen = self.seen.next
        self._read()

    def picture(self, slice_: Slice, room: tuple[int, int], how: str, work: Work) -> Picture | Refused:
        """Read a slice of one, or of both."""
        (one, other), (a, b) = self._inspectors, self._pair
        box, rows = slice_.whole(), slice_.rows
        if self.seen is DrawnValues.DIFFERENCE:
            return one.difference(a, other, b, box, rows, room, how, work)
        inspector, tensor = (one, a) if self.seen is DrawnValues.A else (other, b)
        return inspector.picture(tensor, box, rows, room, how, work)

    def _tell(self, picture: Picture) -> None:
        super()._tell(picture)
        title = f"{self.seen.value} {self._slice}"
        self.border_title = Content(f"{title} · sampled" if picture.sampled else title)
