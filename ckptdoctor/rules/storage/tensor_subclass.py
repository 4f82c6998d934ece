"""Tensors of the model are instances of a library's own tensor class.

Meaning
    torchao, quanto and others keep a quantised weight as a subclass of ``Tensor`` that wraps the tensors with the
    numbers. ``state_dict()`` gives it as it is, and ``torch.save`` names its class.

Why it matters
    The library, in a version that has this class, must be installed to load the file. Other programs, plain layers and
    safetensors do not accept such tensors.

Symptoms
    Weights only load failed. … Unsupported global: GLOBAL torchao.dtypes.affine_quantized_tensor.AffineQuantizedTensor
    was not an allowed global by default.
    Attempted to access the data pointer on an invalid python storage.

Detection
    The pickle names the class of each tensor. DTensor and ShardedTensor, which are pieces of a tensor, are X810 and
    X811. A warning where the class belongs to another package; info for torch's own classes.

Repair
    None: only the library knows the meaning of the numbers inside. Save ``tensor.dequantize()`` for plain weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict, Tensor
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.sharded_samples import wrapped_tensor
from ckptdoctor.rules.messages import COPIED, COPYING, Message, Way
from ckptdoctor.rules.when import composed_tensors

_APART = ("torch.distributed.tensor", "torch.distributed._tensor", "torch.distributed._shard")  # X810, X811
_PLAIN = frozenset(
    {
        *("torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer"),
        *("torch.nn.parameter.UninitializedParameter", "torch.nn.parameter.UninitializedBuffer"),
    }
)
_TORCHAO = ("torchao.dtypes.affine_quantized_tensor", "AffineQuantizedTensor")
MESSAGES = (
    Message(
        COPYING,
        "{key} is a tensor of a special class (torchao, quanto, bitsandbytes) in the file or in the model, "
        "and a plain one on the other side; their shapes agree, but neither can be copied into the other",
        (
            Way(
                "if the file has them, quantise the model in the same way, then",
                "model.load_state_dict(weights, assign=True)",
            ),
            Way("or see what the file holds", "ckptdoctor check FILE"),
        ),
        then=COPIED
        + r".{0,300}?(?:AffineQuantized|dispatch:attemptingtorun|torchao|LinearActivation|NF4Tensor|Float8Tensor"
        r"|Int4Tensor|Int8Tensor|QTensor|QBitsTensor|WeightQBytes|metadatamis)",
        also=("X810", "Q954"),
        general=1,
    ),
)
SICK = (Example("a torchao quantised weight", raw=partial(wrapped_tensor, *_TORCHAO, local=4)),)
HEALTHY = (
    Example("plain tensors", {"w": T((2, 2))}),
    Example("parameters", {"w": T((2, 2), parameter=True)}),
    Example(
        "a DTensor, which another rule reports",
        raw=partial(wrapped_tensor, "torch.distributed.tensor", "DTensor", local=4),
    ),
)


@rule("A710", "tensor-subclass", Severity.WARNING, when=composed_tensors)
def tensor_subclass(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report tensors of other classes than torch.Tensor."""
    for state_dict in checkpoint.state_dicts:
        if state_dict.role in (Role.MODEL, Role.EMA):
            found = [each for each in state_dict.tensors if each.subclass and _is_strange(each.subclass)]
            if found:
                yield _problem(state_dict, found)


def _is_strange(name: str) -> bool:
    return name not in _PLAIN and not name.startswith(_APART)


def _problem(state_dict: StateDict, found: Sequence[Tensor]) -> Problem:
    classes = tuple(dict.fromkeys([each.subclass or "" for each in found]))
    packages = tuple(dict.fromkeys([name.partition(".")[0] for name in classes]))
    own = packages == ("torch",)
    what = (
        f"tensors of {classes[0]}"
        if len(classes) == 1
        else f"tensors of {len(classes)} classes: {wording.abridged(classes)}"
    )
    verb = "is one of the" if len(found) == 1 else "are"
    return Problem(
        message=f"{wording.plural(len(found), 'tensor')}{wording.of_place(state_dict.path)} {verb} {what}",
        cause=(
            "They wrap the tensors with the numbers. "
            + ("" if own else f"Loading needs {wording.listed(packages)}, in a version that has the class. ")
            + "Plain layers and safetensors do not accept such tensors."
        ),
        advice="Load it with the library that wrote it, or save tensor.dequantize() for plain weights.",
        keys=tuple([each.path for each in found]),
        location=Location(path=state_dict.path),
        severity=Severity.INFO if own else Severity.WARNING,
    )
