"""Colours what carries meaning, and nothing else: errors red, warnings yellow, dim what matters less, one accent."""

from __future__ import annotations

from ckptdoctor.findings import Severity
from ckptdoctor.noun import noun

_OF_SEVERITY = {Severity.ERROR: "1;31", Severity.WARNING: "1;33", Severity.INFO: "1"}


@noun
class Paint:
    """Wraps text in ANSI codes, or leaves it as it is."""

    enabled: bool = False

    def severity(self, severity: Severity, text: str | None = None) -> str:
        """Return the text (None: the severity's own name) in the severity's colour."""
        return self._wrap(severity.value if text is None else text, _OF_SEVERITY[severity])

    def accent(self, text: str) -> str:
        """Return the next thing to look at: a command to copy."""
        return self._wrap(text, "36")

    def strong(self, text: str) -> str:
        """Return a heading."""
        return self._wrap(text, "1")

    def dim(self, text: str) -> str:
        """Return text that matters less."""
        return self._wrap(text, "2")

    def _wrap(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.enabled and text else text
