"""Shows the values of one tensor: numbers, heatmap, histogram, extremes; side by side where there is room."""

from __future__ import annotations

from math import isinf, isnan
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.look.inspector import Look, Refused, Spectrum
from ckptdoctor.rendering.numbers import count, plain, plural, shape, size
from ckptdoctor.tui.background import Background, until_cancelled
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.messages import ElementWanted
from ckptdoctor.tui.models.facts import title
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.slices import ElementIndex, Slice, first, kernel_size, parse_index
from ckptdoctor.tui.screens.help import HelpScreen
from ckptdoctor.tui.screens.panes import PanedScreen
from ckptdoctor.tui.widgets.bars import KeyBar, TitleBar
from ckptdoctor.tui.widgets.line_view import PHONE
from ckptdoctor.tui.widgets.tensor.distribution import Distribution, ExtremesView
from ckptdoctor.tui.widgets.tensor.drawing import sampled
from ckptdoctor.tui.widgets.tensor.grid import ValueGrid
from ckptdoctor.tui.widgets.tensor.heatmap import Heatmap

_NARROW = 100  # columns below which only one view is to be seen
_WIDTHS = [(0, "-narrow"), (_NARROW, "-normal"), (160, "-wide")]
_HEIGHTS = [(0, "-low"), (30, "-tall")]
_VIEWS = ("values", "heatmap", "histogram", "extremes")


