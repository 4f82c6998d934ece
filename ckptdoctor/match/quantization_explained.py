"""The keys of a comparison that the rules about quantised weights speak of: the others need not."""

from __future__ import annotations

from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.match import quantized
from ckptdoctor.match.comparing import Comparison
from ckptdoctor.match.explained import Explained
from ckptdoctor.match.quantization_torch import is_observer, unfit_of


@cached_by_identity
def explained(comparison: Comparison) -> Explained:
    """Missing, unexpected and mismatched keys that Q951 to Q956 explain."""
    cured = comparison.cured
    if not (cured.missing or cured.unexpected):
        return Explained()
    found = unfit_of(comparison)
    names = [name for layer in found.layers for name in (layer.key, layer.bias_key)]
    gone = [path for layer in found.layers for path in layer.gone]
    old = [comparison.final_name(str(path[-1])) for path in (*gone, *found.buffers)]
    whole = Explained(
        missing=frozenset(names).intersection(cured.missing),
        unexpected=frozenset([*filter(is_observer, cured.unexpected), *old]).intersection(cured.unexpected),
    )
    return whole | quantized.explained(comparison)


def packed(comparison: Comparison) -> frozenset[str]:
    """Keys whose numbers are no weights yet, so that casting them would be wrong: nobody else speaks of their dtype."""
    here = [layer.key for layer in quantized.unfit(comparison).here]
    return frozenset([*here, *[layer.key for layer in unfit_of(comparison).layers]])
