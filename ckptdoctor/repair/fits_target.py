"""Tells whether contents fit a target completely, and refuses with what does not."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Source, show_path
from ckptdoctor.checkpoint.expectation import Expected, Reference, is_extra_state
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.adapters import foreign
from ckptdoctor.match.comparing import compare
from ckptdoctor.match.comparison import Alignment, Comparison
from ckptdoctor.match.meanings import is_code
from ckptdoctor.match.norms import final_versions, missing_counters
from ckptdoctor.match.parametrized import computable, parametrized
from ckptdoctor.match.published.families import family_of, layout
from ckptdoctor.match.rivals import parts_alike
from ckptdoctor.match.shapes.causes import shapes
from ckptdoctor.match.shapes.experts import stacks
from ckptdoctor.match.shapes.fused import spelled
from ckptdoctor.noun import replace
from ckptdoctor.repair.draft_map import may_be_turned
from ckptdoctor.repair.finishing import Try, ways, with_heads, without_an_answer
from ckptdoctor.repair.name_map import UnfitError
from ckptdoctor.repair.request import FixRequest, command_line
from ckptdoctor.repair.witness import decided, equal_sets, under
from ckptdoctor.rules.naming.known_layout_family import lacking
from ckptdoctor.shell import quote
from ckptdoctor.wording import and_more, plural

_SHOWN = 5  # keys that a refusal names
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
_NEVER = "  no command can finish: the file does not hold the values that the target computes with"


def one_choice(checkpoint: Checkpoint, reference: Reference, request: FixRequest, source: Source) -> KeyPath | None:
    """Return the set of weights that values choose among several that fit equally well.

    It is None where there is nothing to choose.

    Raises RefusedError where several state dicts fit a target and values do not decide: raw and averaged weights, say.
    Which of them is wanted only a person can know.
    """
    total = plural(len(reference.tensors), "key")
    whole = [each for each in weights_among(checkpoint.state_dicts) if each.path]
    if len(whole) > 1:
        fits = {each.path: len(compare(checkpoint, reference, each.path).renamed.fits) for each in whole}
        best = [path for path, keys in fits.items() if keys and keys == max(fits.values())]
        if len(best) > 1:
            sets = {show_path(path): path for path in best}
            chosen = decided(
                source, [(name, under(path, checkpoint, reference)) for name, path in sets.items()], reference
            )
            if chosen is not None:
                return sets[chosen]
            lines = [f"more than one set of weights fits {reference.source}: choose one."]
            for name, path in sets.items():
                lines.append(f"  {name}, {fits[path]:,} of {total}: {command_line(replace(request, root=name))}")
            raise RefusedError("\n".join(lines))
    return None


def spare_parts(
    checkpoint: Checkpoint, reference: Reference, request: FixRequest, source: Source
) -> tuple[KeyPath, ...]:
    """Return what is left over because it holds the very bytes of what fits, behind another prefix.

    Raises RefusedError, with a command for each, where parts that fit as well hold other values.
    """
    found = parts_alike(compare(checkpoint, replace(reference, certain=True)))
    if found is None or found.added:
        return ()
    first, *others = [(part.prefix, part.keys) for part in found.parts]
    if all(equal_sets(source, first[1], each) for _, each in others):
        taken = next(part for part in found.parts if any(part.prefix + rest in found.names for rest in part.keys))
        return tuple([each.path for part in found.parts if part is not taken for each in part.keys.values()])
    chosen = decided(source, [first, *others], reference)
    lines = [f"more than one part fits {reference.source}: choose one."]
    for part in found.parts:
        bytes_ = ", the bytes of the target" if part.prefix == chosen else ""
        named = f"  {part.prefix.removesuffix('.')}, {plural(len(part.keys), 'key')}{bytes_}"
        command = command_line(replace(request, keep=(*request.keep, *part.keep)))
        lines.append(f"{named}: {command}" if part.keep else f"{named}: name its keys with --keep")
    raise RefusedError("\n".join(lines))


def require_fit(checkpoint: Checkpoint, reference: Reference) -> None:
    """Raise UnfitError unless ``load_state_dict(strict=True)`` of the target would take these contents.

    The sentence says how much fits, and what is in the way.
    """
    comparison = compare(checkpoint, reference)
    if not fits(comparison):
        lacking = (*comparison.plain.missing, *comparison.plain.mismatched)
        raise UnfitError(_why(comparison), lacking)


def require_no_others(checkpoint: Checkpoint, reference: Reference) -> None:
    """Raise UnfitError for values among the weights that ``load_state_dict(strict=True)`` would not take.

    ``require_fit`` judges the tensors. Source: ``torch.nn.Module.load_state_dict``.
    """
    comparison = compare(checkpoint, reference)
    found = comparison.plain
    others = comparison.state_dict.others if comparison.state_dict is not None else ()
    strange = [key for key in others if key not in reference.extra and not is_extra_state(key)]
    if reference.retied:  # from_pretrained only warns of them
        strange = []
    lines = _lines("missing", found.extra_missing) + _lines("left over", (*found.extra_unexpected, *strange))
    if lines:
        first = f"all tensors fit {reference.source}, but the other values do not."
        raise UnfitError("\n".join([first, *lines]))


def answered(error: UnfitError, original: Checkpoint, request: FixRequest, attempt: Try) -> UnfitError:
    """Return the refusal with the commands that would finish, or with the sentence that says that there is none."""
    assert request.reference is not None
    why = attempt(replace(request, unsafe=False)).why if request.unsafe else ""  # before anything was left out
    lines, found = [why or error.message], ways(original, request, attempt)
    told = f" {request.target}" if request.target else ""
    lines += [f"  to see what each of them means: ckptdoctor check {quote(request.path)}{told}"] if told else []
    # the sentence names the option then; a map leaves rows where they are
    comparison = compare(original, request.reference)
    if lacking(comparison):
        never = comparison.conversion is not None and comparison.conversion.never
        end = [_NEVER] if never else with_heads(request, attempt, comparison)
        return UnfitError("\n".join([*lines, *end]), error.missing)
    lines += found.lines or [without_an_answer(request.reference, error.missing)]
    return UnfitError("\n".join(lines), error.missing, found.draft)


def rearranged(comparison: Comparison) -> bool:
    """Return whether another code base arranged these values: renames alone cannot give the target's."""
    return (
        comparison.conversion is not None
        or family_of(layout(comparison.plain.here), layout(comparison.reference.tensors)) is not None
    )


