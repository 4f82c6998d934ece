"""Masks are uint8, as torch before 1.2 had them.

Meaning
    The causal mask of GPT-2 and the like was saved as a buffer (``attn.bias``, ``masked_bias``, ``mask``) when torch
    had no bool.

Why it matters
    Current torch accepts only bool masks. Models that make the mask themselves do not expect the buffer at all.

Symptoms
    masked_fill_ only supports boolean masks, but got mask with dtype unsigned char
    Unexpected key(s) in state_dict: "h.0.attn.bias".

Detection
    Tensors of uint8 whose last two dimensions are equal, under a name that masks have.

Repair
    None is needed: ``load_state_dict`` casts them to bool if the model has bool masks. ``--drop`` leaves them out for a
    model without them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.findings import Location, Severity
from ckptdoctor.regex import regex
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import dtype_begins

_MASK = regex(r"(?:^|[._])(?:attn_?|causal_?|tri_?|attention_?)?mask$|attn\.bias$|attention\.bias$", re.IGNORECASE)
SICK = (
    Example("the mask of GPT-2", {"h.0.attn.c_attn.weight": T((4, 12)), "h.0.attn.bias": T((1, 1, 8, 8), "uint8")}),
    Example("a mask by name", {"model": {"fc.weight": T((4, 4)), "causal_mask": T((8, 8), "uint8")}}),
)
HEALTHY = (
    Example("a mask of bool", {"h.0.attn.c_attn.weight": T((4, 12)), "h.0.attn.bias": T((1, 1, 8, 8), "bool")}),
    Example("a bias of floats", {"attn.weight": T((8, 8)), "attn.bias": T((8,))}),
    Example("other bytes", {"fc.weight": T((4, 4)), "image": T((8, 8), "uint8")}),
)


@rule("T558", "bool-uint8-mask", Severity.INFO, when=dtype_begins("uint8"))
def bool_uint8_mask(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report masks of uint8."""
    for state_dict in weights_among(checkpoint.state_dicts):
        found = [each for each in state_dict.tensors if each.dtype.name == "uint8" and _is_mask(each)]
        if found:
            which = f'"{found[0].key}"' if len(found) == 1 else wording.plural(len(found), "mask")
            verb = "is a mask" if len(found) == 1 else "are"
            yield Problem(
                message=f"{which}{wording.of_place(state_dict.path)} {verb} uint8",
                cause="torch before 1.2 had no bool. Masks have to be bool today; load_state_dict casts them if "
                "the model has a bool buffer.",
                torch_says=("masked_fill_ only supports boolean masks, but got mask with dtype unsigned char",),
                keys=tuple([each.path for each in found]),
                location=Location(path=state_dict.path),
            )


def _is_mask(tensor: Tensor) -> bool:
    return len(tensor.shape) > 1 and tensor.shape[-1] == tensor.shape[-2] and _MASK.search(tensor.key) is not None
