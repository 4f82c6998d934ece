"""Refuses a graft that heals nothing, and one that would mix two saves without consent, each with what to do next."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ckptdoctor.checkpoint import show_path
from ckptdoctor.edits.grafts import GraftReport, Ground, Likeness
from ckptdoctor.errors import RefusedError
from ckptdoctor.grafting.remote_copy import download_and_graft
from ckptdoctor.grafting.request import GraftRequest
from ckptdoctor.shell import quote
from ckptdoctor.wording import and_so_on, first_few, listed, plural

_NAMED = 3  # tensors that a message names
_FEW = 10  # as the part of all: fewer that differ may be damaged, and are no sign of another training step


def require_healing(request: GraftRequest, report: GraftReport, denied: bool) -> None:
    """Raise RefusedError where nothing can be done, and for what needs a consent that was not given.

    ``denied``: some new bytes do not match the checksum that the file states of them.
    """
    stays = [f"  {show_path(each.path)} {each.trouble}, and {each.why}" for each in report.left]
    if report.left and request.donor is None and not report.healed:
        quoted = quote(request.path)
        lines = [
            f"{request.path}: no flipped bit that is certain explains its damage, so nothing can be healed without "
            "another copy:",
            *first_few(stays, _NAMED, before="  and "),
            "Take the damaged tensors from a copy, or recover what is intact:",
            f"  ckptdoctor graft {quoted} --from OTHER",
            f"  ckptdoctor salvage {quoted}",
        ]
        raise RefusedError("\n".join(lines))
    if report.left and (request.keys or not report.changes):
        what = "the named tensors" if request.keys else "the damaged tensors"
        seen = [f"not examined: {report.unexamined}"] if report.unexamined else []
        lines = [f"{report.donor} cannot stand for {what}:", *first_few(stays, _NAMED, before="  and "), *seen]
        raise RefusedError("\n".join(lines))
    if not report.mixture or request.unsafe:
        return
    alone = [f"Without --from, {plural(len(report.healed), 'tensor')} can be healed."] if report.healed else []
    here = list(_all_of_it(request, report, denied))
    raise RefusedError("\n".join([*_against(request, report, denied), _CONSENT, *here, *alone]))


def _all_of_it(request: GraftRequest, report: GraftReport, denied: bool) -> Iterator[str]:
    """Yield what to do where only the rest of a copy on another machine can show whether it is one."""
    if report.fetched is None or denied or report.likeness.unlike or report.donor is None or report.output is None:
        return
    yield "To compare all of it, download it first:"
    yield from download_and_graft(request.path, report.donor, report.output)


def _as_what(likeness: Likeness, one_file: bool) -> str:
    """Return what it speaks of that so many differ: few may be damaged as well."""
    if one_file:
        return ""
    few = len(likeness.unlike) * _FEW <= likeness.compared
    return "; if that is damage too, name it with --key" if few else ", like those of another training step"


_CONSENT = "The result would be a mixture. Use a copy of the same save, or add --unsafe-fixes if you want a mixture."


def _against(request: GraftRequest, report: GraftReport, denied: bool) -> Iterator[str]:
    """Yield what speaks against two copies of one save."""
    likeness, first = report.likeness, next(each for each in report.grafted if each.ground is Ground.CONSENT)
    assert request.donor is not None
    one_file = os.path.realpath(request.path) == os.path.realpath(request.donor)
    copy = (
        f"{request.from_root} is not a copy of {request.root}"
        if one_file
        else f"{report.donor} is not a copy of that save"
    )
    if report.unlike_published:
        yield f"The result does not have {listed(report.unlike_published)}."
    if likeness.unlike:
        names = and_so_on(map(show_path, likeness.unlike), _NAMED)
        yield (
            f"{copy}: of the {plural(likeness.compared, 'other tensor')} that both have, {len(likeness.unlike):,} "
            f"differ{'s' if len(likeness.unlike) == 1 else ''} ({names}){_as_what(likeness, one_file)}."
        )
    elif likeness.by_checksums and not likeness.equal:
        none = "" if report.unlike_published else ", and no SHA-256 of the whole file is published"
        yield (
            f"Nothing that can be had without reading all of {report.donor} shows that it is a copy of that save: no "
            f"other tensor has a checksum in both files{none}."
        )
    elif not likeness.equal:
        yield f"Nothing shows that {report.donor} is a copy of that save: there is no other tensor that both have."
    if denied:
        yield f"Its bytes for {show_path(first.path)} do not match the checksum of the saved ones."
