"""Whether contents fit a target completely, and the refusal that says what does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from glob import escape

from ckptdoctor.checkpoint import Checkpoint, show_path
from ckptdoctor.checkpoint.expectation import Expected, Reference
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.checkpoint.wording import plural
from ckptdoctor.engine.request import FixRequest, again
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.adapters import foreign
from ckptdoctor.facts.alignment import Alignment, Comparison, compare
from ckptdoctor.facts.layouts import family_of, layout
from ckptdoctor.facts.meanings import is_code
from ckptdoctor.facts.norms import final_versions, missing_counters
from ckptdoctor.facts.rivals import rival_parts
from ckptdoctor.facts.shapes.gates import spelled
from ckptdoctor.facts.shapes.sorting import shapes
from ckptdoctor.facts.shapes.stacking import stacks
from ckptdoctor.facts.weight_norms import computable
from ckptdoctor.rules.layout_edits import lacking

_SHOWN = 5  # keys that a refusal names


def require_one_choice(checkpoint: Checkpoint, reference: Reference, request: FixRequest) -> None:
    """Raise RefusedError where several state dicts, or parts of one, fit a target equally well: raw and averaged, say.

    Which of them is wanted only a person can know.
    """
    total = plural(len(reference.tensors), "key")
    whole = [each for each in weights_among(checkpoint.state_dicts) if each.path]
    if len(whole) > 1:
        fits = {each.path: len(compare(checkpoint, reference, each.path).cured.fits) for each in whole}
        best = [path for path, keys in fits.items() if keys and keys == max(fits.values())]
        if len(best) > 1:
            lines = [f"more than one set of weights fits {reference.source}: choose one."]
            for path in best:
                name = show_path(path)
                lines.append(f"  {name}, {fits[path]:,} of {total}: {again(replace(request, root=name))}")
            raise RefusedError("\n".join(lines))
    state_dict = compare(checkpoint, reference).state_dict
    parts = rival_parts({each.key: each for each in state_dict.tensors}, reference) if state_dict is not None else ()
    if parts:
        lines = [f"more than one part fits {reference.source}: choose one."]
        for part in parts:
            command = again(replace(request, keep=(*request.keep, f"{escape(part)}*")))
            lines.append(f"  {part.removesuffix('.')}, {total}: {command}")
        raise RefusedError("\n".join(lines))


def require_fit(checkpoint: Checkpoint, reference: Reference, unsafe: bool = False) -> None:
    """Raise RefusedError unless ``load_state_dict(strict=True)`` of the target would take these contents.

    The sentence says how much fits, what is in the way, and how to decide it.
    """
    comparison = compare(checkpoint, reference)
    if not fits(comparison):
        raise RefusedError(_why(comparison, unsafe))


def fits(comparison: Comparison) -> bool:
    """Whether every wanted key is here in its shape, and no other one; the counters that torch sets itself apart."""
    plain, wanted = comparison.plain, comparison.reference.tensors
    if comparison.nested or comparison.steps or plain.unexpected or plain.mismatched or codes(plain, wanted):
        return False
    _, unasked = missing_counters(comparison, final_versions(comparison))
    return set(plain.missing) <= set(unasked)


def codes(plain: Alignment, wanted: Mapping[str, Expected]) -> tuple[str, ...]:
    """Keys that are integers here, and floats in the target: codes of a quantised layer, which torch would load."""
    return tuple([key for key in plain.fits if is_code(plain.here[key], wanted[key])])


def _why(comparison: Comparison, unsafe: bool) -> str:
    plain, source = comparison.plain, comparison.reference.source
    total = len(comparison.reference.tensors)
    lines = [
        f"no chain of repairs makes this file fit {source}: {len(plain.fits):,} of {plural(total, 'key')} would fit."
    ]
    lines += _lines("missing", plain.missing) + _lines("left over", plain.unexpected)
    lines += _lines("another shape", plain.mismatched)
    lines += _lines("integers, which are no weights without their scale", codes(plain, comparison.reference.tensors))
    if comparison.moves:
        lines.append(
            "  some names can only be guessed from their order, and no guess is written: say them with --rename"
        )
    lines += [] if unsafe else _undone(comparison)
    family = family_of(layout(plain.here), layout(comparison.reference.tensors))
    said = lacking(comparison)
    if said:
        lines.append(f"  {said}")
    elif family is not None:
        lines.append(f"  another code base arranged these values: convert it with {family.converter}")
    option = comparison.reference.option or "--like OTHER"
    lines.append(f"  ckptdoctor check FILE {option} says what each of them means")
    return "\n".join(lines)


def _undone(comparison: Comparison) -> list[str]:
    """What --unsafe-fixes does, where nothing else keeps it from being done."""
    norms, found = computable(comparison), shapes(comparison)
    lines = []
    adapter = foreign(comparison.state_dict, comparison.reference.tensors)
    if adapter is not None and adapter.wrapped and not adapter.copies:
        lines.append(
            "  there is an adapter in it, which is not merged: --merge-adapter adds it, --unsafe-fixes leaves it out"
        )
    if norms:
        what = ", ".join(norms[0].parts)
        lines.append(f"  {norms[0].key} has to be computed of its norm ({what}): add --unsafe-fixes")
    if any(spelled(each) for each in found.gates):
        lines.append("  the order of gate and up projection is told by their name alone: --unsafe-fixes trusts it")
    if any(stacks(comparison, each) for each in found.experts):
        lines.append("  the slices of stacked experts may be transposed: --unsafe-fixes goes by their shapes")
    return lines


def _lines(what: str, keys: tuple[str, ...]) -> list[str]:
    if not keys:
        return []
    more = f" and {len(keys) - _SHOWN:,} more" if len(keys) > _SHOWN else ""
    return [f"  {what}: {', '.join(keys[:_SHOWN])}{more}"]