class TensorScreen(PanedScreen[None], Background):
    """Escape goes back to where it was opened."""

    HORIZONTAL_BREAKPOINTS = _WIDTHS
    VERTICAL_BREAKPOINTS = _HEIGHTS
    AUTO_FOCUS = "#values"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("escape,backspace", "leave", "back", "Back to the contents", show=True),
        key(
            "right_square_bracket",
            "step(1)",
            "slice",
            "The next slice, along the last dimension that is not shown",
            show=True,
            display="]",
        ),
        key("left_square_bracket", "step(-1)", "slice before", "The previous slice", display="["),
        key(
            "right_curly_bracket",
            "leap(1)",
            "far slice",
            "Step along the first dimension that is not shown",
            display="}",
        ),
        key("left_curly_bracket", "leap(-1)", "far slice before", "The same step back", display="{"),
        key("r", "rows", "rows", "Show the next dimension as rows", show=True),
        key("c", "columns", "columns", "Show the next dimension as columns", show=True),
        key("i", "index", "index", "Go to an element by its index", show=True),
        key("x", "kernels", "kernels", "Heatmap of a convolution: all kernels, or the slice"),
        key("s", "scale", "scale", "Histogram: linear, logarithmic, or by powers of two"),
        key("w", "spectrum", "singular values", "Singular values and effective rank, or the histogram"),
        key("tab", "turn(1)", "next view", "To the next view"),
        key("shift+tab", "turn(-1)", "view before", "To the previous view"),
        *[key(plain(at), f"view({at - 1})", name, f"To the {name}") for at, name in enumerate(_VIEWS, 1)],
        key("question_mark,f1", "help", "help", "All keys", show=True),
    ]

    def __init__(self, opened: OpenedCheckpoint, row: int, at: ElementIndex | None = None) -> None:
        """Open the tensor of this row; ``at`` is the element to go to."""
        super().__init__()
        self._at = at
        self.opened, self.row = opened, row
        self.tensor = opened.table.tensors[row]
        found = opened.inspector.seen_as(self.tensor)
        self.shown = found if isinstance(found, Tensor) else self.tensor
        self.slice = first(self.shown.shape)
        self.seen: Look | Refused | None = None
        self.spectrum: Spectrum | Refused | None = None

    def compose(self) -> ComposeResult:
        """Yield the views; app.tcss decides which are side by side."""
        facts = [f"{self.tensor.dtype.name} {shape(self.tensor.shape)}", size(self.tensor.nbytes)]
        if self.shown is not self.tensor:
            facts.append(f"shown: its {self.shown.dtype.name} {shape(self.shown.shape)}")
        bar = TitleBar([title(self.opened, self.row), *facts], id="title")
        bar.state = "reading values…"
        yield bar
        yield Static(id="axes", markup=False)
        with Container(id="views"):
            yield ValueGrid(self.opened, self.row, self.slice, self.shown.dtype, id="values")
            yield Distribution(id="histogram")
            yield Heatmap(self.opened, self.row, id="heatmap")
            yield ExtremesView(id="extremes")
        yield KeyBar()

    def on_mount(self) -> None:
        """Begin to read."""
        self._turned()
        self._show_view(0)
        if self._at is not None:
            self._go(self.slice.through(self._at), self._at)
        self.compute(self._look, self._show, "look")

    def on_resize(self, event: Resize) -> None:
        """Fit the line of dimensions again."""
        self._tell()

    def _look(self) -> Look | Refused:
        return self.opened.inspector.look(self.tensor, Work(listener=until_cancelled()))

    def _show(self, seen: Look | Refused) -> None:
        self.seen = seen
        self.query_one(TitleBar).say(state=sampled(seen) if isinstance(seen, Look) else "")
        self.query_one(Distribution).show(seen)
        self.query_one(ExtremesView).show(seen, self.slice, self.shown.dtype)
        odd = seen.extremes[0] if isinstance(seen, Look) and seen.extremes else None
        if odd is not None and self._is_odd(odd.size) and not self._has_moved():
            self._go(self.slice.through(odd.at), odd.at)  # nobody opens such a tensor to see its first number

    def _is_odd(self, size: float) -> bool:
        """Return whether a value is what is wrong with the tensor: NaN, and infinity where a finding names it."""
        return isnan(size) or (isinf(size) and self.opened.badges.worst(self.row) is not None)

    def _has_moved(self) -> bool:
        """Return whether the cursor or the slice has changed since this was opened."""
        return self.slice != first(self.shown.shape) or any(self.query_one(ValueGrid).index or ())

    def _go(self, slice_: Slice, index: ElementIndex | None = None) -> None:
        """Show another slice, in every view of it."""
        turned = (slice_.rows, slice_.columns) != (self.slice.rows, self.slice.columns)
        here = index or (self.query_one(ValueGrid).index if turned else None)
        self.slice = slice_.through(here) if turned and here is not None else slice_
        self._turned(here)
        if turned and self.seen is not None:
            self.query_one(ExtremesView).show(self.seen, self.slice, self.shown.dtype)

    def _turned(self, index: ElementIndex | None = None) -> None:
        self.query_one(ValueGrid).show(self.slice, index)
        self.query_one(Heatmap).show(self.slice, index)
        self._tell()

    def _tell(self) -> None:
        """Say which dimension is where, and name the views where only one is to be seen."""
        text = Text(no_wrap=True, overflow="ellipsis")
        if self._alone:
            text.append(" ")
            for number, name in enumerate(_VIEWS, 1):
                shown = self.query_one(f"#{name}").has_class("-shown")
                said = f" {number} {name} " if shown or self.size.width >= PHONE else f" {number} "
                text.append(said, Style(reverse=shown, bold=shown, dim=not shown)).append(" ")
            text.append("\n")
        text.append_text(self._dimensions())
        self.query_one("#axes", Static).update(text)

    @property
    def _alone(self) -> bool:
        """Whether there is room for one view only."""
        return self.size.width < _NARROW

    def _dimensions(self) -> Text:
        text = Text(" ")
        for dim, length in enumerate(self.slice.shape):
            text.append("  " if dim else "")
            if dim == self.slice.rows:
                text.append(f"↓ {count(length)} rows", "bold")
            elif dim == self.slice.columns:
                said = plural(length, "value") if self.slice.rows is None else f"→ {count(length)} columns"
                text.append(said, "bold")
            else:
                text.append(f"{count(self.slice.at[dim])} of {count(length)}")
        if self.slice.slices > 1:
            text.append(f"   slice {count(self.slice.number + 1)} of {count(self.slice.slices)}", "dim")
        return text

    def on_element_wanted(self, message: ElementWanted) -> None:
        """Go there, in the grid."""
        self._go(self.slice.through(message.index), message.index)
        self._show_view(0)

    # keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether the key can do anything for this tensor."""
        if action in ("step", "leap"):
            return self.slice.slices > 1
        if action == "spectrum":
            return len(self.shown.shape) > 1
        if action == "kernels":
            return kernel_size(self.shown.shape) is not None
        return self.slice.rows is not None if action in ("rows", "columns") else True

    def action_leave(self) -> None:
        """Go back."""
        self.leave()

    def action_step(self, by: int) -> None:
        """Go to the next slice, or as many as ``by`` further on."""
        self._go(self.slice.step(by))

    def action_leap(self, by: int) -> None:
        """Go to the next slice along the first dimension that is not shown."""
        self._go(self.slice.step(by * self.slice.leap()))

    def action_rows(self) -> None:
        """Let another dimension go down."""
        self._go(self.slice.next_rows())

    def action_columns(self) -> None:
        """Let another dimension go to the right."""
        self._go(self.slice.next_columns())

    def action_index(self) -> None:
        """Ask where to go."""
        if self.slice.shape and 0 not in self.slice.shape:
            self.app.push_screen(IndexScreen(self.slice.shape), self._jump)

    def _jump(self, index: ElementIndex | None) -> None:
        if index is not None:
            self.on_element_wanted(ElementWanted(index))

    def action_kernels(self) -> None:
        """Draw kernels, or the slice."""
        self.query_one(Heatmap).turn_kernels()
        if self._alone:
            self._show_view(_VIEWS.index("heatmap"))

    def action_spectrum(self) -> None:
        """Compute singular values, once, and draw them; or the histogram again."""
        view = self.query_one(Distribution)
        if view.draws_spectrum:
            view.turn_scale()
        else:
            view.turn_spectrum(self.spectrum)
            if self.spectrum is None:
                self.compute(self._singular_values, self._take_spectrum, "spectrum")
        if self._alone:
            self._show_view(_VIEWS.index("histogram"))

    def _singular_values(self) -> Spectrum | Refused:
        return self.opened.inspector.spectrum(self.tensor, Work(listener=until_cancelled()))

    def _take_spectrum(self, found: Spectrum | Refused) -> None:
        self.spectrum = found
        if self.query_one(Distribution).draws_spectrum:
            self.query_one(Distribution).turn_spectrum(found)

    def action_scale(self) -> None:
        """Draw the histogram on another scale."""
        self.query_one(Distribution).turn_scale()
        if self._alone:
            self._show_view(_VIEWS.index("histogram"))

    def action_turn(self, by: int) -> None:
        """Go to the next view."""
        focused = self.focused.id if self.focused is not None else None
        at = _VIEWS.index(focused) if focused in _VIEWS else 0
        self._show_view((at + by) % len(_VIEWS))

    def action_view(self, number: int) -> None:
        """Go to the view of this number."""
        self._show_view(number)

    def _show_view(self, number: int) -> None:
        for at, name in enumerate(_VIEWS):
            self.query_one(f"#{name}", Widget).set_class(at == number, "-shown")
        self.query_one(f"#{_VIEWS[number]}").focus()
        self._tell()

    def action_help(self) -> None:
        """Show all keys."""
        self.app.push_screen(HelpScreen(self.active_bindings))


class IndexScreen(ModalScreen[ElementIndex]):
    """A line to type in; what is wrong with it is shown below."""

    BINDINGS: ClassVar[list[BindingType]] = [key("escape", "leave", "leave", "Stay where you are")]

    def __init__(self, sizes: ElementIndex) -> None:
        super().__init__()
        self.sizes = sizes

    def compose(self) -> ComposeResult:
        """Yield the line, and what it must hold."""
        with Vertical(id="index"):
            yield Input(placeholder=", ".join(["0"] * len(self.sizes)), compact=True)
            yield Static(self._hint(), markup=False, id="index-said")

    def on_mount(self) -> None:
        """Name it."""
        self.query_one("#index").border_title = "go to index"

    def _hint(self) -> str:
        return f"{plural(len(self.sizes), 'number')}, for {shape(self.sizes)[1:-1]}; -1 is the last"

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go there, if there is such an element."""
        event.stop()
        try:
            self.dismiss(parse_index(event.value, self.sizes))
        except ValueError as error:
            self.query_one("#index-said", Static).update(str(error))

    def action_leave(self) -> None:
        """Stay."""
        self.dismiss(None)
