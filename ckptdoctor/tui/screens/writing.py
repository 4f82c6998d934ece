"""Shows how the repaired file is written: how far it is, what was proven of it, and the way to open it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import ProgressBar, Static

from ckptdoctor.findings import NextStep, Proof, RepairReport, Severity
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.fix_text import kept, next_step, verified
from ckptdoctor.rendering.loading import caution
from ckptdoctor.rendering.numbers import size
from ckptdoctor.tui import messages
from ckptdoctor.tui.keys import ANYWHERE, key
from ckptdoctor.tui.models.pace import Pace
from ckptdoctor.tui.workers import Repairing

if TYPE_CHECKING:
    from ckptdoctor.repair.plan import Plan


class WritingScreen(ModalScreen[bool]):
    """True: open the result."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("o,enter", "open", "open result", "Open the repaired file here", show=True, display="⏎"),
        key("escape", "back", "stop or back", "Stop writing; or back to the plan", show=True, display="esc"),
        *ANYWHERE,
    ]

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.repairing = Repairing(self, plan)
        self.report: RepairReport | None = None
        self.ended = False
        self._pace = Pace()

    def compose(self) -> ComposeResult:
        """Yield a bar, and words below it."""
        with VerticalScroll(id="writing", classes="box"):
            yield ProgressBar(id="bar", show_eta=False, show_percentage=False)
            yield Static(id="said", markup=False)

    def on_mount(self) -> None:
        """Begin."""
        box = self.query_one("#writing")
        box.border_title = Content(f"writing {escape(os.path.basename(self.plan.output))}")
        box.border_subtitle = Content("esc stop")
        self.run_worker(self.repairing.run, group="repair", exclusive=True, thread=True)

    def on_progressed(self, message: messages.Progressed) -> None:
        """Say how far it is: copying is the first half, comparing the second."""
        progress = message.progress
        share = progress.done / max(1, progress.total)
        done = {"copying": share / 2, "comparing": 0.5 + share / 2}.get(progress.what, 1.0)
        self.query_one(ProgressBar).update(total=100, progress=100 * done)
        self.query_one("#said", Static).update(Text(" · ".join(self._pace.said(progress))))

    def on_repair_done(self, message: messages.RepairDone) -> None:
        """Say what was proven."""
        self.report = message.report
        self._end("repaired", "⏎ open it   y copy the command   esc back" if self._can_open() else "esc back")
        self.query_one("#said", Static).update(self._result(message.report))

    def on_repair_failed(self, message: messages.RepairFailed) -> None:
        """Say why not. The original may have been changed meanwhile, by others: nothing is promised of it."""
        self._end("nothing was written", "esc back")
        text = Text(escape(message.sentence), self._style("error"))
        if "nothing was written" not in message.sentence:
            text.append("\n\nNothing was written.", self._style("foreground"))
        self.query_one("#said", Static).update(text)

    def action_open(self) -> None:
        """Open the result."""
        if self.report is not None and self._can_open():
            self.dismiss(True)

    def action_back(self) -> None:
        """Stop; or go back once it is over."""
        if self.ended:
            self.dismiss(False)
        else:
            self.repairing.stop()
            self.query_one("#writing").border_subtitle = "stopping…"

    def _can_open(self) -> bool:
        return self.plan.index is None  # a new index beside the old one is no checkpoint by itself

    def _end(self, title: str, keys: str) -> None:
        self.ended = True
        box = self.query_one("#writing")
        box.border_title = title
        box.border_subtitle = Content(keys)
        self.query_one(ProgressBar).display = False
        self.refresh_bindings()

    def _result(self, report: RepairReport) -> Text:
        text = Text()
        text.append(f"{escape(report.output)}\n", "bold")
        text.append(f"{size(report.size)}, written in {report.seconds:.2f} s; {kept(report)}\n\n", "dim")
        if report.proof is not None:
            for line in verified(report, report.proof).split(" · "):
                sign, look = ("! ", "warning") if line.startswith("check still finds") else ("✓ ", "success")
                text.append(sign, self._style(look)).append(f"{line}\n")
            text.append("✓ ", self._style("success")).append("output re-read and verified byte for byte\n")
            self._remains(text, report.proof)
        self._loads(text, next_step(report), report.next)
        return text

    def _loads(self, text: Text, line: str, after: NextStep | None) -> None:
        if line:
            title = "to make it loadable" if line.startswith("ckptdoctor fix") else "load it with"
            text.append(f"\n{title}\n", "dim").append(f"  {line}", self._style("accent"))
        why = caution(after)
        text.append(f"\n  {why}" if why else "", "dim")

    def _remains(self, text: Text, proof: Proof) -> None:
        for finding in proof.findings:
            if finding.severity is not Severity.INFO:
                text.append(f"  ● {finding.code} {finding.name}", self._style(finding.severity.value))
                text.append(f"  {escape(finding.message)}\n")

    def _style(self, name: str) -> str:
        return str(self.app.theme_variables[name])
