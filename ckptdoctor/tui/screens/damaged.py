"""Shows a file whose contents cannot be read: what it is, why that is so, what is intact, and how to save that."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from ckptdoctor.checkpoint import show_path
from ckptdoctor.checkpoint.progress import heard
from ckptdoctor.errors import CkptDoctorError, StoppedError
from ckptdoctor.findings import FileReport, RepairReport, SalvageReport
from ckptdoctor.noun import replace
from ckptdoctor.remote import addresses
from ckptdoctor.rendering import full
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.fates import LOST, PARTIAL, Fate, byte_map, fates, in_natural_order, intact
from ckptdoctor.rendering.numbers import plural, shape, size
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.salvage import next_step, vouched, what_it_means
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.salvaging.checkpoint import Salvage, beside, plan_salvage
from ckptdoctor.tui import messages
from ckptdoctor.tui.background import Background, posting, until_cancelled
from ckptdoctor.tui.keys import PANES, key
from ckptdoctor.tui.models import command_line
from ckptdoctor.tui.models.salvaged import in_figures, output_for
from ckptdoctor.tui.screens import HEIGHTS, WIDTHS
from ckptdoctor.tui.screens.help import HelpScreen
from ckptdoctor.tui.screens.panes import PanedScreen
from ckptdoctor.tui.screens.questions import Question
from ckptdoctor.tui.screens.writing import WritingScreen
from ckptdoctor.tui.widgets.bars import KeyBar, TitleBar
from ckptdoctor.tui.widgets.line_view import PHONE, LineView, fit, fit_middle

_OWN_AND_FIRST = 2  # screens when there is nothing to go back to: Textual's own, and this one
_SAID, _SHAPE, _BYTES = 26, 22, 10  # cells of the columns beside the name of a tensor
_SHORT = 10  # cells of how much there is of a tensor, on a phone
_NAME = 24  # cells that names have at least, before there are columns beside them
_MARKS = {PARTIAL: ("◐ ", "warning"), LOST: ("● ", "error")}
_LOOKS = {"█": "success", "▒": "warning", "░": "error"}
_AT_ONCE = 256 << 20  # bytes that are read without being asked to

# what can be saved, tensor by tensor; or a sentence why nothing can
_Prospect = tuple[Salvage, list[Fate]] | str


class SalvageView(LineView):
    """Intact tensors have no mark, half a circle is something, a circle is nothing of it."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.fates: list[Fate] = []  # in the order of the file, as the map of its bytes has them
        self._listed: list[Fate] = []
        self._said = 0  # cells of how much there is of a tensor

    def show(self, fates: list[Fate]) -> None:
        """Show these tensors."""
        self.fates, self._listed = fates, in_natural_order(fates)
        self._said = min(_SAID, max([len(each.said) for each in fates], default=0) + 2)
        self.redraw()

    def count(self) -> int:
        """Return the number of tensors."""
        return len(self.fates)

    def draw(self, number: int, width: int) -> Iterator[tuple[str, str]]:
        """Mark, name, shape, bytes, and what is there of it."""
        fate = self._listed[number]
        mark, look = _MARKS.get(fate.kind, ("  ", "plain"))
        narrow = width < PHONE
        said = _SHORT if narrow else self._said
        left = width - len(mark) - said - (0 if narrow else _BYTES)
        columns = left - _SHAPE >= _NAME
        name = escape(show_path(fate.path))
        yield mark, look
        yield fit_middle(name, left - _SHAPE if columns else left), "plain" if fate.kind != LOST else "dim"
        if columns:
            yield fit(f"{fate.dtype} {shape(fate.shape)}", _SHAPE, right=True), "dim"
        if not narrow:
            yield fit(size(fate.nbytes), _BYTES, right=True), "plain"
        yield (
            "  " + fit("lost" if narrow and fate.kind == LOST else fate.said, said - 2),
            look if fate.kind == PARTIAL else "dim",
        )


