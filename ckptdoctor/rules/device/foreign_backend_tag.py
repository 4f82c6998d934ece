"""Storages are tagged with a device of a backend that is neither CPU nor CUDA (TPU, Apple, Ascend, Gaudi …).

Meaning
    torch.save writes the device of each storage with it, and torch.load asks the backend of that name to put it back:
    ``mps`` (Apple), ``xla:0`` (TPU), ``npu:0`` (Ascend), ``hpu`` (Gaudi), ``xpu:0`` (Intel).

Why it matters
    Where this backend is not installed, or has no such device, the file does not load without ``map_location``.

Symptoms
    don't know how to restore data location of torch.storage.UntypedStorage (tagged with xla:0)
    torch.UntypedStorage(): Storage device not recognized: mps
    The HPU device module is not registered. If you are running on a CPU-only machine, please use torch.load with …
    Attempting to deserialize object on a XPU device but torch.xpu.is_available() is False. If you are running on …

Detection
    The tag of every storage, as the pickle names it: anything but ``cpu``, ``cuda``, ``cuda:N`` and ``meta``. The state
    of random number generators is left to D607, and tensors that were saved without a tag, like those of TPUs today, to
    D605.

Repair
    ``ckptdoctor fix FILE --to-cpu`` writes ``cpu`` instead. Safe: only the tags change, not a single value.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts import devices
from ckptdoctor.findings import Severity
from ckptdoctor.rules.device import tags
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.messages import ON_CPU, TO_CPU, Message
from ckptdoctor.rules.when import tags_beyond_cpu

MESSAGES = (
    Message(
        ("don't know how to restore data location of",),
        "the file was saved on another type of device ({device}), which this torch does not know",
        (ON_CPU, TO_CPU),
        then=r"[\w.]{1,200}\(taggedwith(?P<device>[\w:]{1,60})\)",
        also=("D603",),
    ),
    Message(
        ("Storage device not recognized:",),
        "the file was saved on another type of device ({device}), which this torch does not know",
        (ON_CPU, TO_CPU),
        then=r"(?P<device>mps|xla|npu|hpu|xpu|mtia|[a-z]{2,8})",
    ),
    Message(
        ("Attempting to deserialize object on a",),
        "the file was saved on another type of device ({device}), which this machine lacks",
        (ON_CPU, TO_CPU),
        then=r"(?P<device>[A-Z]{2,20}?)devicebuttorch\.[\w.]{2,40}\(\)isFalse",
        also=("D603",),
    ),
    Message(
        ("device module is not registered. If you are running on a CPU-only machine",),
        "the file was saved on another type of device (a vendor's own accelerator), which this torch does not know",
        (ON_CPU, TO_CPU),
        also=("D603",),
    ),
    Message(
        ("PyTorch is not linked with support for mps devices",),
        "the file was saved on a Mac's GPU (mps)",
        (ON_CPU, TO_CPU),
    ),
)
SICK = (
    Example("saved from a TPU", {"fc.weight": T((2, 4), device="xla:0"), "fc.bias": T((2,), device="xla:0")}),
    Example("saved from an Apple GPU", {"fc.weight": T((2, 4), device="mps"), "fc.bias": T((2,), device="mps")}),
    Example("saved from an Ascend card", {"model": {"fc.weight": T((2, 4), device="npu:0"), "b": T((2,))}}),
)
HEALTHY = (
    Example("saved from the first GPU", {"fc.weight": T((2, 4), device="cuda:0")}),
    Example("saved from the CPU", {"fc.weight": T((2, 4)), "fc.bias": T((2,))}),
)

_MAP = (
    "If you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') "
    "to map your storages to the CPU."
)
# backends that torch.serialization knows and whose module torch 2.13 always has; the others it knows it may lack
_BUILT_IN = frozenset({"xpu", "mtia"})
_PLUGGED_IN = frozenset({"hpu", "privateuseone"})
_QUOTED = 3  # backends whose message is quoted


@rule("D604", "foreign-backend-tag", Severity.ERROR, when=tags_beyond_cpu)
def foreign_backend_tag(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report storages on devices that only a special build of torch knows."""
    tagged = tags.tagged(checkpoint)
    foreign = [tag for tag in tagged if tag not in (devices.CPU, tags.META) and not tags.is_cuda(tag)]
    if foreign:
        yield Problem(
            message=tags.are_tagged(tagged, foreign),
            cause='Saved from another type of device. On a machine without it torch.load needs map_location="cpu".',
            torch_says=tuple(dict.fromkeys(map(_says, foreign[:_QUOTED]))),
            keys=tags.paths(checkpoint, foreign),
            fix=tags.to_cpu(foreign),
        )


def _says(tag: str) -> str:
    """Return what torch 2.13 says to a tag whose backend is not there (``torch.serialization``)."""
    backend = tags.backend(tag)
    if tag.startswith("mps"):
        return f"torch.UntypedStorage(): Storage device not recognized: {backend}"
    if backend in _PLUGGED_IN:
        return f"The {backend.upper()} device module is not registered. {_MAP}"
    if backend in _BUILT_IN:
        name = backend.upper()
        return (
            f"Attempting to deserialize object on a {name} device but torch.{backend}.is_available() is False. {_MAP}"
        )
    return f"don't know how to restore data location of torch.storage.UntypedStorage (tagged with {tag})"
