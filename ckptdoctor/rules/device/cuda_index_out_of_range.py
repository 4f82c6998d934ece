"""Storages are tagged with a higher CUDA device: the file needs a machine with that many GPUs.

Meaning
    torch.save writes the device of each storage with it (``cuda:1`` is the second GPU), and torch.load puts it back on
    that device, unless ``map_location`` overrides it.

Why it matters
    On a machine with fewer GPUs, or none, the file does not load without ``map_location``. Different indices in one
    file come from several ranks or from a model spread over GPUs, and load onto as many GPUs at once.

Symptoms
    Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1. Please use torch.load with
    map_location to map your storages to an existing device.

Detection
    The tag of every storage, as the pickle names it: some index is above 0. The state of random number generators is
    left to D607.

Repair
    ``ckptdoctor fix FILE --to-cpu`` writes ``cpu`` instead of every CUDA tag. Safe: only the tags change, not a single
    value; ``model.to("cuda")`` or ``map_location="cuda"`` moves the tensors to a GPU again.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.findings import Severity
from ckptdoctor.rules.device import tags
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import ON_CPU, TO_CPU, Message
from ckptdoctor.rules.when import tags_beyond_cpu

MESSAGES = (
    Message(
        ("Attempting to deserialize object on CUDA device", "deserialize object on CUDA device"),
        "the file was saved on cuda:{index} of another machine; GPUs are counted from 0, and this one has {count}",
        (ON_CPU, TO_CPU),
        then=r"(?P<index>\d{1,9})buttorch\.cuda\.device_count\(\)is(?P<count>\d{1,9})",
        also=("D603",),
    ),
    Message(
        ("invalid device ordinal",),
        "the file was saved on a GPU with a higher number than this machine has",
        (ON_CPU, TO_CPU),
        near=("restore_location", "serialization", "torch.load"),
        also=("D603",),
    ),
)
SICK = (
    Example(
        "saved from the second GPU",
        {"conv.weight": T((4, 3, 3, 3), device="cuda:1"), "fc.weight": T((2, 4), device="cuda:1")},
    ),
    Example(
        "saved from the third GPU, before torch 1.6",
        {"fc.weight": T((2, 4), device="cuda:2"), "fc.bias": T((2,), device="cuda:2")},
        container="torch legacy",
    ),
)
HEALTHY = (
    Example("saved from the first GPU", {"fc.weight": T((2, 4), device="cuda:0")}),
    Example("saved from the CPU", {"conv.weight": T((4, 3, 3, 3)), "fc.weight": T((2, 4))}),
)


@rule("D602", "cuda-index-out-of-range", Severity.ERROR, when=tags_beyond_cpu)
def cuda_index_out_of_range(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report storages on a CUDA device other than the first."""
    tagged = tags.tagged(checkpoint)
    cuda = [tag for tag in tagged if tags.is_cuda(tag)]
    further = [tag for tag in cuda if tags.device_index(tag)]
    if not further:
        return
    highest = max([tags.device_index(tag) or 0 for tag in further])
    yield Problem(
        message=f"{tags.are_tagged(tagged, further)}: loading needs {highest + 1:,} GPUs",
        cause=(
            f"Saved from GPU number {highest + 1:,} of another machine. On one with fewer GPUs torch.load needs "
            'map_location="cpu".'
        ),
        torch_says=(
            f"Attempting to deserialize object on CUDA device {highest} but torch.cuda.device_count() is {highest}. "
            "Please use torch.load with map_location to map your storages to an existing device.",
        ),
        advice=_together(cuda),
        keys=tags.paths(checkpoint, further),
        fix=tags.to_cpu(cuda),
    )


def _together(cuda: list[str]) -> str:
    if len(cuda) == 1:
        return ""
    return f"The repair retags {wording.plural(len(cuda), 'CUDA device')} in all: {tags.listed_tags(cuda)}."
