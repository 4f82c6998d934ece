"""Tensors are moved to a device without storages (TPU) when the file is loaded: no tag shows it.

Meaning
    Tensors of XLA and a few other backends have no storages that torch.save could tag. It writes a call instead, which
    puts a tensor together on the CPU and moves it to its device: ``xla:0``. Before torch 2.6 the values came as a NumPy
    array inside the pickle.

Why it matters
    Where torch_xla is not installed the file does not load without ``map_location``, and in the format from before
    torch 1.6 not even with it. With arrays ``torch.load(weights_only=True)`` always rejects it, because it names
    functions of NumPy.

Symptoms
    Could not run 'aten::empty.memory_format' with arguments from the 'XLA' backend. …
    Unsupported global: GLOBAL numpy.core.multiarray._reconstruct was not an allowed global by default.

Detection
    Calls of ``torch._utils._rebuild_device_tensor_from_cpu_tensor``, ``_rebuild_device_tensor_from_numpy`` and
    ``_rebuild_xla_tensor``, in parameters and other wrappers too.

Repair
    ``ckptdoctor fix FILE --to-cpu`` keeps the tensor on the CPU and leaves out the call around it, as
    ``map_location="cpu"`` would. Safe: not a single value changes, and every storage stays as it is. An array's
    elements move into a storage of their own; where NumPy had no bfloat16 they are narrowed to it again, which loses
    nothing. Arrays that would have to be rounded, or have another byte order, stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.edits import Fix, MoveToCpu, Safety
from ckptdoctor.facts import devices
from ckptdoctor.facts.globals import Blocked, BlockedCause, blocked_by
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.device import tags
from ckptdoctor.rules.examples import Example, Odict, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import blocked as refused
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import SAFE, Message
from ckptdoctor.rules.when import tags_beyond_cpu


def _weight(saved_as: str, dtype: str = "float32", parameter: bool = False) -> T:
    return T((2, 4), dtype, "xla:0", parameter=parameter, saved_as=saved_as)


MESSAGES = (
    Message(
        ("GLOBAL",),
        "the file holds tensors as an accelerator's own library pickles them ({global})",
        (SAFE,),
        then=r"(?P<global>torch\._utils\._rebuild_(?:xla_tensor|device_tensor_from_numpy))wasnotanallowedglobal",
        also=("P201",),
        general=1,
    ),
    Message(
        ("_rebuild_xla_tensor", "_rebuild_device_tensor_from_numpy", "No module named 'torch_xla'"),
        "the file holds tensors as torch_xla (TPU) pickles them, which only torch_xla can load",
        (SAFE,),
    ),
)
SICK = (
    Example(
        "saved from a TPU", Odict({"fc.weight": _weight("copy"), "fc.bias": T((2,), device="xla:0", saved_as="copy")})
    ),
    Example(
        "parameters of a TPU, before torch 1.6",
        {"epoch": 2, "params": [_weight("copy", parameter=True)]},
        container="torch legacy",
    ),
    Example(
        "saved from a TPU, before torch 2.6",
        {
            "model": {"fc.weight": _weight("array", parameter=True), "half": _weight("array", "bfloat16")},
            "cpu": T((3,)),
        },
    ),
)
HEALTHY = (
    Example("tagged xla:0, which D604 reports", {"fc.weight": T((2, 4), device="xla:0")}),
    Example("saved from the CPU", {"fc.weight": T((2, 4)), "fc.bias": T((2,))}),
)

_QUOTED = 3  # devices whose message is quoted
# the first thing that torch 2.13 does with each of these backends when it is not there
_FIRST = {
    "xla": "aten::empty.memory_format",
    "ipu": "aten::empty.memory_format",
    "lazy": "aten::empty.memory_format",
    "maia": "aten::empty_strided",
    "vulkan": "aten::empty_strided",
}
_CAPITALS = {"lazy": "Lazy", "vulkan": "Vulkan"}
_MODULES = frozenset({"hpu", "privateuseone"})  # what their own package puts beside torch's modules


@rule("D605", "xla-rebuild", Severity.ERROR, when=tags_beyond_cpu)
def xla_rebuild(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report tensors of devices without storages."""
    moved = [tensor for tensors in devices.moved(checkpoint).values() for tensor in tensors]
    names = blocked_by(checkpoint, BlockedCause.DEVICE) if moved else ()
    plain = [tensor for tensor in moved if devices.has_values(tensor)]
    if plain:
        found = _devices(plain)
        fix = Fix(f"{tags.listed_tags(found)} → cpu", (MoveToCpu(tuple(found)),), Safety.SAFE, "--to-cpu")
        yield _problem(checkpoint, plain, names, fix)
    unclear = [tensor for tensor in moved if not devices.has_values(tensor)]
    if unclear:
        yield _problem(checkpoint, unclear, names, None)


def _problem(checkpoint: Checkpoint, tensors: Sequence[Tensor], names: Sequence[Blocked], fix: Fix | None) -> Problem:
    found = _devices(tensors)
    verb = "is" if len(tensors) == 1 else "are"
    return Problem(
        message=f"{wording.plural(len(tensors), 'tensor')} {verb} moved to {tags.listed_tags(found)} when the file is "
        "loaded",
        cause=(
            "Saved from a device whose tensors have no storages, such as a TPU. On a machine without it "
            f"torch.load {_needs(checkpoint, names)}."
        ),
        torch_says=(*refused.refusal_lines(names[:1]), *dict.fromkeys(map(_says, found[:_QUOTED]))),
        advice="" if fix is not None else _WHERE_IT_IS if checkpoint.format == _LEGACY else _WITH_TORCH,
        keys=tuple([tensor.path for tensor in tensors]),
        location=refused.first_use(names) if names else Location(path=tensors[0].path),
        fix=fix,
    )


_WITH_TORCH = (
    "The file does not show plainly what they hold. If you trust it: torch.save(torch.load(FILE, "
    'map_location="cpu", weights_only=False), NEW)'
)


_WHERE_IT_IS = (
    "The file does not show plainly what they hold. Load it on a machine with the device, and save it from the CPU."
)
_LEGACY = "torch legacy"


def _devices(tensors: Sequence[Tensor]) -> list[str]:
    return list(dict.fromkeys([tensor.device for tensor in tensors]))


def _needs(checkpoint: Checkpoint, names: Sequence[Blocked]) -> str:
    if checkpoint.format == _LEGACY:  # torch.serialization._legacy_load does not tell the call of map_location
        return "fails, with map_location too"
    refused = ", and weights_only rejects it, since the values are NumPy arrays" if names else ""
    return f'needs map_location="cpu"{refused}'


def _says(device: str) -> str:
    """Return how torch 2.13 begins what it says where the device's backend is missing."""
    backend = tags.backend(device)
    if backend in _FIRST:
        name = _CAPITALS.get(backend, backend.upper())
        return f"Could not run '{_FIRST[backend]}' with arguments from the '{name}' backend."
    if backend == "mtia":
        return "Torch not compiled with MTIA enabled."
    if backend in _MODULES:
        return f"No module named 'torch.{backend}'"
    return f"Expected one of cpu, cuda, … device type at start of device string: {backend}"
