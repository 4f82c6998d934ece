"""Reports a graft, as text and as JSON: what was taken or flipped back, and how far both copies are alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import KeyPath, show_path
from ckptdoctor.edits.grafts import Graft, GraftReport, Ground, Likeness
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.flipped_bits import as_entry, flipped_back
from ckptdoctor.rendering.json import SCHEMA, dump
from ckptdoctor.rendering.numbers import plural, shape, size
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.wrapping import abridged, wrapped
from ckptdoctor.wording import and_more, beyond, format_name, listed

_LISTED = 20  # tensors that are named one by one
_NAMED = 3  # tensors that a sentence names
_NAME = 60  # characters of a name
_GROUNDS = {
    Ground.CHECKSUM: "the other copy's bytes match the checksum of the original save",
    Ground.PUBLISHED: "the whole file then has a hash that was published for it",
    Ground.COPIES: "both files agree in everything else that was compared, so they are taken for copies of one save",
    Ground.CONSENT: "you gave --unsafe-fixes: nothing shows that both belong to one save, and the result is a mixture",
}


def planned(report: GraftReport, paint: Paint | None = None, width: int | None = None) -> str:
    """Return the plan, and how far the two copies are alike: printed before anything is written."""
    return "\n".join(_planned(report, paint or Paint(), width))


def outcome(report: GraftReport, paint: Paint | None = None, width: int | None = None) -> str:
    """Return the outcome, what was proven of it, and what to do next: printed behind ``planned``."""
    return "\n".join(_outcome(report, paint or Paint(), width))


def _planned(report: GraftReport, paint: Paint, width: int | None) -> Iterator[str]:
    named = [[each.path for each in every] for every in (report.grafted, report.healed, report.left)]
    count = len(set().union(*named))
    yield f"{escape(report.path)} · {format_name(report.format)} · {_chosen(report, count)}"
    if report.donor is not None:
        yield from wrapped(f"  alike     {_likeness(report, report.donor)}", width, "", "            ")
    if report.fetched is not None:
        yield f"  fetched   {size(report.fetched)} of {size(report.donor_size)}"
    if report.grafted:
        nbytes = sum(each.nbytes for each in report.grafted)
        yield f"  grafted   {plural(len(report.grafted), 'tensor')}   {size(nbytes)}"
    names = [_name(each.path) for each in report.grafted[:_LISTED]]
    room = max(map(len, names), default=0)
    for name, each in zip(names, report.grafted, strict=False):
        yield f"    {name:<{room}}   {each.dtype} {shape(each.shape)}   {_why(each)}"
    if len(report.grafted) > _LISTED:
        yield beyond(len(report.grafted) - _LISTED, before="    and ", after="; --format json lists them all")
    for ground in Ground:
        some = [each for each in report.grafted if each.ground is ground]
        if some:
            of = "" if len(some) == len(report.grafted) else f"{len(some):,} of them: "
            yield from wrapped(f"  because   {of}{_GROUNDS[ground]}", width, "", "            ")
    yield from flipped_back(report.healed, 10)
    if report.left:
        yield f"  left      {plural(len(report.left), 'tensor')}, damaged as before"
    for left in report.left[:_LISTED]:
        yield f"    {_name(left.path)} {escape(left.trouble)}, and {abridged(escape(left.why))}"
    if report.beside:
        verb = (
            "is damaged and stays damaged: it was" if report.beside == 1 else "are damaged and stay damaged: they were"
        )
        yield f"note · {plural(report.beside, 'other tensor')} {verb} not requested"
    for told in report.around:
        yield from wrapped(f"note · stays damaged: {escape(told)}", width, "", "  ")
    if report.unexamined:
        yield f"note · not examined: {escape(report.unexamined)}"
    if report.fetched is not None and report.grafted and not report.published:
        yield from wrapped(f"note · {_unproven(report)}", width, "", "  ")


def _outcome(report: GraftReport, paint: Paint, width: int | None) -> Iterator[str]:
    if not report.changes:
        yield from wrapped(f"nothing to do · {_nothing(report)}", width, "", "  ")
        return
    if not report.written:
        yield f"would write {escape(report.output or '')}; nothing was written"
        return
    kept = "the original was replaced" if report.replaces_original else "the original is untouched"
    yield f"{paint.strong('wrote')} {escape(report.output or '')} in {report.seconds:.2f} s; {kept}"
    told = "every other byte as it was"
    if report.healed:
        one = len(report.healed) == 1
        match = "matches its checksum" if one else "match their checksums"
        told = f"{plural(len(report.healed), 'healed tensor')} {match}, {told}"
    if report.grafted:
        both = f"{escape(report.output or '')} and {escape(report.donor or '')}"
        told = f"{plural(len(report.grafted), 'tensor')} equal in {both}, {told}"
    if report.format == "torch zip" and any(each.ground is not Ground.CHECKSUM for each in report.grafted):
        told += (
            f", except for the {'checksum' if len(report.grafted) == 1 else 'checksums'} of the changed "
            f"{'tensor' if len(report.grafted) == 1 else 'tensors'}"
        )
    yield from wrapped(f"verified · {told}", width, "", "  ")
    if report.published:
        yield from wrapped(f"verified · the whole file has {escape(report.published)}", width, "", "  ")
    yield f"next · {paint.accent(_next(report))}"


def _chosen(report: GraftReport, count: int) -> str:
    if not count:
        return "it has no known damage"
    named = sum(each.trouble == "was named" for each in report.grafted)
    verb = "is" if count == 1 else "are"
    what = "to be replaced" if named == count else "damaged" if not named else "damaged or to be replaced"
    return f"{count:,} of {plural(report.tensors, 'tensor')} {verb} {what}"


def _likeness(report: GraftReport, donor: str) -> str:
    likeness = report.likeness
    other = "other " if report.changes or report.left else ""
    if likeness.by_checksums:
        told = _by_checksums(likeness, other)
    elif not likeness.compared:
        told = f"{escape(donor)} has no {other}tensor to compare"
    elif likeness.alike:
        which = f"the one {other}tensor" if likeness.equal == 1 else f"all {likeness.equal:,} {other}tensors"
        told = f"the copies agree in {which} that both have"
    else:
        told = f"the copies agree in {likeness.equal:,} of {plural(likeness.compared, f'{other}tensor')} that both have"
        told += f": {_first(likeness.unlike)} differ{'s' if len(likeness.unlike) == 1 else ''}"
    if likeness.alone:
        told += f"; {plural(likeness.alone, 'tensor')} of the file {'is' if likeness.alone == 1 else 'are'} not there"
    if likeness.others:
        told += f"; {plural(likeness.others, 'value')} other than tensors differ{'s' if likeness.others == 1 else ''}"
    return told


def _by_checksums(likeness: Likeness, other: str) -> str:
    """Return how far the headers of a copy tell that it is one, of which nothing else was read."""
    if not likeness.compared:
        return f"no {other}tensor has a checksum in both, and none was fetched to be compared"
    tensors = plural(likeness.compared, f"{other}tensor")
    if likeness.alike:
        return f"by their checksums, the copies agree in all of {tensors} that have one in both"
    verb = "differs" if len(likeness.unlike) == 1 else "differ"
    return f"by their checksums, the copies agree in {likeness.equal:,} of {tensors}: {_first(likeness.unlike)} {verb}"


def _unproven(report: GraftReport) -> str:
    """Return what is not proven of an output for which no published hash speaks."""
    one = len(report.grafted) == 1
    if report.left or report.beside:
        why = "it is still damaged"
    elif report.unlike_published:
        why = f"it does not have {escape(listed(report.unlike_published))}"
    else:
        why = "no hash of it is published"
    if all(each.ground is Ground.CHECKSUM for each in report.grafted):
        proof = f"proven by {'its' if one else 'their'} checksum{'' if one else 's'}"
    else:
        proof = "not proven"
    return f"the file as a whole is not proven: {why}. The grafted {'tensor is' if one else 'tensors are'} {proof}"


def _why(each: Graft) -> str:
    source = f", from {_name(each.came_from)}" if each.came_from is not None else ""
    return f"{escape(each.trouble)}{source}"


def _nothing(report: GraftReport) -> str:
    unlike = report.likeness.unlike
    if report.donor is None:
        if report.beside:
            return "no tensor that was requested is known to be damaged"
        unseen = "; without checksums a changed value cannot be detected" if report.unsummed else ""
        return f"no tensor is known to be damaged{unseen}"
    if not unlike:
        return "no tensor is damaged, and nothing was named with --key"
    told = "no tensor is known to be damaged"
    if report.unsummed:
        told += ", but without checksums a changed value cannot be detected"
    return f"{told}. If the values of {_first(unlike)} are wrong here, name them with --key"


def _first(paths: Sequence[KeyPath]) -> str:
    return and_more(paths, _NAMED, say=_name)


def _name(path: KeyPath) -> str:
    return abridged(escape(show_path(path)), _NAME)


def _next(report: GraftReport) -> str:
    from ckptdoctor.shell import quote

    return f"ckptdoctor {'salvage' if report.around else 'check --deep'} {quote(report.output or '')}"


def as_json(report: GraftReport, version: str) -> str:
    """Return the same, schema ``ckptdoctor/1``; ``because`` is "checksum", "published", "copies" or "consent"."""
    status = "grafted" if report.written else "planned" if report.changes else "nothing to do"
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "path": report.path,
            "from": report.donor,
            "output": report.output,
            "status": status,
            "message": None,
            "format": report.format,
            "tensors": report.tensors,
            "alike": _as_json(report.likeness),
            "grafted": [_entry(each) for each in report.grafted],
            "healed": [as_entry(each) for each in report.healed],
            "left": [{"key": show_path(each.path), "trouble": each.trouble, "why": each.why} for each in report.left],
            "damaged_beside": report.beside,
            "damaged_around": list(report.around),
            "new_bytes": report.new_bytes,
            "not_examined": report.unexamined or None,
            "fetched": report.fetched,
            "published": report.published or None,
            "unlike_published": list(report.unlike_published),
            "replaces_original": report.replaces_original,
            "seconds": round(report.seconds, 4),
        }
    )


def _as_json(likeness: Likeness) -> dict[str, object]:
    return {
        "compared": likeness.compared,
        "equal": likeness.equal,
        "unlike": [show_path(path) for path in likeness.unlike],
        "other_values_that_differ": likeness.others,
        "tensors_only_here": likeness.alone,
    }


def _entry(each: Graft) -> dict[str, object]:
    return {
        "key": show_path(each.path),
        "from": show_path(each.path if each.came_from is None else each.came_from),
        "dtype": each.dtype,
        "shape": list(each.shape),
        "bytes": each.nbytes,
        "trouble": each.trouble,
        "because": each.ground.value,
    }


def refused_json(path: str, donor: str | None, message: str, version: str, status: str = "refused") -> str:
    """Return a graft that was refused, and why; or one that was "interrupted"."""
    head = {"schema": SCHEMA, "version": version, "path": path, "from": donor, "output": None, "status": status}
    return dump({**head, "message": message})
