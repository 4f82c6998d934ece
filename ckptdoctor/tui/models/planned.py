"""The plan of a repair as rows: every step, and every name before and after it, many of one kind put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ckptdoctor.checkpoint import show_path
from ckptdoctor.edits import Safety
from ckptdoctor.edits.steps import Change, Step
from ckptdoctor.findings import Finding, RepairReport, Severity
from ckptdoctor.report.escape import escape
from ckptdoctor.report.fix_text import counted, in_words
from ckptdoctor.report.grouping import grouped
from ckptdoctor.report.numbers import plural, size
from ckptdoctor.report.wrapping import abridged

DROPPED = "dropped"
_NAMES = 2_000  # characters of one side of an arrow: more than any pattern of names that people gave
_MESSAGE = 400
_TOLD = ("optimizer-unfit", "cast-loss", "replace", "set-metadata", "convert", "repickle", "set-suffix", "retag")


@dataclass(frozen=True, slots=True)
class Row:
    """One row, escaped. ``look`` says how it is shown; ``after`` stands behind an arrow, ``right`` at the end.

    Rows of one ``block`` have their arrows below each other, where there is room.
    """

    look: str
    text: str = ""
    after: str = ""
    right: str = ""
    block: int = 0


def rows(report: RepairReport) -> list[Row]:
    """All of the plan. Groups of names are found anew, which is work for a thread where there are many."""
    found: list[Row] = []
    for number, step in enumerate(report.steps):
        found += [Row("plain")] if number else []
        found += _step(step)
    found += _left(report.left)
    return found


def amount(report: RepairReport) -> str:
    """How much of the output differs from the original."""
    return f"{size(report.new_bytes)} of {size(report.size)} will differ" if report.new_bytes else "no byte will differ"


def summary(report: RepairReport) -> str:
    """How many steps, and how safe."""
    unsafe = sum([step.safety is Safety.UNSAFE for step in report.steps])
    confirmed = any(step.safety is Safety.CONFIRMED for step in report.steps)
    safety = f"{unsafe} unsafe" if unsafe else "safe or confirmed by the target" if confirmed else "safe"
    return f"{plural(len(report.steps), 'step')}, {safety}"


def dropped(report: RepairReport) -> list[str]:
    """What the output does not have any more, in few words."""
    return [in_words(change, step) for step in report.steps for change in step.changes if _drops(change)]


def _step(step: Step) -> Iterator[Row]:
    fit = "" if step.fit is None else f"{step.fit[0]:,} of {plural(step.fit[1], 'key')} fit"
    safety = step.safety.value if step.safety is not Safety.SAFE else ""
    yield Row("step", escape(f"{step.label} {step.name}".rstrip()), right=" · ".join(filter(None, (safety, fit))))
    for change in step.changes:
        yield Row("note", _title(change, step), right="" if _is_told(change) and not change.pairs else "")
        yield from _pairs(change, step)


def _title(change: Change, step: Step) -> str:
    place = show_path(change.place) if change.place else ""
    said = counted(change)
    if change.kind != "rename" and place and not _is_told(change):
        said += f" in {abridged(escape(place))}"
    name = _NOUNS.get(change.kind, "")
    title = name or escape(step.title)
    return f"{title} · {said}" if said else title


_NOUNS = {"rename": "keys", "rename-modules": "names of modules in _metadata", "drop": "dropped", "retag": "device tags"}


def _pairs(change: Change, step: Step) -> Iterator[Row]:
    block = id(change)
    if _is_told(change):
        before, _, after = in_words(change, step).partition("  →  ")
        if after or before != escape(step.title):
            yield Row("pair", before, after, block=block)
        return
    look = DROPPED if _drops(change) else "pair"
    for old, new, number in grouped(change.pairs):
        one = "" if number == 1 else f"{number:,}"
        yield Row(look, _name(old or new), _name(new) if old else "", one, block)


def _is_told(change: Change) -> bool:
    """Whether the change is one line of words, and no list of names."""
    return not change.pairs or change.kind in _TOLD


def _drops(change: Change) -> bool:
    return change.kind in ("drop", "take-root")


def _name(text: str) -> str:
    return abridged(escape(text), _NAMES)


def _left(findings: Iterable[Finding]) -> Iterator[Row]:
    """What stays as it is although it was to be repaired."""
    wanted = [each for each in findings if each.severity is not Severity.INFO and each.fix is None]
    if wanted:
        yield Row("plain")
        yield Row("step", "stays as it is")
    for finding in wanted:
        message = abridged(escape(finding.message), _MESSAGE)
        yield Row("note", f"{finding.code} {finding.name} · {message}")
