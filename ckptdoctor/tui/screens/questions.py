"""A question before anything is written names the file, and says that nothing else changes."""

from __future__ import annotations

import os
from collections.abc import Sequence
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
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import plural, size
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.tui.keys import ANYWHERE, key
from ckptdoctor.wording import first_few


class Question(ModalScreen[bool]):
    """True: write it. What is asked is the ``text`` of a subclass."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "answer(True)", "write", "Write the new file", show=True, display="⏎"),
        key("escape,n", "answer(False)", "back", "Back; nothing is written", show=True, display="esc"),
        *ANYWHERE,
    ]

    def compose(self) -> ComposeResult:
        """Yield the text of the question."""
        with VerticalScroll(id="question", classes="box"):
            yield Static(self.text(), markup=False)

    def on_mount(self) -> None:
        """Name it."""
        box = self.query_one("#question")
        box.border_title = "write this file?"
        box.border_subtitle = Content("⏎ write   esc back")

    def action_answer(self, answer: bool) -> None:
        """Write it, or not."""
        self.dismiss(answer)

    def text(self) -> Text:
        """Return the text of the question."""
        raise NotImplementedError  # abc.ABC and Textual's screens have metaclasses that do not go together


_DROPS = 6  # things dropped that are named


class ConfirmScreen(Question):
    """True: write it."""

    def __init__(self, report: RepairReport, dropped: Sequence[str] = ()) -> None:
        super().__init__()
        self.report = report
        self.dropped = dropped

    def text(self) -> Text:
        """Return the name of the new file, the steps that make it, and what it will not have."""
        report = self.report
        text = Text()
        text.append(f"{escape(os.path.basename(report.output))}\n", "bold")
        text.append(f"{_where(report)}\n\n", "dim")
        text.append(f"A new file of {size(report.size)}: {_bytes(report)}.\n")
        text.append(
            f"{plural(len(report.steps), 'step')}: {', '.join([escape(each.label) for each in report.steps])}.\n"
        )
        going = self.dropped
        unsafe = [step for step in report.steps if step.safety is Safety.UNSAFE]
        if unsafe or going:
            text.append("\n")
        for step in unsafe:
            text.append(
                f"{'unsafe' if step.name else 'loses'}  {escape(step.label)}: {escape(step.title)}\n",
                self._style("warning"),
            )
        for line in first_few([f"not in the new file  {each}" for each in going], _DROPS, before="and "):
            text.append(f"{line}\n", self._style("warning"))
        text.append(f"\n{escape(os.path.basename(report.path))} stays as it is, and nothing else is written.")
        return text

    def _style(self, name: str) -> str:
        return str(self.app.theme_variables[name])


def _where(report: RepairReport) -> str:
    """Return the folder of the output: "next to" the original where it is the same one."""
    folder, own = (os.path.dirname(os.path.abspath(path)) for path in (report.output, report.path))
    return (
        f"next to {escape(os.path.basename(report.path))}" if folder == own else f"in {abridged(escape(folder), 200)}"
    )


def _bytes(report: RepairReport) -> str:
    if not report.new_bytes:
        return "every byte is copied from the original"
    if report.new_bytes >= report.size:
        return "all of it is new"
    return f"{size(report.new_bytes)} of it is new, the rest is copied"
