"""An explanation is compared with the file that it is about: the file is examined for what the error says of it."""

from __future__ import annotations

from contextlib import suppress

from ckptdoctor.errors import UsageError
from ckptdoctor.examine.file import check
from ckptdoctor.explaining.confirm import confirm
from ckptdoctor.explaining.explanation import Confirmation, Explanation
from ckptdoctor.explaining.load_error import load_error
from ckptdoctor.explaining.text import cleaned
from ckptdoctor.findings import FileReport
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.target.error_text import as_reference


def verdict(explained: Explanation, raw: str, path: str) -> tuple[Confirmation, FileReport]:
    """Return what the file at ``path`` says to the first cause of an explanation, of which ``raw`` is the text.

    With it comes the report that it follows from. Only headers are read. What is wrong with the file itself is a
    verdict as well: nothing is raised for it.
    """
    error = load_error(cleaned(raw))
    report = check(path)
    if error is not None and report.checkpoint is not None:
        with suppress(UsageError):  # there are no weights that the error could be about: the plain report says so
            report = check(path, reference=as_reference(error, report.checkpoint).reference)
    return confirm(explained.hits[0], report, error, frozenset([rule.code for rule in all_rules()])), report
