"""Calls that make a tensor on the CPU and move it to a device without storages, where it was when it was saved.

Source: ``torch.Tensor._reduce_ex_internal`` of torch 2.13 (a CPU tensor), and of torch before 2.6 (a NumPy array).
"""

from __future__ import annotations

from ckptdoctor.formats.torch.read.arguments import NotOurs, device_name
from ckptdoctor.formats.torch.read.values import CALLS, bare, call, full_name, items
from ckptdoctor.noun import noun
from ckptdoctor.pickles.graph import Made, Value

_UTILS = "torch._utils._rebuild_"

# (data, dtype, device, requires_grad)
FROM_CPU = f"{_UTILS}device_tensor_from_cpu_tensor"
FROM_ARRAY = frozenset({f"{_UTILS}device_tensor_from_numpy", f"{_UTILS}xla_tensor"})

# functions that make tensors of all kinds but those that wrap others, and where they take requires_grad
GRAD = {f"{_UTILS}tensor_v2": 4, f"{_UTILS}tensor_v3": 4, f"{_UTILS}qtensor": 5}
PLAIN_MAKERS = frozenset({*GRAD, f"{_UTILS}sparse_tensor"})


@noun(frozen=False)
class Mover:
    """One such call. ``node`` makes the CPU tensor or the array; ``maker`` is its function."""

    node: Made
    maker: str
    dtype: Value
    device: str
    requires_grad: bool


def mover(name: str | None, arguments: list[Value]) -> Mover | None:
    """What a function of this name moves with these arguments; None where it does not, or not plainly."""
    if (name != FROM_CPU and name not in FROM_ARRAY) or len(arguments) != 4:
        return None
    node = bare(arguments[0])
    if not isinstance(node, Made) or node.op not in CALLS:
        return None
    maker = full_name(call(node)[0])
    if maker is None or (name == FROM_CPU and (maker not in PLAIN_MAKERS or node.steps is not None)):
        return None
    try:
        device = device_name(arguments[2])
    except NotOurs:
        return None
    return Mover(node, maker, arguments[1], device, bare(arguments[3]) is True)


def inside_type(arguments: list[Value]) -> tuple[str | None, list[Value]]:
    """The function that ``_rebuild_from_type`` calls, and its arguments."""
    return full_name(arguments[0]), items(arguments[2]) or []
