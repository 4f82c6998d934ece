"""Norm layers call their parameters gamma and beta where the target has weight and bias, or the reverse.

Meaning
    The first BERT ports kept the TensorFlow's names: ``LayerNorm.gamma`` and ``LayerNorm.beta`` are what torch calls
    ``weight`` and ``bias``. transformers renames them while loading; ``load_state_dict`` does not.

Why it matters
    Loading fails, or every norm layer keeps its initial ones and zeros.

Symptoms
    Missing key(s) in state_dict: "LayerNorm.weight", "LayerNorm.bias".
    Unexpected key(s) in state_dict: "LayerNorm.gamma", "LayerNorm.beta".

Detection
    Only with a reference: the target has the other name, in the same place and with the same shape. A lone ``gamma``,
    such as the layer scale of ConvNeXt, stays, because the target has it too.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER``: keys are renamed one to one, in ``_metadata`` and an optimizer's
    ``param_names`` as well; no value changes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Turn, judges
from ckptdoctor.rules.kit.moving import moved_problems
from ckptdoctor.rules.kit.names_in_errors import rename_causes
from ckptdoctor.rules.messages import NO_MODULE, NOT_MAPPED, unknown_key

_TF = {"dense.weight": T((4, 4)), "LayerNorm.gamma": T((4,)), "LayerNorm.beta": T((4,))}
_TORCH = {"dense.weight": T((4, 4)), "LayerNorm.weight": T((4,)), "LayerNorm.bias": T((4,))}
MESSAGES = (
    *unknown_key(
        r"[\w.]{1,300}?\.(?:gamma|beta)",
        "the file names the parameters of its norms gamma and beta ({key}), as TensorFlow does, and the "
        "program expects weight and bias",
        general=2,
        says=(NO_MODULE, NOT_MAPPED),
    ),
)
SICK = (
    Example("TensorFlow's names", _TF, like=_TORCH),
    Example("torch's names for a model with TensorFlow's", _TORCH, like=_TF),
)
HEALTHY = (
    Example("the same names", _TF, like=_TF),
    Example("a layer scale", {"norm.gamma": T((4,)), "norm.weight": T((4,))}, like={"norm.weight": T((4,))}),
)
_CAUSE = "Ports of TensorFlow models call the weight and bias of a norm layer gamma and beta."


@rule("N414", "gamma-beta", Severity.ERROR)
def gamma_beta(comparison: Comparison) -> Iterator[Problem]:
    """Report one step of the chain."""
    yield from moved_problems(
        comparison,
        "N414",
        _CAUSE,
    )


@judges(Turn.NAME, general=1)
def of_names(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Keys end in gamma and beta on one side, and in weight and bias on the other."""
    yield from rename_causes(rest, "N414", _CAUSE)
