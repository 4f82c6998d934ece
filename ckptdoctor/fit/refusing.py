"""The refusal to load what does not fit: how much does, what is in the way and why, and how to decide it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ckptdoctor.checkpoint import show_path
from ckptdoctor.checkpoint.unread import told_of, unread_files
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.alignment import Alignment, Comparison
from ckptdoctor.findings import Finding, Severity
from ckptdoctor.wording import and_more, plural

_SHOWN = 5  # keys, and findings, that are named one by one
_FAMILIES = ("R", "S", "W", "N", "P204")  # rules on names, shapes and structure, and on modules pickled whole


def refusal(
    comparison: Comparison, now: Alignment, doubled: Sequence[str], findings: Iterable[Finding]
) -> RefusedError:
    """The error to raise: a sentence, and a line for each thing that is in the way."""
    checkpoint, reference = comparison.checkpoint, comparison.reference
    if comparison.rivals and comparison.state_dict is not None:
        places = [show_path(each.path) or "the top level" for each in (comparison.state_dict, *comparison.rivals)]
        return RefusedError(
            f"{checkpoint.path} holds more than one set of weights that fits {reference.source} equally well "
            f"({', '.join(places[:_SHOWN])}): choose with root={places[0]!r} or another."
        )
    lines = [
        f"{checkpoint.path} does not fit {reference.source}: {len(now.fits):,} of "
        f"{plural(len(reference.tensors), 'key')} do "
        f"({now.parameters:,} of {plural(comparison.total_parameters, 'parameter')})."
    ]
    unread = unread_files(checkpoint)
    lines += [f"  {told_of(checkpoint, unread)}."] if unread else []
    lines += _named("missing", now.missing)
    lines += _named("left over", now.unexpected)
    lines += _named("of another shape", [_shapes(comparison, now, key) for key in now.mismatched])
    lines += _named("would get a name that another key has", doubled)
    lines += [f"  {each.code} {each.name}: {each.message}." for each in _telling(comparison, findings)]
    if not all(move.sure for move in comparison.moves):
        lines.append("  More names can be guessed from their order, but not proven; no guess is made here.")
    lines.append(
        f"  ckptdoctor check {checkpoint.path} --model … says more, ckptdoctor fix repairs what needs a new file, and "
        "strict=False gives what fits."
    )
    return RefusedError("\n".join(lines))


def _shapes(comparison: Comparison, now: Alignment, key: str) -> str:
    return f"{key} {list(now.here[key].shape)} for {list(comparison.reference.tensors[key].shape)}"


def _named(what: str, keys: Sequence[str]) -> list[str]:
    if not keys:
        return []
    return [f"  {what}: {and_more(keys, _SHOWN)}"]


def _telling(comparison: Comparison, findings: Iterable[Finding]) -> list[Finding]:
    """What explains the misfit: not what has been repaired on the way."""
    done = {step.code for step in comparison.steps}
    wanted = [each for each in findings if each.code.startswith(_FAMILIES) and each.severity is not Severity.INFO]
    return [each for each in wanted if each.code not in done][:_SHOWN]
