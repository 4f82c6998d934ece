"""Shows the values of one tensor in two checkpoints: figures, and a heatmap of how any slice differs."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import Static

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.diffing.request import DiffRequest
from ckptdoctor.look.inspector import Inspector, Refused
from ckptdoctor.tui.background import Background
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.models import command_line
from ckptdoctor.tui.models.comparison import ComparedEntries
from ckptdoctor.tui.models.comparison_facts import facts, title
from ckptdoctor.tui.models.side_by_side import EntryLine
from ckptdoctor.tui.models.slices import Slice, first, kernel_size
from ckptdoctor.tui.screens import HEIGHTS, WIDTHS
from ckptdoctor.tui.screens.help import HelpScreen
from ckptdoctor.tui.screens.panes import PanedScreen
from ckptdoctor.tui.widgets.bars import KeyBar, TitleBar
from ckptdoctor.tui.widgets.line_view import hanging
from ckptdoctor.tui.widgets.tensor.heatmap import DifferenceMap

_PAUSE = 0.08  # seconds on a slice before it is read


class DifferenceScreen(PanedScreen[None], Background):
    """Opened over the comparison; escape goes back."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    AUTO_FOCUS = "DifferenceMap"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("escape,enter", "back", "back", "Back to the comparison", show=True, display="esc"),
        key("right_square_bracket,n", "step(1)", "slice", "The next slice", show=True, display="]"),
        key("left_square_bracket,N", "step(-1)", "slice before", "The previous slice", display="["),
        key("r", "rows", "rows", "The next dimension goes down, as rows", show=True),
        key("c", "columns", "columns", "The next dimension goes to the right, as columns", show=True),
        key("x", "kernels", "kernels", "Of a convolution: its kernels side by side, or the slice"),
        key("s", "side", "A, B", "The difference, A alone, B alone", show=True),
        key("question_mark,f1", "help", "help", "All keys", show=True),
    ]

    def __init__(
        self,
        comparison: ComparedEntries,
        line: EntryLine,
        request: DiffRequest,
        inspectors: tuple[Inspector, Inspector],
    ) -> None:
        super().__init__()
        pair = comparison.pair(line.entry)
        assert pair is not None
        self.comparison = comparison
        self.line = line
        self.pair = pair
        self.request = request
        self.inspectors = inspectors
        self.slice: Slice | None = None

    def compose(self) -> ComposeResult:
        """Yield the facts about both, and the picture."""
        bar = TitleBar([title(self.comparison, self.line)], id="title")
        bar.state = ""
        yield bar
        yield Static(id="apart", markup=False)
        yield DifferenceMap(self.inspectors, (self.pair.a, self.pair.b), self.pair.transposed, id="difference")
        yield KeyBar()

    def on_mount(self) -> None:
        """Say what is known; find out which tensor is looked at."""
        text = Text()
        for name, said in facts(self.comparison, self.line):
            lead = f"{name:<8} "
            text.append(lead, "dim").append(hanging(said, self.app.size.width - 2, len(lead)) + "\n")
        text.rstrip()
        self.query_one("#apart", Static).update(text)
        inspector, tensor = self.inspectors[0], self.pair.a
        self.compute(lambda: inspector.seen_as(tensor), self._begin, "slice")

    def _begin(self, seen: Tensor | Refused) -> None:
        if isinstance(seen, Refused):
            self.query_one(DifferenceMap).border_title = Content("A − B")
            self.query_one(DifferenceMap).refuse(seen)
            return
        self._go(_largest(seen.shape))

    def _go(self, slice_: Slice) -> None:
        self.slice = slice_
        self._say_number()
        self.refresh_bindings()
        self.set_timer(_PAUSE, lambda: self._show(slice_))  # holding a key reads nothing

    def _show(self, slice_: Slice) -> None:
        if slice_ == self.slice:
            self.query_one(DifferenceMap).show(slice_)
            self._say_number()  # only now it is known whether there are kernels

    def _say_number(self) -> None:
        """Say which slice of how many is drawn; of kernels, the frame says which ones are."""
        shown = self.slice
        one = shown is not None and shown.slices > 1 and not self.query_one(DifferenceMap).draws_kernels
        said = f"slice {shown.number + 1:,} of {shown.slices:,}" if shown is not None and one else ""
        self.query_one(TitleBar).say(state=said)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether the key can do anything for this tensor."""
        if self.slice is None:
            return True
        if action == "step":
            return self.slice.slices > 1
        if action == "kernels":
            return kernel_size(self.slice.shape) is not None
        return self.slice.rows is not None if action in ("rows", "columns") else True

    def command(self) -> str:
        """Return the equal command line."""
        return command_line.diff(self.request.a, self.request.b, values=True, root=self.request.root)

    def action_step(self, by: int) -> None:
        """Show another slice."""
        if self.slice is not None:
            self.query_one(DifferenceMap).draw_slices()
            self._go(self.slice.step(by))

    def action_rows(self) -> None:
        """Let another dimension go down."""
        if self.slice is not None:
            self.query_one(DifferenceMap).draw_slices()
            self._go(self.slice.next_rows())

    def action_columns(self) -> None:
        """Let another dimension go to the right."""
        if self.slice is not None:
            self.query_one(DifferenceMap).draw_slices()
            self._go(self.slice.next_columns())

    def action_kernels(self) -> None:
        """Draw kernels, or the slice."""
        self.query_one(DifferenceMap).turn_kernels()
        self._say_number()

    def action_side(self) -> None:
        """Show the difference, A alone or B alone, in turn."""
        self.query_one(DifferenceMap).turn_side()

    def action_back(self) -> None:
        """Go back to the comparison."""
        self.leave()

    def action_help(self) -> None:
        """Show all keys."""
        self.app.push_screen(HelpScreen(self.active_bindings))


def _largest(shape: tuple[int, ...]) -> Slice:
    """Return the slice of the two largest dimensions, where a change of the whole tensor shows best."""
    begin = first(shape)
    if begin.rows is None:
        return begin
    rows, columns = sorted(sorted(range(len(shape)), key=lambda dim: -shape[dim])[:2])
    return replace(begin, rows=rows, columns=columns)