def fits(comparison: Comparison) -> bool:
    """Return whether every wanted key is here in its shape, and no other; counters that torch sets itself apart."""
    plain, wanted = comparison.plain, comparison.reference.tensors
    if comparison.nested or comparison.steps or plain.unexpected or _foreign(plain, wanted):
        return False
    if plain.mismatched or codes(plain, wanted):
        return False
    _, unasked = missing_counters(comparison, final_versions(comparison))
    return set(plain.missing) <= set(unasked)


def _foreign(plain: Alignment, wanted: Mapping[str, Expected]) -> list[str]:
    """Return other names of wanted tensors in a part that the target does not have: no model takes them along.

    A head that safetensors left out next to its embedding is in a part that is there.
    """
    holders = {key: key.rpartition(".")[0].rpartition(".")[0] for key in plain.twins}
    return [key for key, part in holders.items() if part and not any(each.startswith(f"{part}.") for each in wanted)]


def codes(plain: Alignment, wanted: Mapping[str, Expected]) -> tuple[str, ...]:
    """Return keys that are integers here, and floats in the target.

    They are codes of a quantised layer, which torch would load.
    """
    return tuple([key for key in plain.fits if is_code(plain.here[key], wanted[key])])


def _why(comparison: Comparison) -> str:
    plain, source = comparison.plain, comparison.reference.source
    total = len(comparison.reference.tensors)
    extra = (*plain.unexpected, *_foreign(plain, comparison.reference.tensors))
    integers = codes(plain, comparison.reference.tensors)
    if extra and len(plain.fits) == total and not integers:
        left = plural(len(extra), "key is", "keys are")
        lines = [f"every key of {source} fits, but {left} left over: {and_more(extra, _SHOWN)}"]
    else:
        would = f"{len(plain.fits):,} of {plural(total, 'key')} would fit"
        lines = [f"no chain of repairs makes this file fit {source}: {would}."]
        lines += _lines("missing", plain.missing) + _lines("left over", extra)
    lines += _lines("shape mismatch", plain.mismatched)
    lines += _lines("integers, which are not weights without their scale", integers)
    if comparison.moves:
        lines.append("  some names can only be guessed from their order, and a guess is never written")
    lines += _undone(comparison)
    family = family_of(layout(plain.here), layout(comparison.reference.tensors))
    said = lacking(comparison)
    if said:
        lines.append(f"  {said}")
    elif family is not None:
        lines.append(f"  another code base arranged these values: convert it with {family.converter}")
    return "\n".join(lines)


def _undone(comparison: Comparison) -> list[str]:
    """Return what only --unsafe-fixes does."""
    norms, found = computable(comparison), shapes(comparison)
    lines = []
    adapter = foreign(comparison.state_dict, comparison.reference.tensors)
    if adapter is not None and adapter.wrapped and not adapter.copies:
        lines.append("  the file has an unmerged adapter: --merge-adapter adds it")
    if norms:
        what = ", ".join(norms[0].parts)
        lines.append(f"  {norms[0].key} has to be computed from its norm ({what})")
    for key, original in parametrized(comparison)[:1]:
        lines.append(
            f"  {key} is computed from {original} by a parametrization that the file does not name (for "
            "example orthogonal): remove it in Python with "
            "torch.nn.utils.parametrize.remove_parametrizations, and save the model again"
        )
    if any(spelled(each) for each in found.gates):
        lines.append("  only their name shows the order of gate and up projection")
    whole = _vector(comparison)
    if whole:
        lines.append(
            f"  {whole} has as many numbers as all parameters of the target, but no file records their "
            "order. In the model that it was made from: torch.nn.utils.vector_to_parameters(vector, "
            "model.parameters())"
        )
    turned = [key for key in comparison.plain.unexpected if may_be_turned(key, comparison.plain.here[key].shape)]
    if turned:
        lines.append(
            f"  {turned[0]} may belong to a transposed convolution: Flax rotates those by 180°, which no "
            "command undoes, and no name or size shows which they are"
        )
    if any(part.square for each in found.experts for part in stacks(comparison, each)):
        lines.append("  the slices of stacked experts are square: no shape shows whether they are transposed")
    return lines


def _vector(comparison: Comparison) -> str:
    """Return a vector of all the target's parameters, as ``parameters_to_vector`` makes it.

    It is "" where there is none.
    """
    plain, wanted = comparison.plain, comparison.reference.tensors
    if len(plain.missing) < 2 or plain.fits:
        return ""
    trained = [prod(each.shape) for key, each in wanted.items() if not key.endswith(_BUFFERS)]
    sizes = {sum(trained), sum([prod(each.shape) for each in wanted.values()])}
    return next((key for key in plain.unexpected if plain.here[key].shape in {(size,) for size in sizes}), "")


def _lines(what: str, keys: tuple[str, ...]) -> list[str]:
    if not keys:
        return []
    return [f"  {what}: {and_more(keys, _SHOWN)}"]
