"""Pairs quantised layers on one side of a comparison with the plain weights of the other side."""

from __future__ import annotations

from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.facts.quantization import (
    BY_RULE,
    Layer,
    Quantized,
    TorchQuantized,
    dtype_of,
    is_observer,
    layers_of,
    quantized,
)
from ckptdoctor.match.comparison import Comparison, Explained
from ckptdoctor.noun import noun

_PLAIN = ("", "float64", "float32", "float16", "bfloat16")


@noun(eq=False)
class Unfit:
    """Layers that are quantised ``here`` and plain in the target, or ``there`` in the target and plain here.

    Names are those after all renames. ``others`` are scales of activations and caches here, without a layer of their
    own.
    """

    here: tuple[Layer, ...] = ()
    there: tuple[Layer, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def explained(self) -> Explained:
        """The keys that need no other word; narrowed to what is wrong by whoever asks."""
        return Explained(
            missing=frozenset(
                [*(layer.key for layer in self.here), *(key for layer in self.there for key in layer.keys)]
            ),
            unexpected=frozenset(
                [*(key for layer in self.here for key in layer.keys), *self.others, *(each.key for each in self.there)]
            ),
            mismatched=frozenset([layer.key for layer in (*self.here, *self.there)]),
        )


@cached_by_identity
def unfit(comparison: Comparison) -> Unfit:
    """The layers of which only one side is quantised."""
    renamed, wanted = comparison.renamed, comparison.reference.tensors
    loose, missing = set(renamed.unexpected), set(renamed.missing)
    if not loose and not missing:
        return Unfit()
    ours, theirs = quantized(renamed.here), quantized(wanted)
    here = tuple(
        [
            layer
            for layer in ours.layers
            if layer.key in wanted
            and dtype_of(wanted[layer.key]) in _PLAIN
            and layer.shape in (None, wanted[layer.key].shape)
            and not loose.isdisjoint(layer.keys)
        ]
    )
    there = tuple(
        [
            layer
            for layer in theirs.layers
            if layer.key in renamed.here
            and dtype_of(renamed.here[layer.key]) in _PLAIN
            and layer.shape in (None, renamed.here[layer.key].shape)
            and not missing.isdisjoint(layer.keys)
        ]
    )
    return Unfit(here, there, _others(ours, here, loose))


def _others(found: Quantized, here: tuple[Layer, ...], loose: set[str]) -> tuple[str, ...]:
    """Scales that mean nothing without the weights that need scales."""
    scaled = any(layer.scheme in BY_RULE["Q956"] for layer in here)
    return tuple([key for key in found.others if key in loose]) if scaled else ()


def _explained_layers(comparison: Comparison) -> Explained:
    """The keys that rules about quantised layers explain, of those that are missing, unexpected or of another shape."""
    found, renamed = unfit(comparison), comparison.renamed
    if not found.here and not found.there:
        return Explained()
    known = found.explained
    return Explained(
        known.missing.intersection(renamed.missing),
        known.unexpected.intersection(renamed.unexpected),
        known.mismatched.intersection(renamed.mismatched),
    )


@cached_by_identity
def unfit_of(comparison: Comparison) -> TorchQuantized:
    """The layers of the compared state dict that the target wants plain, by their names after all renames."""
    if comparison.state_dict is None:
        return TorchQuantized()
    found = layers_of(comparison.checkpoint, comparison.state_dict, comparison.final_name)
    wanted = comparison.reference.tensors
    plain = [
        layer
        for layer in found.layers
        if layer.key in wanted
        and wanted[layer.key].shape == layer.weight.shape
        and dtype_of(wanted[layer.key]) in ("", "float64", "float32", "float16", "bfloat16")
    ]
    if not plain:
        return TorchQuantized()
    loose = set(comparison.renamed.unexpected)
    buffers = [path for path in found.buffers if comparison.final_name(str(path[-1])) in loose]
    return TorchQuantized(tuple(plain), tuple(buffers))


@cached_by_identity
def explained_by_quantization(comparison: Comparison) -> Explained:
    """Missing, unexpected and mismatched keys that Q951 to Q956 explain."""
    renamed = comparison.renamed
    if not (renamed.missing or renamed.unexpected):
        return Explained()
    found = unfit_of(comparison)
    names = [name for layer in found.layers for name in (layer.key, layer.bias_key)]
    gone = [path for layer in found.layers for path in layer.gone]
    old = [comparison.final_name(str(path[-1])) for path in (*gone, *found.buffers)]
    whole = Explained(
        missing=frozenset(names).intersection(renamed.missing),
        unexpected=frozenset([*filter(is_observer, renamed.unexpected), *old]).intersection(renamed.unexpected),
    )
    return whole | _explained_layers(comparison)


def packed(comparison: Comparison) -> frozenset[str]:
    """Keys whose numbers are no weights yet, so that casting them would be wrong: nobody else speaks of their dtype."""
    here = [layer.key for layer in unfit(comparison).here]
    return frozenset([*here, *[layer.key for layer in unfit_of(comparison).layers]])
