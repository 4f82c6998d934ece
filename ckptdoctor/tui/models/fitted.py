"""Shows the fit to a target as rows: coverage before and after each repair, and leftovers in groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ckptdoctor.checkpoint.expectation import Coverage
from ckptdoctor.fit.fit import Fit, Misfit, Pair
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.grouping import grouped
from ckptdoctor.rendering.numbers import plural, shape
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.tui.models.planned import DROPPED

_NAME = 2_000  # characters of a pattern of names


@dataclass(frozen=True, slots=True)
class FitRow:
    """A row of the upper list: as it is, a step (``number`` counts from 1), or a kind of leftover.

    ``keys`` and ``parameters`` fit by then; None where that is not what the row is about.
    """

    title: str
    code: str = ""
    number: int = 0
    keys: int | None = None
    parameters: int | None = None
    pairs: tuple[Pair, ...] = ()
    misfits: tuple[Misfit, ...] = ()


@dataclass(frozen=True, slots=True)
class FitNames:
    """A row of the lower list, escaped: names before, names after ("": there is no arrow), and what follows them."""

    before: str
    after: str = ""
    right: str = ""


def rows(fit: Fit) -> list[FitRow]:
    """Return the chain from the top down, and what is left over after it."""
    found = [FitRow("as it is", keys=fit.keys, parameters=fit.parameters)]
    for number, step in enumerate(fit.steps, 1):
        title = abridged(escape(step.title), _NAME)
        found.append(FitRow(title, step.code, number, step.keys, step.parameters, pairs=step.pairs))
    after = " after that" if fit.steps else ""
    for title, misfits in (
        ("missing", fit.missing),
        ("shape mismatch", fit.mismatched),
        ("unexpected", fit.unexpected),
    ):
        if misfits:
            found.append(FitRow(f"{title}{after}", misfits=misfits))
    return found


def names_of(row: FitRow) -> list[FitNames]:
    """Return the names that a row is about, those of one kind together: work for a thread where there are many."""
    if row.misfits:
        return list(_misfits(row.misfits))
    return [FitNames(_name(old), _name(new) if new else DROPPED, _times(number)) for old, new, number in _groups(row)]


def headline(fit: Fit) -> str:
    """Return how well the file fits in one sentence, escaped."""
    target, whole = escape(fit.target), plural(fit.total_keys, "key")
    begin = f"{fit.keys:,} of {whole} fit {target} as it is"
    if not fit.steps:
        if fit.keys == fit.total_keys:
            return f"all {whole} of {target} are here and fit" + ("" if fit.complete else ", with others left over")
        return f"{begin}; no renaming makes the rest fit"
    rest = "" if fit.keys_after == fit.total_keys else "; no renaming makes the rest fit"
    more = f"; {plural(len(fit.unexpected), 'unexpected key')}" if fit.unexpected and not rest else ""
    return f"{begin}, {fit.keys_after:,} after {plural(len(fit.steps), 'step')}{rest}{more}"


def fits(coverage: Coverage) -> str:
    """Return how many keys of a target fit, before and after the chain, in a few words."""
    after = f" → {coverage.steps[-1].keys:,}" if coverage.steps else ""
    return f"{coverage.keys:,}{after} of {plural(coverage.total_keys, 'key')} fit {escape(coverage.reference)}"


def _groups(row: FitRow) -> Iterator[tuple[str, str, int]]:
    stay = [(old, new) for old, new in row.pairs if new]
    yield from ((old, new, 1) for old, new in row.pairs if not new)
    yield from grouped(stay)


def _misfits(misfits: Sequence[Misfit]) -> Iterator[FitNames]:
    kinds: dict[tuple[object, object], list[str]] = {}
    for each in misfits:
        both = each.here is not None and each.wanted is not None
        kinds.setdefault((each.here, each.wanted) if both else (None, None), []).append(each.key)
    shapes = {each.key: each.here if each.here is not None else each.wanted for each in misfits}
    for (here, wanted), keys in kinds.items():
        for names, _, number in grouped([(key, key) for key in keys]):
            if isinstance(here, tuple) and isinstance(wanted, tuple):
                told = f"{shape(here)} here, {shape(wanted)} expected"
            else:
                one = shapes[keys[0]] if len(keys) == 1 else shapes.get(names)
                told = shape(one) if one is not None else ""
            yield FitNames(_name(names), "", "   ".join(filter(None, (told, _times(number)))))


def _times(number: int) -> str:
    return "" if number == 1 else plural(number, "key")


def _name(text: str) -> str:
    return abridged(escape(text), _NAME)
