"""``ckptdoctor.check`` and its report, which shows itself in a session as the command prints it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ckptdoctor.api.arguments import Listener, Path, Words, a_screen, from_python, in_a_screen, several, target, told_as
from ckptdoctor.checkpoint.progress import Progress, follow
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.findings import FileReport, Finding, Report, Severity
from ckptdoctor.noun import noun, replace

if TYPE_CHECKING:
    from ckptdoctor.rules.framework import Rule


@noun
class CheckReport(FileReport):
    """What ``check`` says of one file. Its ``repr`` is what the command prints, cut to a screen."""

    @property
    def ok(self) -> bool:
        """Whether the file was examined, and nothing was found that the command ends with status 1 for."""
        return self.error is None and not self.interrupted and not self.errors and not self.warnings

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What keeps the file from being loaded, or gives a wrong result."""
        return tuple([each for each in self.findings if each.severity is Severity.ERROR])

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What loads in some set-ups only, or is silently wrong in some."""
        return tuple([each for each in self.findings if each.severity is Severity.WARNING])

    def to_json(self) -> str:
        """Return the document that ``ckptdoctor check --format json`` prints of this file."""
        from ckptdoctor import __version__
        from ckptdoctor.rendering.json import render

        return render(Report((self,)), __version__)

    def to_dict(self) -> dict[str, Any]:
        """Return the same as Python objects: its one file."""
        return dict(json.loads(self.to_json())["files"][0])

    def __str__(self) -> str:
        if self.error is not None:
            return f"error: {self.error}"
        from ckptdoctor.rendering.full import file_report

        return file_report(self, width=80)

    __repr__ = in_a_screen

    def _repr_html_(self) -> str:
        from ckptdoctor.rendering.html.cards import cards

        return cards(self)


class RuleList(tuple["Rule", ...]):
    """What ``list_rules`` gives: every rule, with its ``code``, ``name``, ``severity``, ``summary`` and ``page``.

    Its ``repr`` is what the command prints, cut to a screen.
    """

    def to_json(self) -> str:
        """Return the document that ``ckptdoctor rules --format json`` prints."""
        from ckptdoctor.rendering.rule_table import as_json

        return as_json(self)

    def __str__(self) -> str:
        from ckptdoctor.rendering.rule_table import as_text

        return as_text(self, 80)

    def __repr__(self) -> str:
        return a_screen(str(self), "print(rules)")


def list_rules() -> RuleList:
    """Return every rule that ``check`` knows, in the order of the codes: what ``ckptdoctor rules`` lists.

    It is not called ``rules``, because ``ckptdoctor.rules`` is the package from which plugins import what a rule is
    made of.

    >>> import ckptdoctor
    >>> [rule.name for rule in ckptdoctor.list_rules() if rule.code == "N401"]
    ['module-prefix']
    """
    from ckptdoctor.diagnose.catalogue import all_rules

    return RuleList(all_rules())


@from_python
def check(
    path: Path,
    *,
    model: object = None,
    like: Path | None = None,
    config: Path | None = None,
    error: str | BaseException | None = None,
    root: str | None = None,
    deep: bool = False,
    select: Words | None = None,
    extend_select: Words = (),
    ignore: Words = (),
    progress: Listener | None = None,
) -> CheckReport:
    """Return what is wrong with one checkpoint, worst finding first, and what was not examined.

    ``model`` is what it should fit: a torch.nn.Module, a mapping of keys to tensors or shapes, a ``Reference``, or
    "nets:Net", the name of your code. Or ``like``, another checkpoint; or ``config``, a Hugging Face config.json; or
    ``error``, an error of ``load_state_dict`` or its text. ``root`` is the state dict that matters ("state_dict");
    ``deep`` reads every byte. ``select``, ``extend_select`` and ``ignore`` are one rule code, name or
    prefix, or several.
    ``progress`` is called with ``what``, ``done`` and ``total`` bytes while that goes on.

    Damage is a finding; ``report.error`` is set for what could not be examined at all, such as a missing file.
    Raises UsageError for a bad rule code or target, and what is wrong with the file ``like``.

    >>> import ckptdoctor
    >>> report = ckptdoctor.check("sample_ckpts/sick/N401-module-prefix.pt", select=["N401"])
    >>> report.ok, [finding.code for finding in report.errors]
    (False, ['N401'])
    """
    from ckptdoctor.examine.file import diagnose

    reference, settings = target(model, like, config, error)
    selection = Selection(None if select is None else several(select), several(ignore), several(extend_select))
    settings = replace(settings, selection=selection, deep=deep, root=root, unpack=False)

    def hear(event: object) -> None:
        if progress is not None and isinstance(event, Progress):
            progress(event)

    report = follow(diagnose(os.fsdecode(path), settings, reference), hear)
    if report.interrupted:
        raise KeyboardInterrupt
    return told_as(CheckReport, report)
