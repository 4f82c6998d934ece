"""Finds for the rules about floats which tensors of a model have which dtype, and which of them are unusual."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ckptdoctor.checkpoint import StateDict, Tensor
from ckptdoctor.facts.quantization import quantized_in
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex

WIDTHS = ("float64", "float32", "bfloat16", "float16")
# what programs keep in higher precision on purpose: norms, routers, states of recurrent layers, tables and scales
_KEPT = regex(
    r"norm|ln_|\bln\d?\b|layer_?scale|router|gate\.w|gate\.e_score|a_log|rotary|inv_freq|freqs|scale|temperature|rel_pos"
    r"|relative|position|pos_emb|running_|codebook|quantiz|lora_|zero_point",
    re.IGNORECASE,
)


@noun
class Mixture:
    """The matrices of a model by the name of their dtype, most elements first; norms and the like are left out."""

    kinds: tuple[tuple[str, tuple[Tensor, ...]], ...]


def mixture(state_dict: StateDict) -> Mixture | None:
    """Return what a model's matrices are, where they are not all of one dtype."""
    found: dict[str, list[Tensor]] = {}
    for tensor in state_dict.tensors:
        if tensor.dtype.name in WIDTHS and len(tensor.shape) > 1 and not tensor.parts:
            found.setdefault(tensor.dtype.name, []).append(tensor)
    if len(found) < 2:
        return None
    plain = {name: [each for each in tensors if not _KEPT.search(each.key)] for name, tensors in found.items()}
    kinds = [(name, tuple(tensors)) for name, tensors in plain.items() if tensors]
    if len(kinds) < 2 or quantized_in(state_dict).layers:
        return None
    return Mixture(tuple(sorted(kinds, key=lambda each: -total_elements(each[1]))))


def total_elements(tensors: Iterable[Tensor]) -> int:
    """Return how many elements they have together."""
    return sum([each.numel for each in tensors])


def double_tensors(state_dict: StateDict) -> Sequence[Tensor]:
    """Return its tensors of float64 and complex128."""
    return [each for each in state_dict.tensors if each.dtype.name in ("float64", "complex128")]