class DamagedScreen(PanedScreen[None], Background):
    """The report of ``check`` where there is nothing to browse, and what ``salvage`` would save."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    AUTO_FOCUS = "#damage"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("s", "salvage", "salvage", "Find what is intact, and save it to a new file", show=True),
        key("escape", "back", "back", "Back to the contents", show=True, display="esc"),
        *PANES,
        key("question_mark,f1", "help", "help", "All keys", show=True),
    ]

    def __init__(self, report: FileReport, path: str, opened: Callable[[str], Screen[None]]) -> None:
        """Take the report of a file; ``opened`` gives the screen of another one, of what was saved."""
        super().__init__()
        self.report = report
        self.path = path
        self.opened = opened
        self.salvaged: Salvage | None = None
        self.refusal = ""  # why nothing of it can be saved

    def compose(self) -> ComposeResult:
        """Yield the report, the bytes that the file begins with, and below them what is intact."""
        bar = TitleBar([escape(self.report.path)], id="title")
        bar.state = "cannot be read" if self.report.checkpoint is None else "incomplete"
        yield bar
        with VerticalScroll(id="damage"):
            yield Static(id="why", markup=False)
        yield Static(id="bytes", markup=False)
        yield SalvageView(id="salvage")
        yield KeyBar()

    def on_mount(self) -> None:
        """Write down what is known; of a file that is read quickly, what is intact as well."""
        self.query_one("#damage").border_title = "diagnosis"
        self.query_one("#salvage").border_title = "tensors that can be saved"
        self.query_one("#salvage").display = False
        self.query_one("#bytes").display = False
        self.app.theme_changed_signal.subscribe(self, lambda _: self.on_resize())
        self._write()
        size = self.report.container.size if self.report.container is not None else 0
        if self._may_be_saved() and size <= _AT_ONCE:
            self._look()

    def on_resize(self) -> None:
        """Make lines as long as there is room, in the colours of the theme."""
        self._write()
        self._draw_bytes()

    def _draw_bytes(self) -> None:
        """Draw which bytes are there, as they follow each other."""
        found = self.query_one(SalvageView).fates
        drawn = byte_map(found, max(10, self.size.width - 6))
        theme = self.app.theme_variables
        text = Text(" [", no_wrap=True, overflow="ellipsis")
        for sign in drawn:
            text.append(sign, str(theme[_LOOKS[sign]]))
        text.append(f"]\n {escape(intact(found))}" if found else "")
        self.query_one("#bytes", Static).update(text)
        self.query_one("#bytes").display = bool(drawn)

    def _write(self) -> None:
        width = max(24, min(self.size.width - 8, 120))
        report = self.report
        pieces = [Text.from_ansi(full.file_report(report, Paint(not self.app.no_color), width))]
        if self.refusal:
            pieces.append(Text(f"Nothing can be saved: {escape(self.refusal)}"))
        if report.container is not None and (outside := _outside(report)):
            pieces.append(outside)
        self.query_one("#why", Static).update(Text("\n\n").join(pieces))

    # what can be saved

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether there is something to save, or something to go back to."""
        if action == "back":
            return len(self.app.screen_stack) > _OWN_AND_FIRST
        return self._may_be_saved() if action == "salvage" else True

    def action_back(self) -> None:
        """Go back to what this was opened from."""
        self.leave()

    def action_salvage(self) -> None:
        """Ask whether to write it; first find out what there is."""
        if self.salvaged is None:
            self._look()
        else:
            self.app.push_screen(ConfirmSalvage(self.salvaged.report), self._answered)

    def _may_be_saved(self) -> bool:
        path = self.path
        if self.refusal or addresses.is_address(path):
            return False
        return os.path.isfile(path) and os.path.getsize(path) > 0

    def _look(self) -> None:
        view = self.query_one(SalvageView)
        view.display = True
        view.border_subtitle = "reading…"
        self.compute(self._prospect, self._found, "salvage")

    def _prospect(self) -> _Prospect:
        try:
            with heard(until_cancelled(posting(self))):
                salvage = plan_salvage(self.path, output_for(self.path))
        except StoppedError:
            return "Stopped."
        except CkptDoctorError as error:
            return error.message
        return salvage, fates(salvage)

    def on_progressed(self, message: messages.Progressed) -> None:
        """Say how far reading is."""
        done, total = message.progress.done, message.progress.total
        if self.salvaged is None and total:
            self.query_one("#salvage").border_subtitle = Content(f"reading: {100 * done // total} %")

    def _found(self, prospect: _Prospect) -> None:
        view = self.query_one(SalvageView)
        if isinstance(prospect, str):
            view.display = False
            self.refusal = prospect
            self._write()
            self.refresh_bindings()
            return
        self.salvaged, listed = prospect
        view.show(listed)
        self._draw_bytes()
        view.border_subtitle = Content(in_figures(self.salvaged.report))
        view.focus()

    def _answered(self, write: bool | None) -> None:
        if write and self.salvaged is not None:
            self.app.push_screen(SalvagingScreen(self.salvaged), self._saved)

    def _saved(self, opens: bool | None) -> None:
        saved, self.salvaged = self.salvaged, None  # the name is taken now, or the file has changed
        if opens and saved is not None:
            self.app.push_screen(self.opened(saved.plan.output))

    def command(self) -> str:
        """Save the same to the same file."""
        usual = beside(self.path)
        output = self.salvaged.plan.output if self.salvaged is not None else usual
        return command_line.salvage(self.path, None if output == usual else output)

    def action_help(self) -> None:
        """Show all keys."""
        self.app.push_screen(HelpScreen(self.active_bindings))


