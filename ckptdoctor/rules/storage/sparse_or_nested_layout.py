"""Tensors of the model are sparse, nested, or in a processor-specific layout.

Meaning
    ``to_sparse()``, ``to_sparse_csr()``, ``torch.nested`` and ``to_mkldnn()`` give tensors that are not plain arrays.
    torch saves their parts.

Why it matters
    A layer with a dense weight rejects a sparse one, and safetensors accepts only dense tensors.

Symptoms
    copy_() between dense and sparse Tensors is not implemented!
    You are trying to save a sparse tensors: `['w']` which this library does not support.

Detection
    The layout of each tensor of a model is read from the pickle. By itself it is only info.

Repair
    ``ckptdoctor fix FILE --select A709 --unsafe-fixes`` makes sparse tensors dense, as ``Tensor.to_dense()`` does. No
    value changes, but the file grows, up to the size that the finding gives, so it must be requested. Not offered where
    that is a gigabyte or more, nor for tensors that are not coalesced, whose values would have to be added. Nested
    tensors cannot become dense without padding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict, Tensor
from ckptdoctor.edits import Densify, Fix, Safety
from ckptdoctor.edits.sparse import can_be_dense
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, Obj, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.when import unusual_strides

_MOST = 1_000_000_000  # bytes that a repair writes out
_WORDS = {"jagged": "nested", "mkldnn": "in the mkldnn layout"}
_INDICES = T((2, 3), "int64")
_SPARSE = Obj(
    "torch._utils._rebuild_sparse_tensor",
    arguments=(Obj("torch.serialization._get_layout", arguments=("torch.sparse_coo",)), (_INDICES, T((3,)), (4, 8))),
)
MESSAGES = (
    Message(
        ("You are trying to save a sparse tensors",),
        "safetensors holds only dense tensors",
        (Way("save a dense copy", "tensor.to_dense()"),),
    ),
)
SICK = (
    Example("a sparse weight", {"w": _SPARSE, "b": T((4,))}),
    Example("the same in an old file", {"model": {"w": _SPARSE, "b": T((4,))}}, "torch legacy"),
)
HEALTHY = (Example("dense weights", {"w": T((4, 4)), "b": T((4,))}),)


@rule("A709", "sparse-or-nested-layout", Severity.INFO, when=unusual_strides)
def sparse_or_nested_layout(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report tensors that are not plain arrays."""
    for state_dict in checkpoint.state_dicts:
        if state_dict.role in (Role.MODEL, Role.EMA):
            found = [each for each in state_dict.tensors if each.layout != "strided"]
            if found:
                yield _problem(state_dict, found)


def _problem(state_dict: StateDict, found: Sequence[Tensor]) -> Problem:
    kinds = Counter([_WORDS.get(each.layout, each.layout) for each in found])
    named = wording.listed([f"{number:,} {kind}" for kind, number in kinds.most_common()])
    sparse = [each.key for each in found if each.layout.startswith("sparse")]
    dense = sum([each.numel * each.dtype.bits // 8 for each in found if each.layout.startswith("sparse")])
    one = f'"{found[0].key}"{wording.of_place(state_dict.path)} is {next(iter(kinds))}'
    many = f"{wording.plural(len(found), 'tensor')}{wording.of_place(state_dict.path)} are not dense: {named}"
    curable = tuple([each.path for each in found if can_be_dense(each)]) if dense < _MOST else ()
    title = f"make {wording.plural(len(curable), 'tensor')} dense"
    return Problem(
        message=one if len(found) == 1 else many,
        cause="A layer with a dense weight rejects it, and safetensors accepts only dense tensors.",
        torch_says=(
            "copy_() between dense and sparse Tensors is not implemented!",
            f"You are trying to save a sparse tensors: `{sparse[:1]}` which this library does not support.",
        )
        if sparse
        else (),
        advice="Make it dense before saving: tensor.to_dense()"
        + (f", {wording.size_words(dense)}." if sparse else "."),
        keys=tuple([each.path for each in found]),
        location=Location(path=state_dict.path),
        fix=Fix(title, (Densify(curable),), Safety.UNSAFE, "--select A709") if curable else None,
    )
