"""Whether contents fit a target completely, and the refusal that says what does not."""

from __future__ import annotations

from shlex import quote

from ckptdoctor.checkpoint import Checkpoint, show_path
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.checkpoint.wording import plural
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.adapters import foreign
from ckptdoctor.facts.alignment import Comparison, compare
from ckptdoctor.facts.layouts import family_of, layout
from ckptdoctor.facts.norms import final_versions, missing_counters
from ckptdoctor.facts.shapes.gates import spelled
from ckptdoctor.facts.shapes.sorting import shapes
from ckptdoctor.facts.shapes.stacking import stacks
from ckptdoctor.facts.weight_norms import computable

_SHOWN = 5  # keys that a refusal names


def require_one_choice(checkpoint: Checkpoint, reference: Reference) -> None:
    """Raise RefusedError where several state dicts fit a target equally well: raw and averaged weights, say.

    Which of them is wanted only a person can know.
    """
    whole = [each for each in weights_among(checkpoint.state_dicts) if each.path]
    if len(whole) < 2:
        return
    fits = {each.path: len(compare(checkpoint, reference, each.path).cured.fits) for each in whole}
    best = [path for path, keys in fits.items() if keys and keys == max(fits.values())]
    if len(best) > 1:
        total = len(reference.tensors)
        lines = [f"more than one set of weights fits {reference.source}: choose one."]
        lines += [f"  --root {quote(show_path(path))}   {fits[path]:,} of {plural(total, 'key')}" for path in best]
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
    plain = comparison.plain
    if comparison.nested or comparison.steps or plain.unexpected or plain.mismatched:
        return False
    _, unasked = missing_counters(comparison, final_versions(comparison))
    return set(plain.missing) <= set(unasked)


def _why(comparison: Comparison, unsafe: bool) -> str:
    plain, source = comparison.plain, comparison.reference.source
    total = len(comparison.reference.tensors)
    lines = [
        f"no chain of repairs makes this file fit {source}: {len(plain.fits):,} of {plural(total, 'key')} would fit."
    ]
    lines += _lines("missing", plain.missing) + _lines("left over", plain.unexpected)
    lines += _lines("another shape", plain.mismatched)
    if comparison.moves:
        lines.append(
            "  some names can only be guessed from their order, and no guess is written: say them with --rename"
        )
    lines += [] if unsafe else _undone(comparison)
    family = family_of(layout(plain.here), layout(comparison.reference.tensors))
    if family is not None:
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
        lines.append("  there is an adapter in it, which is not merged: --unsafe-fixes leaves it out")
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
