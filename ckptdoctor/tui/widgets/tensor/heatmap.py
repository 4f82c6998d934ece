"""Draws a slice as colours: half blocks, two rows of cells in each line; without colours, shades."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from math import inf, nan, prod
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
from ckptdoctor.rendering.numbers import count, plural, shape
from ckptdoctor.rendering.value_numbers import number
from ckptdoctor.tui.background import Background, until_cancelled
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.messages import ElementWanted
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.slices import ElementIndex, Slice, kernel_size
from ckptdoctor.tui.models.values import (
    DARK,
    LIGHT,
    RGB,
    Colours,
    KernelGrid,
    halves,
    kernel_grid,
    limit,
    merged,
    shade,
    zoomed,
)
from ckptdoctor.tui.widgets.looks import Looks

_WAYS = ("mean", "absmax")
_LEGEND = 11  # cells of the legend
_READ = 1 << 22  # elements of one index of the first dimension up to which kernels are drawn


class Heatmap(Background, Looks, can_focus=True):
    """A picture of a slice: a small one is drawn large; of a large one cells are put together, as the border says.

    Of a convolution it shows the kernels side by side, a page of them at a time, or a slice as of any other tensor.
    """

    TITLE: ClassVar = "heatmap"
    KERNELS: ClassVar = "kernels"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("m", "way", "mean or largest", "Heatmap cells: the mean, or the largest absolute value"),
        key("pageup,ctrl+b", "page(-1)", "page up", "One page up"),
        key("pagedown,ctrl+f", "page(1)", "page down", "One page down"),
    ]

    def __init__(self, opened: OpenedCheckpoint | None, row: int, id: str | None = None) -> None:
        super().__init__(id=id)
        self._opened, self._row = opened, row
        self._slice: Slice | None = None
        self._how = _WAYS[0]
        self._as_kernels = True  # where it is a convolution
        self._grid: KernelGrid | None = None  # how the kernels lie that are drawn
        self._first = 0  # of these
        self._picture: Picture | Refused | None = None
        self._limit = 0.0
        self._cells: list[list[float | None]] = []
        self._strips: dict[int, Strip] = {}

    def on_mount(self) -> None:
        """Name it."""
        self.border_title = self.TITLE

    def show(self, slice_: Slice, index: ElementIndex | None = None) -> None:
        """Show another slice; of kernels, the one that has this element, or that the slice is."""
        if slice_ == self._slice and index is None:
            return
        same, begins, self._slice = slice_ == self._slice, self._slice is None, slice_
        if self.kernel is None or not self._as_kernels:
            if not same:
                self._read()
            return
        dims = len(slice_.shape) - 2
        at = index if index is not None else slice_.at if max(slice_.others, default=0) < dims else None
        kernel = _number(at[:dims], slice_.shape[:dims]) if at is not None else None
        if kernel is not None and not self._shows(kernel):
            self._first = kernel
            self._read()
        elif begins:
            self._read()

    def _shows(self, kernel: int) -> bool:
        return self._grid is not None and self._first <= kernel < self._first + self._grid.count

    def on_resize(self, event: Resize) -> None:
        """Read again for more or fewer cells."""
        self._read()

    def action_way(self) -> None:
        """Put values together the other way: by mean or by the largest."""
        self._how = _WAYS[1 - _WAYS.index(self._how)]
        self._read()

    @property
    def kernel(self) -> tuple[int, int] | None:
        """Rows and columns of a kernel, where there are kernels."""
        return kernel_size(self._slice.shape) if self._slice is not None else None

    @property
    def draws_kernels(self) -> bool:
        """Whether kernels are drawn where they fit, and not one slice."""
        return self._as_kernels and self.kernel is not None

    def turn_kernels(self) -> None:
        """Draw the slice instead of the kernels, or these again."""
        self._as_kernels = not self._as_kernels
        self._read()

    def draw_slices(self) -> None:
        """Draw slices from now on, of convolutions as well: somebody has asked for another one."""
        self._as_kernels = False

    def action_page(self, by: int) -> None:
        """Show the kernels after these, or those before."""
        if self._grid is not None and self._slice is not None:
            further = self._first + by * self._grid.count
            self._first = max(0, further) if further < prod(self._slice.shape[:-2]) else self._first
            self._read()

    def _read(self) -> None:
        slice_, (width, height) = self._slice, self.content_size
        if slice_ is None or width < 2 or height < 2:
            return
        if not slice_.height or not slice_.across:
            self._show(Refused("no elements"))
            return
        if prod(slice_.shape) == 1:  # which a whole pane in one colour says nothing of
            self._show(Refused("a single value"))
            return
        room, kernel = (2 * (height - 1), width), self.kernel if self._as_kernels else None
        fits = kernel is not None and kernel[0] <= room[0] and kernel[1] <= room[1] and prod(slice_.shape[1:]) <= _READ
        grid = kernel_grid(kernel, prod(slice_.shape[:-2]), *room) if kernel is not None and fits else None
        self._grid, first, how = grid, self._first, self._how

        def work() -> Picture | Refused:
            whole = Work(listener=until_cancelled())
            if grid is not None:
                return self._kernels(grid, first, slice_.shape, whole)
            return self.picture(slice_.whole(), slice_.rows, room, how, whole)

        self.compute(work, self._show, "values")

    def _kernels(self, grid: KernelGrid, first: int, shape: ElementIndex, work: Work) -> Picture | Refused:
        """Read the kernels from the first on that there is room for; for a thread."""
        each = prod(shape[1:-2])  # kernels of one index of the first dimension, of which whole ones are read
        last = min(first + grid.count, prod(shape[:-2]))
        box = [range(first // each, -(-last // each)), *map(range, shape[1:])]
        seen = self.picture(box, 0, (len(box[0]), prod(shape[1:])), self._how, work)
        if isinstance(seen, Refused):
            return seen
        values = [value for row in seen.cells for value in row]
        size, skipped = grid.height * grid.width, first - box[0].start * each
        kernels = [values[at * size : (at + 1) * size] for at in range(skipped, skipped + last - first)]
        return replace(seen, cells=tuple(map(tuple, grid.cells(kernels))))

    def picture(
        self, box: Sequence[range], rows: int | None, room: tuple[int, int], how: str, work: Work
    ) -> Picture | Refused:
        """Read what is drawn; for a thread. Subclasses draw something else than the values of one tensor."""
        assert self._opened is not None
        tensor = self._opened.table.tensors[self._row]
        return self._opened.inspector.picture(tensor, box, rows, room, how, work)

    def _show(self, picture: Picture | Refused) -> None:
        self._picture = picture
        if isinstance(picture, Picture):
            width, height = self.content_size
            self._limit = limit(picture.cells)
            if self._grid is not None:
                self._cells = [list(row) for row in picture.cells]
                self._tell_kernels(self._grid)
            else:
                self._cells = zoomed(picture.cells, 2 * (height - 1), width)
                self._tell(picture)
        self._strips.clear()
        self.refresh()

    def _tell_kernels(self, grid: KernelGrid) -> None:
        """Name in the border which kernels these are."""
        assert self._slice is not None
        leading = self._slice.shape[:-2]
        last = min(self._first + grid.count, prod(leading)) - 1
        ends = [shape(_indexes(each, leading)) for each in (self._first, last)]
        self.border_title = Content(f"{self.KERNELS} {ends[0]} … {ends[1]}")
        drawn = f"{count(last - self._first + 1)} of {plural(prod(leading), 'kernel')}"
        more = "PgUp PgDn turn pages · " if prod(leading) > grid.count else ""
        self.border_subtitle = Content(f"{drawn} · {more}x one slice")

    def _tell(self, picture: Picture) -> None:
        """Name in the border the slice, and what a cell stands for."""
        title = f"heatmap {self._slice}"
        if picture.sampled:
            title += " · sampled"
        self.border_title = Content(title)
        if picture.down > 1 or picture.across > 1:
            is_table = self._slice is not None and self._slice.rows is not None
            of = [_span(each) for each in ((picture.down, picture.across) if is_table else (picture.across,))]
            how = "mean" if self._how == "mean" else "largest"
            self.border_subtitle = f"a cell is the {how} of {' × '.join(of)} · m changes"
        else:
            self.border_subtitle = "a cell is a value"

    def render_line(self, y: int) -> Strip:
        """Return two rows of cells as one line, or the legend."""
        self.keep_looks()
        if y not in self._strips:
            self._strips[y] = self._line(y)
        return self._strips[y]

    def forget_looks(self) -> None:
        """Forget what was drawn: another theme has other colours."""
        super().forget_looks()
        self._strips.clear()

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
        """Yield pairs of cells, one above the other, as characters."""
        most, colours, behind = self._limit, self._colours, self.background_colors[1].rgb
        if self.app.no_color:
            style = self.rich_style
            yield from [Segment(shade(merged(upper, lower), most), style) for upper, lower in pairs]
            return
        for upper, lower in pairs:
            yield _half_block(colours.of(upper, most), colours.of(lower, most), behind)

    def _legend(self) -> list[Segment]:
        """Return the colours from the most negative over zero to the most positive value, with their numbers."""
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
        """Go to the value that was clicked."""
        offset = event.get_content_offset(self)
        if offset is None or self._slice is None or not isinstance(self._picture, Picture) or not self._cells:
            return
        if self._grid is not None:
            self._go_to_kernel(self._grid.at(2 * offset.y, offset.x))
            return
        if not 2 * offset.y < len(self._cells) or not offset.x < len(self._cells[0]):
            return
        row = 2 * offset.y * len(self._picture.cells) // len(self._cells)
        column = offset.x * len(self._picture.cells[0]) // len(self._cells[0])
        across = self._picture.across
        if self._slice.rows is None:
            place = int((row * len(self._picture.cells[0]) + column) * across)
            index = self._slice.index(*divmod(place, self._slice.across))
        else:
            index = self._slice.index(int(row * self._picture.down), int(column * across))
        if index is not None:
            self.post_message(ElementWanted(index))

    def _go_to_kernel(self, place: tuple[int, int, int] | None) -> None:
        """Go to a value of a kernel: its number among those that are drawn, its row and column."""
        assert self._slice is not None
        leading = self._slice.shape[:-2]
        if place is not None and self._first + place[0] < prod(leading):
            self.post_message(ElementWanted((*_indexes(self._first + place[0], leading), *place[1:])))


def _span(each: float) -> str:
    """Return how many values a cell stands for: ``2``, or ``2–3`` where some stand for one more."""
    return count(int(each)) if each == int(each) else f"{count(int(each))}–{count(int(each) + 1)}"


def _number(indexes: ElementIndex, shape: ElementIndex) -> int:
    """Return the number of an element in C order."""
    found = 0
    for index, size in zip(indexes, shape, strict=True):
        found = found * size + index
    return found


def _indexes(number: int, shape: ElementIndex) -> ElementIndex:
    """Return the indexes of an element, by its number in C order."""
    found: list[int] = []
    for size in reversed(shape):
        number, index = divmod(number, size)
        found.insert(0, index)
    return tuple(found)


@lru_cache(maxsize=1 << 14)
def _half_block(upper: RGB | None, lower: RGB | None, background: RGB) -> Segment:
    """Return two cells, one above the other, as one character."""
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

    def picture(
        self, box: Sequence[range], rows: int | None, room: tuple[int, int], how: str, work: Work
    ) -> Picture | Refused:
        """Read a slice of one, or of both."""
        (one, other), (a, b) = self._inspectors, self._pair
        if self.seen is DrawnValues.DIFFERENCE:
            drawn = one.difference(a, other, b, box, rows, room, how, work)
            equal = isinstance(drawn, Picture) and not any(each for row in drawn.cells for each in row)
            return Refused("no difference here") if equal else drawn
        inspector, tensor = (one, a) if self.seen is DrawnValues.A else (other, b)
        return inspector.picture(tensor, box, rows, room, how, work)

    def _tell_kernels(self, grid: KernelGrid) -> None:
        super()._tell_kernels(grid)
        self.border_title = Content(f"{self.seen.value} · {self.border_title}")

    def _tell(self, picture: Picture) -> None:
        super()._tell(picture)
        title = f"{self.seen.value} {self._slice}"
        self.border_title = Content(f"{title} · sampled" if picture.sampled else title)
