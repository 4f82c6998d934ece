"""Reports what became of a source in an export, as text for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from ckptdoctor.against.links import HALVED, PAIRED, TRANSPOSED
from ckptdoctor.against.report import AgainstReport, Fate, Place, Verdict
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.json import SCHEMA, dump
from ckptdoctor.rendering.numbers import size
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.wording import beyond, listed, plural

_LISTED = 20  # tensors that are named one by one
_NAME = 60  # characters of a name
_TOLD = 200  # characters of a reason
_NOWHERE = "it does not come from the source"
_ORDERS = {PAIRED: "rows in rotary pairs", HALVED: "rows in rotary halves", TRANSPOSED: "transposed"}


def rendered(report: AgainstReport, paint: Paint | None = None, every: bool = False) -> str:
    """What is accounted for, by what became of it, and each tensor that is not; ``every``: each that is, too."""
    return "\n".join(_rendered(report, paint or Paint(), every))


def _rendered(report: AgainstReport, paint: Paint, every: bool) -> Iterator[str]:
    failed = [each for each in report.fates if not each.verdict.accounted]
    new = [each for each in report.new if not each.accounted]
    yield " · ".join(
        [
            escape(report.path),
            paint.strong("accounted for" if report.accounted else "not accounted for"),
            f"{plural(len(report.fates), 'tensor')} of {escape(report.source)}",
            f"compared {size(report.bytes_read)} in {report.seconds:.2f} s",
        ]
    )
    lines = [f"  {each.verdict.value:<11}{_short(each.name)}{_because(each)}" for each in failed]
    lines += [f"  {'new':<11}{_short(each.name)}   {escape(each.told) or _NOWHERE}" for each in new]
    yield from lines[:_LISTED]
    if len(lines) > _LISTED:
        yield beyond(len(lines) - _LISTED, "line", before="  and ", after="; --format json lists them all")
    if every:
        yield from (f"  {each.verdict.value:<11}{_one(each)}" for each in report.fates if each.verdict.accounted)
    else:
        yield from _summary([each for each in report.fates if each.verdict.accounted])
    added = [each for each in report.new if each.accounted]
    if added:
        yield f"  added      {plural(len(added), 'tensor')}   {listed([_short(each.name) for each in added], 3)}"


def _because(fate: Fate) -> str:
    told = abridged(escape(fate.told), _TOLD)
    measured = _errors(fate.places) if fate.verdict is Verdict.WRONG and fate.places else ""
    return "   " + "; ".join(filter(None, [told, measured])) if told or measured else ""


def _summary(fates: Sequence[Fate]) -> Iterator[str]:
    """Yield one line for each kind of fate, with the number of its tensors and how far they are from the source."""
    groups: dict[tuple[Verdict, str, str], list[Fate]] = {}
    for each in fates:
        stored = "" if each.verdict is Verdict.SAME else _stored(each)
        groups.setdefault((each.verdict, stored, _changed(each)), []).append(each)
    room = max((len(plural(len(each), "tensor")) for each in groups.values()), default=0)
    for (verdict, stored, changed), some in sorted(groups.items(), key=lambda each: list(Verdict).index(each[0][0])):
        said = [f"as {stored}" if stored else "", changed]
        places = [place for each in some for place in each.places]
        said.append(_errors(places) if verdict in (Verdict.CAST, Verdict.QUANTISED) else "")
        if verdict in (Verdict.DROPPED, Verdict.TIED) or any(each.reshaped is not None for each in places):
            said.append(listed([_short(each.name) for each in some], 3))
        told = "; ".join(filter(None, said))
        yield f"  {verdict.value:<11}{plural(len(some), 'tensor'):<{room}}{f'   {told}' if told else ''}".rstrip()


def _one(fate: Fate) -> str:
    where = listed(list(dict.fromkeys([_place(each) for each in fate.places])), 4)
    said = [where, _changed(fate), _errors(fate.places) if fate.verdict in (Verdict.CAST, Verdict.QUANTISED) else ""]
    said.append(escape(fate.told))
    return f"{_short(fate.name)}   {'; '.join(filter(None, said))}"


def _place(place: Place) -> str:
    return f"{_short(place.link.export)} ({place.stored_as})"


def _stored(fate: Fate) -> str:
    return " and ".join(dict.fromkeys([each.stored_as for each in fate.places]))


def _changed(fate: Fate) -> str:
    """Return how elements got where they are: their order, and whether the tensor became a part or several."""
    found: dict[str, None] = {}
    for each in fate.places:
        link = each.link
        if link.order:
            found[_ORDERS[link.order]] = None
        if link.shifted:
            found["one added"] = None
        if each.reshaped is not None:
            found["in another shape"] = None
        if each.padding:
            rows = plural(abs(each.padding), "row")
            found[f"{rows} of padding {'added' if each.padding > 0 else 'left out'}"] = None
        if each.outcome.through:
            found[f"rounded to {each.outcome.through} first"] = None
    return ", ".join([*_joined(fate), *found])


def _joined(fate: Fate) -> list[str]:
    exports = {each.link.export for each in fate.places}
    if len(exports) == 1 and all(each.fused for each in fate.places):
        return ["as a part of a fused tensor" if len(fate.places) == 1 else "as groups of rows of a fused tensor"]
    return ["split"] if any(each.split for each in fate.places) else []


def _errors(places: Sequence[Place]) -> str:
    largest = max((each.outcome.largest for each in places), default=0.0)
    if not largest:
        return "exact"
    elements = sum(each.outcome.elements for each in places)
    mean = sum(each.outcome.mean * each.outcome.elements for each in places) / elements if elements else 0.0
    return f"largest error {largest:.3g}, mean {mean:.3g}"


def _short(name: str) -> str:
    return abridged(escape(name), _NAME)


def as_json(report: AgainstReport, version: str) -> str:
    """The same, schema ``ckptdoctor/1``: see ``docs/verify-exports.md``."""
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "path": report.path,
            "source": report.source,
            "accounted_for": report.accounted,
            "tensors": [_entry(each) for each in report.fates],
            "new": [{"name": each.name, "accounted_for": each.accounted, "reason": each.told} for each in report.new],
            "bytes_compared": report.bytes_read,
        }
    )


def _entry(fate: Fate) -> dict[str, object]:
    return {
        "name": fate.name,
        "verdict": fate.verdict.value,
        "accounted_for": fate.verdict.accounted,
        "reason": fate.told,
        "places": [_place_entry(each) for each in fate.places],
    }


def _place_entry(place: Place) -> dict[str, object]:
    link, outcome = place.link, place.outcome
    return {
        "tensor": link.export,
        "stored_as": place.stored_as,
        "elements": link.count,
        "source_at": list(link.source_at) if link.order == TRANSPOSED else link.source_at[0],
        "export_at": list(link.export_at) if link.order == TRANSPOSED else link.export_at[0],
        "order": link.order,
        "head_rows": link.head or None,
        "one_added": link.shifted,
        "padding_rows": place.padding,
        "reshaped": None if place.reshaped is None else list(place.reshaped),
        "rounded_through": outcome.through or None,
        "largest_error": _finite(outcome.largest),
        "mean_error": _finite(outcome.mean),
        "relative_error": _finite(outcome.relative),
        "differing": outcome.differing,
        "first_difference": outcome.first,
    }


def _finite(number: float) -> float | None:
    """Return the number, or None for one that JSON cannot hold."""
    return number if isfinite(number) else None
