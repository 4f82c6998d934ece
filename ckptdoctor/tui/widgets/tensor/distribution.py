"""Draws the distribution of a tensor's values: statistics, a histogram that fills the room, and extremes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite, isnan
from typing import ClassVar

from rich.text import Text
from textual.app import RenderResult
from textual.binding import BindingType
from textual.events import Resize

from ckptdoctor.checkpoint.dtypes import DType
from ckptdoctor.look.inspector import Extreme, Look, Refused, Spectrum
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import count, plain, shape
from ckptdoctor.rendering.value_numbers import number
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.messages import ElementWanted
from ckptdoctor.tui.models.slices import Slice
from ckptdoctor.tui.models.values import text
from ckptdoctor.tui.widgets.line_view import LineView, fit
from ckptdoctor.tui.widgets.looks import Looks
from ckptdoctor.tui.widgets.tensor.drawing import Scale, histogram, sampled, spectrum, statistics


class Distribution(Looks, can_focus=True):
    """The screen gives it what was seen, and says on which scale to draw it."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._seen: Look | Refused | None = None
        self._spectrum: Spectrum | Refused | None = None
        self.scale = Scale.LINEAR
        self.draws_spectrum = False

    def on_mount(self) -> None:
        """Name it."""
        self._tell()

    def show(self, seen: Look | Refused) -> None:
        """Show what was seen."""
        self._seen = seen
        self._tell()

    def turn_scale(self) -> None:
        """Go to the next scale; from singular values, back to the histogram."""
        if not self.draws_spectrum:
            self.scale = self.scale.next
        self.draws_spectrum = False
        self._tell()

    def turn_spectrum(self, found: Spectrum | Refused | None) -> None:
        """Draw singular values (None: they are still computed) instead of the histogram."""
        self._spectrum, self.draws_spectrum = found, True
        self._tell()

    def _tell(self) -> None:
        said = sampled(self._seen) if isinstance(self._seen, Look) else ""
        self.border_title = f"histogram · {said}" if said else "histogram"
        self.border_subtitle = f"{self.scale.value} · s changes"
        if self.draws_spectrum:
            seen = self._spectrum
            of = f" · {count(seen.rows)} × {count(seen.columns)}" if isinstance(seen, Spectrum) else ""
            self.border_title = f"singular values{of}"
            self.border_subtitle = "w histogram"
        self.refresh()

    def render(self) -> RenderResult:
        """Return numbers, bars and axis, in all the room there is."""
        width, height = self.content_size
        if self.draws_spectrum:
            if isinstance(self._spectrum, Spectrum):
                return spectrum(self._spectrum, width, height, self.look)
            return Text(escape(self._spectrum.reason) if self._spectrum else "computing…", self.look("dim"))
        if self._seen is None:
            return Text("reading…", self.look("dim"))
        if isinstance(self._seen, Refused):
            return Text(escape(self._seen.reason), self.look("dim"))
        text = statistics(self._seen, width, self.look)
        left = height - text.plain.count("\n") - 2
        if left >= 4:
            text.append("\n")
            left -= 1
        return text.append_text(histogram(self._seen, self.scale, width, left, self.look))


_FEWEST = 5  # values, rows and columns that are listed where there is no room for all
_FAR = 4.0  # times the usual size of a row or column before it is said how far out it is


@dataclass(frozen=True, slots=True)
class _Line:
    """A heading, or an extreme with its place and what is said next to it."""

    place: str
    remark: str = ""
    extreme: Extreme | None = None


class ExtremesView(LineView):
    """Largest absolute values: of all elements, then of each row and of each column, through all slices."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "activate", "go there", "Go to this value"),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[_Line] = []
        self._dtype: DType | None = None
        self._seen: Look | None = None
        self._slice: Slice | None = None
        self._widths: tuple[int, ...] = (0, 0)  # cells of places and of values

    def on_mount(self) -> None:
        """Name it."""
        self.border_title = "extremes"
        self.border_subtitle = "⏎ goes there"

    def show(self, seen: Look | Refused, slice_: Slice, dtype: DType) -> None:
        """Show these, with the dimensions of the slice as rows and columns."""
        self._dtype = dtype
        if isinstance(seen, Refused):
            self._lines = [_Line(escape(seen.reason))] if seen.reason else []
        else:
            said = sampled(seen)
            self.border_title = f"extremes · {said}" if said else "extremes"
            self._seen, self._slice = seen, slice_
            self._put_in_lines()
        self.redraw()
        self.cursor = 1

    def on_resize(self, event: Resize) -> None:
        """List as many of each as there is room for."""
        self._put_in_lines()
        super().on_resize(event)

    def _put_in_lines(self) -> None:
        if self._seen is not None and self._slice is not None and self._dtype is not None:
            room = self.scrollable_content_region.height
            self._lines = list(_lines(self._seen, self._slice, max(_FEWEST, (room - 3) // 3)))
            found = [(line.place, text(line.extreme.value, self._dtype)) for line in self._lines if line.extreme]
            self._widths = tuple([max(map(len, each)) for each in zip(*found, strict=True)]) or (0, 0)
            self.redraw()

    def count(self) -> int:
        """Return the number of lines."""
        return len(self._lines)

    def draw(self, number: int, width: int) -> Iterator[tuple[str, str]]:
        """Yield the place, the value, and how far out it is."""
        line = self._lines[number]
        if line.extreme is None or self._dtype is None:
            yield fit(line.place, width), "level" if line.remark else "dim"
            return
        place, room = self._widths
        yield "  " + fit(line.place, place), "plain"
        yield "  " + fit(text(line.extreme.value, self._dtype), room, right=True), _look(line.extreme.size)
        yield "  " + fit(line.remark, max(0, width - place - room - 6)), "dim"

    def activated(self, number: int) -> None:
        """Go there."""
        extreme = self._lines[number].extreme
        if extreme is not None:
            self.post_message(ElementWanted(extreme.at))


def _lines(seen: Look, slice_: Slice, most: int) -> Iterator[_Line]:
    """Yield elements, then rows, then columns."""
    if not seen.extremes:
        return
    yield _Line("values", "heading")
    for each in seen.extremes[: most if slice_.rows is not None else None]:
        yield _Line(shape(each.at), "", each)
    if slice_.rows is None or slice_.columns is None:
        return
    for sign, dim in (("↓ rows", slice_.rows), ("→ columns", slice_.columns)):
        found = seen.dimensions[dim]
        yield _Line(f"{sign} · dimension {dim} · by largest value", "heading")
        for each in found.worst[:most]:
            yield _Line(f"{sign[0]} {plain(each.at[dim])}", _times(each.size, found.usual), each)


def _times(size: float, usual: float) -> str:
    if usual and isfinite(size) and isfinite(usual) and size >= _FAR * usual:
        return f"{number(size / usual)} × usual"
    return ""


def _look(size: float) -> str:
    return "error" if isnan(size) else "plain" if isfinite(size) else "warning"