def _outside(report: FileReport) -> Text:
    """Return facts about any file: what to do with its format, and its first bytes."""
    container = report.container
    assert container is not None
    told = container.guidance.removeprefix("It ")[1:] in (report.error or "")  # there it is one sentence with the path
    lines = [] if told else [escape(container.guidance), ""]
    if container.head:
        lines += ["First bytes", *_dump(container.head[:64])]
    return Text("\n".join(lines).rstrip("\n"))


def _dump(data: bytes) -> list[str]:
    rows = [data[at : at + 16] for at in range(0, len(data), 16)]
    return [
        f"  {at * 16:04x}  {row.hex(' '):<47}  {''.join(chr(byte) if 32 <= byte < 127 else '·' for byte in row)}"
        for at, row in enumerate(rows)
    ]


class ConfirmSalvage(Question):
    """True: write it."""

    def __init__(self, report: SalvageReport) -> None:
        super().__init__()
        self.report = report

    def text(self) -> Text:
        """Return the name of the new file, what will be in it, and what will not."""
        report = self.report
        folder = os.path.dirname(os.path.abspath(report.output))
        text = Text()
        text.append(f"{escape(os.path.basename(report.output))}\n", "bold")
        text.append(f"in {abridged(escape(folder), 200)}\n\n", "dim")
        saved = plural(report.recovered, "intact tensor")
        text.append(f"A new file with the {saved}, {size(report.recovered_bytes)}.\n")
        if vouched(report):
            text.append(f"Checked: {vouched(report)}.\n", "dim")
        if report.lost:
            warning = str(self.app.theme_variables["warning"])
            text.append(f"\n{plural(len(report.lost), 'tensor')} will not be in it", warning)
            partly = plural(len(report.partial), "of them is", "of them are")
            text.append(f" ({partly} partly intact)" if report.partial else "")
            text.append("; loading it reports them as missing. Nothing is filled in.\n")
        text.append(f"\n{escape(os.path.basename(report.path))} stays as it is, and nothing else is written.")
        return text


class SalvagingScreen(WritingScreen):
    """Writes it, says how far it is and what was proven. True: open the result."""

    def __init__(self, salvage: Salvage) -> None:
        super().__init__(salvage.plan)
        self.salvaged = salvage.report

    def _end(self, title: str, keys: str) -> None:
        super()._end("saved" if title == "repaired" else title, keys)

    def _result(self, report: RepairReport) -> Text:
        said, good = self.salvaged, str(self.app.theme_variables["success"])
        text = Text()
        text.append(f"{escape(report.output)}\n", "bold")
        text.append(f"{size(report.size)}, written in {report.seconds:.2f} s; the original is untouched\n\n", "dim")
        for line in (in_figures(said), "everything in it equals the original"):
            text.append("✓ ", good).append(f"{line}\n")
        if said.lost:
            text.append(f"\n{what_it_means(said)}\n", "dim")
        self._loads(text, next_step(replace(said, next=report.next)), report.next)
        return text
