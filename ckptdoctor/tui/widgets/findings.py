"""Lists the findings, and fills in while the examination runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.binding import BindingType

from ckptdoctor.findings import Finding
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.messages import FindingActivated, FindingSelected
from ckptdoctor.tui.widgets.line_view import PHONE, LineView, fit, of_severity

_CODE = 34  # cells of code and name
_REPAIR = 18
_WIDE = 100  # cells of a line from which on there is room for every word
_MESSAGE = 400  # characters of a message that are considered


class FindingsView(LineView):
    """A line is a finding; enter goes to the first thing that it speaks of."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "activate", "go there", "Go to what the finding is about", show=True),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.findings: list[Finding] = []

    def show(self, findings: list[Finding]) -> None:
        """Show these findings, in this order."""
        before = self.under_cursor()
        self.findings = findings
        self.redraw()
        self.refresh(layout=True)
        if before in findings:
            self.cursor = findings.index(before)

    def count(self) -> int:
        """Return the number of findings so far."""
        return len(self.findings)

    def draw(self, number: int, width: int) -> Iterator[tuple[str, str]]:
        """Yield badge, code and name, message and repair."""
        finding = self.findings[number]
        wide = width >= _WIDE
        badge, look = of_severity(finding.severity)
        if width < PHONE:  # the pane below has its name
            yield f"{badge.strip()} ", look
            yield f"{finding.code}  ", "level"
            yield fit(abridged(escape(finding.message), _MESSAGE), width - len(finding.code) - 4), "plain"
            return
        safety = finding.fix.safety.value if finding.fix is not None else ""
        longest = max([len(each.fix.safety.value) for each in self.findings if each.fix is not None], default=0)
        repair = (f"[f] fix  {safety:<{longest}}" if wide else f"[f] {safety}") if safety else ""
        room = (_REPAIR if wide else len(repair) + 2) if repair else 0
        longest = max([len(f"{each.code} {each.name}") for each in self.findings])
        code = min(_CODE, max(width // 3, min(longest, width * 3 // 7)))
        yield badge.strip() + " ", look
        yield fit(f"{finding.code} {finding.name}", code) + "  ", "level"
        yield fit(abridged(escape(finding.message), _MESSAGE), width - code - 4 - room), "plain"
        yield fit(repair, room, right=True), "dim"

    def selected(self, number: int) -> None:
        """Tell which finding the cursor is on."""
        if number < len(self.findings):
            self.post_message(FindingSelected(self.findings[number]))

    def activated(self, number: int) -> None:
        """Go to the first thing that the finding names."""
        self.post_message(FindingActivated(self.findings[number]))

    def under_cursor(self) -> Finding | None:
        """Return the finding that the cursor is on; None while another pane has the focus."""
        return self.findings[self.cursor] if self.findings and self.has_focus else None
