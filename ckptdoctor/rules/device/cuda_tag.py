"""Storages are tagged with a CUDA device: saved from a model on the GPU.

Meaning
    torch.save writes the device of each storage with it. torch.load puts it back on that device, unless
    ``map_location`` overrides it.

Why it matters
    On a machine without CUDA the file does not load without ``map_location``. On one with CUDA everything lands on the
    first GPU, together with whatever is already there.

Symptoms
    Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running on a
    CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU.

Detection
    The tag of every storage, as the pickle names it: ``cuda`` or ``cuda:0``. If some are on a higher GPU, D602 reports
    all of them; D607 reports the state of random number generators.

Repair
    ``ckptdoctor fix FILE --to-cpu`` writes ``cpu`` instead. Safe: only the tags change, not a single value;
    ``model.to("cuda")`` or ``map_location="cuda"`` moves the tensors to the GPU again.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.findings import Severity
from ckptdoctor.rules.device import tags
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.messages import ON_CPU, TO_CPU, Message
from ckptdoctor.rules.when import tags_beyond_cpu

MESSAGES = (
    Message(
        ("Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False",),
        "the file was saved on a GPU; this machine has none that torch can use",
        (ON_CPU, TO_CPU),
        also=("D602",),
    ),
    Message(
        ("Torch not compiled with CUDA enabled", "Found no NVIDIA driver on your system"),
        "the file was saved on a GPU; this torch cannot use one",
        (ON_CPU, TO_CPU),
        near=("restore_location", "serialization", "torch.load", "map_location"),
        also=("D602",),
    ),
)
SICK = (
    Example(
        "saved from the first GPU",
        {"conv.weight": T((4, 3, 3, 3), device="cuda:0"), "fc.weight": T((2, 4), device="cuda:0")},
    ),
    Example(
        "saved from a GPU, before torch 1.6",
        {"epoch": 2, "state_dict": {"fc.weight": T((2, 4), device="cuda:0"), "fc.bias": T((2,), device="cuda:0")}},
        container="torch legacy",
    ),
)
HEALTHY = (
    Example("saved from the CPU", {"conv.weight": T((4, 3, 3, 3)), "fc.weight": T((2, 4))}),
    Example("on the second GPU, which D602 reports", {"fc.weight": T((2, 4), device="cuda:1")}),
)

_SAYS = (
    "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. "
    "If you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') "
    "to map your storages to the CPU."
)


@rule("D601", "cuda-tag", Severity.WARNING, when=tags_beyond_cpu)
def cuda_tag(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report storages on the first CUDA device, where none is on another."""
    tagged = tags.tagged(checkpoint)
    cuda = [tag for tag in tagged if tags.is_cuda(tag)]
    if not cuda or any(tags.device_index(tag) for tag in cuda):
        return
    yield Problem(
        message=tags.are_tagged(tagged, cuda),
        cause='Saved from a GPU. On a machine without CUDA torch.load needs map_location="cpu".',
        torch_says=(_SAYS,),
        keys=tags.paths(checkpoint, cuda),
        fix=tags.to_cpu(cuda),
    )
