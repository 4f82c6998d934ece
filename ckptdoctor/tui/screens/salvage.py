"""Saving what is whole of a broken file: the question before, and what became of it."""

from __future__ import annotations

import os

from rich.text import Text

from ckptdoctor.findings import RepairReport, SalvageReport
from ckptdoctor.report.escape import escape
from ckptdoctor.report.numbers import plural, size
from ckptdoctor.report.salvage import next_step, vouched, what_it_means
from ckptdoctor.report.wrapping import abridged
from ckptdoctor.salvage.checkpoint import Salvage
from ckptdoctor.tui.models.salvaged import in_figures
from ckptdoctor.tui.screens.question import Question
from ckptdoctor.tui.screens.writing import WritingScreen


class ConfirmSalvage(Question):
    """True: write it."""

    def __init__(self, report: SalvageReport) -> None:
        super().__init__()
        self.report = report

    def text(self) -> Text:
        """The file, what is in it, and what is not."""
        report = self.report
        folder = os.path.dirname(os.path.abspath(report.output))
        text = Text()
        text.append(f"{escape(os.path.basename(report.output))}\n", "bold")
        text.append(f"in {abridged(escape(folder), 200)}\n\n", "dim")
        text.append(f"A new file with what is whole: {in_figures(report)}.\n")
        if vouched(report):
            text.append(f"Of what is saved: {vouched(report)}.\n", "dim")
        if report.lost:
            warning = str(self.app.theme_variables["warning"])
            text.append(f"\n{plural(len(report.lost), 'tensor')} will not be in it", warning)
            text.append(", and loading says that they are missing. Nothing is filled in.\n")
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
        for line in (in_figures(said), "everything in it is equal to what is in the original"):
            text.append("✓ ", good).append(f"{line}\n")
        if said.lost:
            text.append(f"\n{what_it_means(said)}\n", "dim")
        text.append("\nload it with\n", "dim").append(f"  {next_step(said)}", str(self.app.theme_variables["accent"]))
        return text
