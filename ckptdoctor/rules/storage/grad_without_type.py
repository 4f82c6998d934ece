"""Tensors require gradients and have a storage without a type: ``torch.save`` writes them, ``torch.load`` cannot.

Meaning
    Floats of 8 bits and fewer, and complex numbers of 32 bits, have no typed storage in torch: their tensors are saved
    with ``_rebuild_tensor_v3``. If such a tensor requires gradients and is not an ``nn.Parameter``, that function makes
    it with ``requires_grad=True`` and then tries to fill it in place, which autograd refuses.

Why it matters
    The whole file cannot be loaded, though nothing in it is damaged.

Symptoms
    RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.

Detection
    The function that makes each tensor, and ``requires_grad`` as the pickle states it.

Repair
    None that keeps the file a pickle. All its values are intact: ``ckptdoctor convert FILE OUT.safetensors`` writes
    them as plain tensors. Save ``tensor.detach()``, or ``nn.Parameter(tensor)``, which torch saves differently.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.converting import convert_command
from ckptdoctor.rules.when import rare_dtypes

SICK = (
    Example("8-bit floats", {"w": T((2, 2), "float8_e4m3fn", requires_grad=True), "b": T((2,))}),
    Example("among others", {"model": {"w": T((4,), "float8_e5m2", requires_grad=True)}, "epoch": 3}),
)
HEALTHY = (
    Example("a type of its own", {"w": T((2, 2), requires_grad=True), "b": T((2,))}),
    Example("a parameter", {"w": T((2, 2), "float8_e4m3fn", parameter=True), "b": T((2,))}),
    Example("without gradients", {"w": T((2, 2), "float8_e4m3fn"), "b": T((2,))}),
)
_MAKER = "torch._utils._rebuild_tensor_v3"


@rule("A712", "grad-without-type", Severity.ERROR, when=rare_dtypes)
def grad_without_type(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report tensors that torch cannot load, because they require gradients and have no typed storage."""
    tensors = checkpoint.tensors
    found = [each for each in tensors if each.requires_grad and not each.is_parameter and each.rebuild == _MAKER]
    if found:
        one = len(found) == 1
        verb, has = ("requires", "has a storage") if one else ("require", "have storages")
        yield Problem(
            message=f"{wording.plural(len(found), 'tensor')} {verb} gradients and {has} without a type, which torch "
            "cannot load",
            cause=f"torch.save writes {wording.listed(sorted({each.dtype.name for each in found}))} in a form that "
            "torch.load can read only for tensors without gradients. Nothing is damaged.",
            advice="Save tensor.detach() next time. convert writes the values of this file again:",
            commands=(convert_command(checkpoint.path),),
            torch_says=("RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.",),
            keys=tuple([each.path for each in found]),
        )
