"""The line at the top: which file this is, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.events import Resize
from textual.widget import Widget

from ckptdoctor.findings import Finding, Severity
from ckptdoctor.report.numbers import plural
from ckptdoctor.tui.widgets.cells import fit_middle

_PLURALS = {
    Severity.ERROR: ("error", "errors"),
    Severity.WARNING: ("warning", "warnings"),
    Severity.INFO: ("info", "infos"),
}


class TitleBar(Widget):
    """Name of the program, file, format and size; on the right how many findings, or what is going on."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"title--{name}" for name in ("name", "error", "warning", "info", "dim")}

    def __init__(self, what: Sequence[str], id: str | None = None) -> None:
        super().__init__(id=id)
        self.what = what
        self.state = "reading headers…"
        self.counts: Mapping[Severity, int] = {}

    def say(
        self,
        *,
        what: Sequence[str] | None = None,
        state: str | None = None,
        counts: Mapping[Severity, int] | None = None,
    ) -> None:
        """Say something else; None: as before. ``what`` and ``state`` are escaped already."""
        self.what = self.what if what is None else what
        self.state = self.state if state is None else state
        self.counts = self.counts if counts is None else counts
        self.refresh()

    def on_resize(self, event: Resize) -> None:
        """The room for the name has changed."""
        self.refresh()

    def render(self) -> Text:
        """One line that fits."""
        right = self._right()
        left = max(0, self.size.width - right.cell_len - 14)
        text = Text(no_wrap=True, end="").append(" ckptdoctor  ", self._style("name"))
        return text.append(fit_middle(self._what(left), left), self.rich_style).append_text(right).append(" ")

    def _what(self, room: int) -> str:
        """As many of the pieces as there is room for."""
        said = self.what[0]
        for piece in self.what[1:]:
            if cell_len(f"{said} · {piece}") > room:
                break
            said = f"{said} · {piece}"
        return said

    def _right(self) -> Text:
        text = Text("")
        if self.state:
            text.append(f"  {self.state}", self._style("dim"))
        for severity, number in self.counts.items():
            text.append(f"  {plural(number, *_PLURALS[severity])}", self._style(severity.value))
        return text

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"title--{name}")


def counted(findings: Iterable[Finding]) -> dict[Severity, int]:
    """How many findings there are of each severity, worst first."""
    found = Counter([finding.severity for finding in findings])
    return {severity: found[severity] for severity in reversed(Severity) if found[severity]}
