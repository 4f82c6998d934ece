"""Shows the plan of a repair as rows: every step, and every name before and after it, many of a kind together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ckptdoctor.checkpoint import Node, at, children, show_part, show_path
from ckptdoctor.edits import Safety
from ckptdoctor.edits.fix import Change, Step
from ckptdoctor.findings import Finding, RepairReport, Severity
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.fix_text import counted, how_safe, in_words
from ckptdoctor.rendering.grouping import grouped
from ckptdoctor.rendering.numbers import plural, size
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.wording import and_more, format_name
from ckptdoctor.writing.target import MARK

DROPPED = "dropped"
_NAMES = 2_000  # characters of one side of an arrow: more than any pattern of names that people gave
_MESSAGE = 400
_WORD = 60  # characters of one of them
_TRIED = 1_000  # numbers that are tried for a free name
_SAFETENSORS = "safetensors"
_NAMED = 12  # things that are named before the rest is counted
_TOLD = ("optimizer-unfit", "cast-loss", "replace", "set-metadata", "convert", "repickle", "set-suffix", "retag")


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One row, escaped. ``look`` says how it is shown; ``after`` follows an arrow, ``right`` is at the end.

    Rows of one ``block`` have their arrows below each other, where there is room.
    """

    look: str
    text: str = ""
    after: str = ""
    right: str = ""
    block: int = 0


def rows(report: RepairReport, tree: Node = None) -> list[PlanRow]:
    """Return all of the plan, for contents that are ``tree`` before it.

    Groups of names are found again, which is work for a thread where there are many.
    """
    found: list[PlanRow] = []
    for number, step in enumerate(report.steps):
        found += [PlanRow("plain")] if number else []
        found += _step(step, tree)
    found += _left(report.left)
    return found


def changed_bytes(report: RepairReport) -> str:
    """Return how many bytes of the output differ from the original, in words."""
    return f"{size(report.new_bytes)} of {size(report.size)} will differ" if report.new_bytes else "no byte will differ"


def summary(report: RepairReport) -> str:
    """Return the number of steps, and how safe they are."""
    return f"{plural(len(report.steps), 'step')}, {how_safe(report.steps)}"


def dropped(report: RepairReport, tree: Node = None) -> list[str]:
    """Return what the output no longer has, in few words."""
    found = []
    for step in report.steps:
        for change in step.changes:
            if change.kind == "drop":
                found.append(in_words(change, step).partition("  →  ")[0])
            elif change.kind == "take-root":
                found.append(_beside(change, tree))
    return found


def _beside(change: Change, tree: Node) -> str:
    """Return the names of what is dropped when one part becomes the whole: all that is next to it."""
    names: list[str] = []
    for depth, part in enumerate(change.place or ()):
        try:
            node = at(tree, (change.place or ())[:depth])
        except KeyError:  # an earlier step gave it another name
            continue
        names += [abridged(escape(show_part(each)), _WORD) for each, _ in children(node) if each != part]
    return and_more(names, _NAMED) if names else f"everything next to {_name(show_path(change.place or ()))}"


def _step(step: Step, tree: Node) -> Iterator[PlanRow]:
    fit = "" if step.fit is None else f"{step.fit[0]:,} of {plural(step.fit[1], 'key')} fit"
    safety = step.safety.value if step.safety is not Safety.SAFE else ""
    yield PlanRow("step", escape(f"{step.label} {step.name}".rstrip()), right=" · ".join(filter(None, (safety, fit))))
    told = [change for change in step.changes if _is_told(change)]
    title = escape(step.title)
    titled = not told or _plain(in_words(told[0], step)) != _plain(title)
    if titled:  # otherwise the first change says it
        listed = next((counted(each) for each in step.changes if not _is_told(each)), "")
        yield PlanRow("note", f"{title} · {listed}" if listed else title)
    first = True
    for change in step.changes:
        if not _is_told(change):
            if not first:
                yield PlanRow("note", counted(change))
            first = False
        yield from _pairs(change, step, title if titled else "")
        if change.kind == "take-root":
            yield PlanRow(DROPPED, _beside(change, tree))


def _pairs(change: Change, step: Step, said: str) -> Iterator[PlanRow]:
    """Yield the rows of a change, without what was ``said`` above it."""
    block = id(change)
    if _is_told(change):
        before, _, after = in_words(change, step).partition("  →  ")
        if after or before != said:
            yield PlanRow("pair", before, after, counted(change), block)
        return
    for old, new, number in grouped(change.pairs):
        many = "" if number == 1 else f"{number:,} keys"
        if change.kind == "drop":
            where = f"{abridged(escape(show_path(change.place)))}/" if change.place else ""
            yield PlanRow(DROPPED, where + _name(old), right=many, block=block)
        else:
            yield PlanRow("pair", _name(old or new), _name(new) if old else "", many, block)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _is_told(change: Change) -> bool:
    """Return whether the change is told in one line of words, without a list of names."""
    return not change.pairs or change.kind in _TOLD


def _name(text: str) -> str:
    return abridged(escape(text), _NAMES)


def _left(findings: Iterable[Finding]) -> Iterator[PlanRow]:
    """Yield the findings that stay although they were to be repaired."""
    wanted = [each for each in findings if each.severity is not Severity.INFO and each.fix is None]
    if wanted:
        yield PlanRow("plain")
        yield PlanRow("step", "not repaired")
    for finding in wanted:
        message = abridged(escape(finding.message), _MESSAGE)
        yield PlanRow("note", f"{finding.code} {finding.name} · {message}")


# names of outputs


def objection(output: str, original: str, format: str, typed: str | None = None) -> str:
    """Return why a new file of this format cannot get this name, as a sentence; "" where it can.

    What is there is never replaced. ``typed`` is what somebody gave, which may be the folder of ``output`` alone.
    """
    name = os.path.basename(output)
    if typed and os.path.isdir(typed) and os.path.lexists(output):
        return f"{typed} is a folder that has {name} already: add the name of the new file."
    folder = os.path.dirname(output) or "."
    if not output.strip() or not name:
        return "The new file needs a name."
    if MARK in name:
        return "Names of this kind are for unfinished files: choose another."
    if os.path.lexists(output):
        if os.path.exists(output) and os.path.exists(original) and os.path.samefile(output, original):
            return f"{name} is the original: choose another name for the new file."
        return f"{name} already exists: choose another name."
    if not os.path.isdir(folder):
        return f"There is no folder {folder}."
    if not os.access(folder, os.W_OK):
        return f"{folder} is not writable."
    plain, named = format == _SAFETENSORS, name.endswith(f".{_SAFETENSORS}")
    if plain is not named:
        return f"It stays {format_name(format)}: its name must {'' if plain else 'not '}end in .safetensors."
    return ""


def free(output: str) -> str:
    """Return ``output``, or that name with a number where it is taken: ``model.fixed-2.pt``."""
    if not os.path.lexists(output):
        return output
    stem, suffix = os.path.splitext(output)
    names = (f"{stem}-{number}{suffix}" for number in range(2, _TRIED))
    return next((name for name in names if not os.path.lexists(name)), output)
