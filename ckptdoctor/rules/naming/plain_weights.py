"""Two rules share how plain weights are computed of what a norm keeps."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.edits import Fix, FuseNorm, Safety
from ckptdoctor.edits.norms import DTYPES, WEIGHT, spectral_dims, weight_dims
from ckptdoctor.findings import Location
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.parametrized import Computable, computable
from ckptdoctor.rules.framework import Problem
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option
from ckptdoctor.rules.kit.shaping import key_places
from ckptdoctor.rules.kit.weight_forms import WeightForm, changes
from ckptdoctor.rules.messages import Way

_WORDS = {"weight": "weight norm", "spectral": "spectral norm"}


def computed(comparison: Comparison, norm: str) -> Iterator[Problem]:
    """Yield a problem for all weights that are wanted plain and that ``norm`` computes of what is here."""
    found = [each for each in computable(comparison) if each.norm == norm]
    if not found:
        return
    parts = [part for each in found for part in each.parts]
    edits = [_edit(comparison, each) for each in found]
    ready = tuple([edit for edit in edits if edit is not None])
    first, more = found[0], len(found) - 1
    likewise = wording.beyond(more, "weight", before="; ", after=" likewise")
    title = f"compute {wording.plural(len(ready), 'weight')} of {_WORDS[norm]}"
    yield Problem(
        message=f"{wording.listed(list(first.parts))} here, {first.key} in the model{likewise}",
        cause=f"The checkpoint keeps the parts that {_WORDS[norm]} computes the weight from, and the model expects "
        "the weight itself: it is a module without the norm, or one it was removed from.",
        torch_says=(wording.missing_line([each.key for each in found]), wording.unexpected_line(parts)),
        advice=_advice(comparison, [each for each, edit in zip(found, edits, strict=True) if edit is None]),
        keys=key_places(comparison, parts),
        location=Location(path=comparison.path),
        fix=Fix(title, ready, Safety.UNSAFE, auto_option(comparison)) if ready else None,
    )


def _edit(comparison: Comparison, found: Computable) -> FuseNorm | None:
    """Return the edit that computes the weight, or None where dtypes or shapes are not those of such a norm."""
    tensors = [comparison.renamed.here[part] for part in found.parts]
    dims = _dims(found.norm, tensors)
    names = {tensor.dtype.name for tensor in tensors}
    if not dims or len(names) != 1 or not names.issubset(DTYPES):
        return None
    # a matrix has its spectral norm along its first dimension: only transposed convolutions have it along the second
    dim = dims[0] if len(dims) == 1 or len(tensors[0].shape) == 2 else None
    return FuseNorm(tuple([tensor.path for tensor in tensors]), found.key, found.norm, dim)


def _dims(norm: str, tensors: list[Tensor]) -> tuple[int | None, ...]:
    shapes = [tensor.shape for tensor in tensors]
    return weight_dims(shapes[0], shapes[1]) if norm == WEIGHT else spectral_dims(shapes[0], shapes[1], shapes[2])


def _advice(comparison: Comparison, odd: list[Computable]) -> str:
    """Return what is said of weights that cannot be computed."""
    if not odd:
        return ""
    shapes = [wording.shape(comparison.renamed.here[part].shape) for part in odd[0].parts]
    number = wording.plural(len(odd), "weight")
    return (
        f"{number} cannot be computed ({', '.join(odd[0].parts)} of {', '.join(shapes)}): torch does not "
        "keep such shapes and dtypes. Remove the norm in Python, and save the model again."
    )


def kept_apart(rest: IncompatibleKeys, norm: str, *ways: WeightForm) -> Iterator[Cause]:
    """Yield what an error says of weights with ``norm``, which torch keeps in two ways."""
    since = "as a parametrisation since torch 2.1, with hooks before"
    for change in changes(rest.missing, rest.unexpected):
        here, there = change.here, change.there
        if here in ways and there in ways:
            meaning = f"{norm} is kept in two ways ({since}): {here.value} in the file, {there.value} in the model"
            yield change.cause(meaning, Repair.SAFE)
        elif here in ways and there is WeightForm.PLAIN:
            meaning = (
                f"the file keeps weights with {norm} ({here.value}), and the model has plain ones, which can be "
                "computed"
            )
            yield change.cause(meaning, Repair.LOSS)
        elif there in ways and here is WeightForm.PLAIN:
            meaning = f"the model keeps weights with {norm} ({there.value}), and the file has plain ones"
            yield change.cause(meaning, Repair.BY_HAND, (load_before(f"the model gets its {norm}"),))


def load_before(what: str) -> Way:
    """Plain weights load into the model as it was before."""
    return Way(f"load before {what}", "model.load_state_dict(weights)")
