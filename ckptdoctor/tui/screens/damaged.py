"""A file whose contents cannot be read: what it is, why it cannot be read, and what to do."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from ckptdoctor.findings import FileReport
from ckptdoctor.report import full
from ckptdoctor.report.escape import escape
from ckptdoctor.report.numbers import size
from ckptdoctor.report.paint import Paint
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.screens.help import HelpScreen
from ckptdoctor.tui.widgets.title_bar import TitleBar


class DamagedScreen(Screen[None]):
    """What ``check`` says, where there is nothing to browse."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("question_mark,f1", "help", "help", "All keys", show=True, display="?"),
    ]

    def __init__(self, report: FileReport) -> None:
        super().__init__()
        self.report = report

    def compose(self) -> ComposeResult:
        """The report, and the bytes that the file begins with where nothing is known of it."""
        bar = TitleBar([escape(self.report.path)], id="title")
        bar.state = "cannot be read"
        yield bar
        with VerticalScroll(id="damage"):
            yield Static(id="why", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Write down what is known."""
        self.query_one("#damage").border_title = "what is known"
        self._write()

    def on_resize(self) -> None:
        """Lines are as long as there is room."""
        self._write()

    def _write(self) -> None:
        width = max(40, min(self.size.width - 8, 120))
        report = self.report
        pieces = [Text.from_ansi(full.file_report(report, Paint(not self.app.no_color), width))]
        if report.container is not None:
            pieces.append(_outside(report))
        self.query_one("#why", Static).update(Text("\n\n").join(pieces))

    def action_help(self) -> None:
        """All keys."""
        self.app.push_screen(HelpScreen(self.active_bindings))


def _outside(report: FileReport) -> Text:
    """What can be said of any file: its format, its size, and its first bytes."""
    container = report.container
    assert container is not None
    lines = [f"{escape(container.format) or 'no known format'} · {size(container.size)}"]
    if container.guidance:
        lines.append(escape(container.guidance))
    if container.head:
        lines += ["", "It begins with", *_dump(container.head[:64])]
    return Text("\n".join(lines))


def _dump(data: bytes) -> list[str]:
    rows = [data[at : at + 16] for at in range(0, len(data), 16)]
    return [
        f"  {at * 16:04x}  {row.hex(' '):<47}  {''.join(chr(byte) if 32 <= byte < 127 else '·' for byte in row)}"
        for at, row in enumerate(rows)
    ]
