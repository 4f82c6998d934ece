"""The question before anything is written: it names the file, and says that nothing else changes."""

from __future__ import annotations

import os
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ckptdoctor.edits import Safety
from ckptdoctor.findings import RepairReport
from ckptdoctor.report.escape import escape
from ckptdoctor.report.numbers import plural, size
from ckptdoctor.report.wrapping import abridged
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.models.planned import dropped

_DROPS = 6  # things dropped that are named


class ConfirmScreen(ModalScreen[bool]):
    """True: write it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "answer(True)", "write", "Write the new file", show=True, display="⏎"),
        key("escape,n", "answer(False)", "back", "Back to the plan; nothing is written", show=True, display="esc"),
    ]

    def __init__(self, report: RepairReport) -> None:
        super().__init__()
        self.report = report

    def compose(self) -> ComposeResult:
        """The file first."""
        with VerticalScroll(id="question", classes="box"):
            yield Static(self._text(), markup=False)

    def on_mount(self) -> None:
        """Name it."""
        box = self.query_one("#question")
        box.border_title = "write this file?"
        box.border_subtitle = Content("⏎ write   esc back")

    def action_answer(self, answer: bool) -> None:
        """Write it, or not."""
        self.dismiss(answer)

    def _text(self) -> Text:
        report = self.report
        folder = os.path.dirname(os.path.abspath(report.output))
        text = Text()
        text.append(f"{escape(os.path.basename(report.output))}\n", "bold")
        text.append(f"in {abridged(escape(folder), 200)}\n\n", "dim")
        text.append(f"A new file of {size(report.size)}: {_bytes(report)}.\n")
        text.append(f"{plural(len(report.steps), 'step')}: {', '.join([escape(each.label) for each in report.steps])}.\n")
        going = dropped(report)
        unsafe = [step for step in report.steps if step.safety is Safety.UNSAFE]
        if unsafe or going:
            text.append("\n")
        for step in unsafe:
            text.append(f"unsafe  {escape(step.label)}: {escape(step.title)}\n", self._style("warning"))
        for each in going[:_DROPS]:
            text.append(f"not in the new file  {each.partition('  →  ')[0]}\n", self._style("warning"))
        if len(going) > _DROPS:
            text.append(f"and {len(going) - _DROPS:,} more\n", self._style("warning"))
        text.append(f"\n{escape(os.path.basename(report.path))} stays as it is, and nothing else is written.")
        return text

    def _style(self, name: str) -> str:
        return str(self.app.theme_variables[name])


def _bytes(report: RepairReport) -> str:
    if not report.new_bytes:
        return "every byte is copied from the original"
    if report.new_bytes >= report.size:
        return "all of it is written anew"
    return f"{size(report.new_bytes)} are new, the rest is copied from the original"
