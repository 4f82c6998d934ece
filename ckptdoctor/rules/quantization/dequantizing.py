"""The rules about quantised weights share one fix: plain weights are computed."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.edits import Dequantize, Drop, Fix, Safety
from ckptdoctor.edits.elements import View
from ckptdoctor.edits.quantization import FOUR, INT8, SCALED, dequantized
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts import quantization as facts
from ckptdoctor.facts.quantization import Layer, dtype_of
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option

# what the parts of each scheme do, in the order in which an edit takes them; those in brackets may be missing
_TAKEN = {
    facts.BNB8: (INT8, ("weight", "scale"), ("weight_format",)),
    facts.SCALED: (SCALED, ("weight", "scale"), ()),
    facts.BNB4: (FOUR, ("weight", "absmax", "quant_map", "quant_state"), ("nested_absmax", "nested_quant_map")),
}
# parts without which the weight means something else, and which nothing here computes with
_OTHERWISE = ("weight_zero_point", "zero_point", "scale_2", "global_scale", "g_idx")


def dequantize_fix(
    comparison: Comparison, layers: Sequence[Layer], others: Sequence[str] = ()
) -> tuple[Fix | None, str]:
    """Return the fix that computes the plain weights of these layers, and what is said of the others.

    ``others`` are keys that mean nothing without them, and go with the last of them.
    """
    edits = [_edit(comparison, layer) for layer in layers]
    ready = tuple([edit for edit in edits if edit is not None])
    odd = [layer.key for layer, edit in zip(layers, edits, strict=True) if edit is None]
    advice = ""
    if odd:
        number = wording.plural(len(odd), "weight")
        advice = f"{number} cannot be computed ({wording.abridged(odd)}): dequantise it with the library that wrote it."
    if not ready:
        return None, advice
    taken = {path for edit in ready for path in edit.paths}
    done = [layer for layer, edit in zip(layers, edits, strict=True) if edit is not None]
    here = comparison.renamed.here
    left = [here[key].path for layer in done for key in layer.keys if here[key].path not in taken]
    left += [here[key].path for key in others if not odd]
    drop = (Drop(tuple(left)),) if left else ()
    title = f"compute {wording.plural(len(ready), 'plain weight')}"
    return Fix(title, (*ready, *drop), Safety.UNSAFE, auto_option(comparison)), advice


def _edit(comparison: Comparison, layer: Layer) -> Dequantize | None:
    """Return the edit that computes the weight, or None where it cannot be computed of what is here."""
    if layer.scheme not in _TAKEN or any(role in layer.parts for role in _OTHERWISE):
        return None
    scheme, needed, further = _TAKEN[layer.scheme]
    if not all(role in layer.parts for role in needed) or (scheme == SCALED and not layer.block):
        return None
    there = [layer.parts[role] for role in (*needed, *further) if role in layer.parts]
    tensors = [comparison.renamed.here[key] for key in there]
    wanted = comparison.reference.tensors[layer.key]
    edit = Dequantize(
        paths=tuple([tensor.path for tensor in tensors]),
        key=layer.key,
        scheme=scheme,
        dtype=dtype_of(wanted) or "float32",
        place=comparison.path,
        block=(layer.block[0], layer.block[1]) if scheme != FOUR else (0, 0),
        shape=wanted.shape if scheme == FOUR else None,
    )
    return edit if is_possible(edit, tensors) else None


def is_possible(edit: Dequantize, tensors: Sequence[Tensor]) -> bool:
    """Return whether tensors of these shapes and dtypes can be taken for what the edit computes of them."""
    plain = all(each.storage is not None and each.layout == "strided" and not each.subclass for each in tensors)
    if not plain or any(each.moved for each in tensors):
        return False
    given = [(each.dtype, View("", 0, max(1, each.dtype.bits // 8), each.shape, each.stride)) for each in tensors]
    try:
        dequantized(edit, given)
    except RefusedError:
        return False
    return True
