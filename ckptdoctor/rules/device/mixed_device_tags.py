"""Tensors that belong together are tagged with different devices.

Meaning
    The tensors of the file belong on more than one accelerator, or one model's weights are partly on the CPU and partly
    on an accelerator: a model spread over GPUs, tensors gathered from several ranks, or a buffer that never moved.

Why it matters
    torch.load puts each storage back on its own device. That needs all of these devices, and what is computed from the
    loaded tensors afterwards fails where two devices meet.

Symptoms
    Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!

Detection
    The tags of all storages, without the state of random number generators; the devices that tensors without storages
    (XLA) are moved to; and both for each model's tensors. An optimizer's step counters on the CPU, an averaged copy
    kept on the CPU, and 0-d tensors are harmless: torch combines them with tensors on any device.

Repair
    ``ckptdoctor fix FILE --to-cpu`` writes ``cpu`` instead of every other tag, so nothing is moved. Safe: not a single
    value changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.facts import devices
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.device import tags
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import tags_beyond_cpu

SICK = (
    Example(
        "a model on two GPUs",
        {"part1.weight": T((4, 4), device="cuda:0"), "part2.weight": T((4, 4), device="cuda:1")},
    ),
    Example(
        "a buffer that never moved",
        {"fc.weight": T((2, 4), device="cuda:0"), "fc.bias": T((2,), device="cuda:0"), "scale": T((4,))},
    ),
)
HEALTHY = (
    Example(
        "step counters and averages on the CPU",
        {
            "model": {"fc.weight": T((2, 4), device="cuda:0"), "fc.bias": T((2,), device="cuda:0")},
            "ema": {"fc.weight": T((2, 4)), "fc.bias": T((2,))},
            "optimizer": {
                "state": {0: {"step": T(()), "exp_avg": T((2, 4), device="cuda:0")}},
                "param_groups": [{"lr": 0.1, "params": [0]}],
            },
            "rng_state": T((5056,), "uint8"),
        },
    ),
    Example("a scalar on the CPU", {"fc.weight": T((2, 4), device="cuda:0"), "temperature": T(())}),
)


@rule("D603", "mixed-device-tags", Severity.WARNING, when=tags_beyond_cpu)
def mixed_device_tags(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report more than one accelerator in the file, or CPU and accelerator in one model."""
    counts = Counter({tag: len(storages) for tag, storages in tags.tagged(checkpoint).items()})
    counts.update({device: len(tensors) for device, tensors in devices.moved(checkpoint).items()})
    accelerators = {tag: number for tag, number in counts.items() if tag not in (devices.CPU, tags.META)}
    if len({_normal(tag) for tag in accelerators}) > 1:
        yield _several(checkpoint, accelerators)
        return
    for state_dict in weights_among(checkpoint.state_dicts) if accelerators else ():
        if state_dict.role is Role.MODEL:
            yield from _partly_moved(checkpoint, state_dict)


def _normal(tag: str) -> str:
    return "cuda:0" if tag == "cuda" else tag


def _several(checkpoint: Checkpoint, counts: dict[str, int]) -> Problem:
    found = list(counts)
    return Problem(
        message=f"the storages are spread over {wording.plural(len(counts), 'device')}: "
        f"{tags.counted_tags(counts, 'storage')}",
        cause=(
            "A model spread over several devices, or tensors from several ranks. torch.load puts each back on its own "
            "device, and computing with them fails where two devices meet."
        ),
        keys=(*tags.paths(checkpoint, found), *[each.path for each in devices.all_tensors(checkpoint) if each.moved]),
        fix=tags.all_to_cpu(checkpoint, found),
    )


def _partly_moved(checkpoint: Checkpoint, state_dict: StateDict) -> Iterator[Problem]:
    """Yield a model on the CPU and on one accelerator. Tensors without dimensions may meet those of any device."""
    placed = [each for each in state_dict.tensors if (each.storage is not None or each.moved) and each.shape]
    counts = Counter([each.device for each in placed])
    counts.pop(tags.META, None)
    if devices.CPU not in counts or len(counts) < 2:
        return
    rare = min(counts, key=lambda tag: counts[tag])
    place = wording.of_place(state_dict.path)
    yield Problem(
        message=f"the weights{place} are on {len(counts)} devices: {tags.counted_tags(counts, 'tensor')}",
        cause=(
            "Part of the model never moved to the accelerator, or back from it. torch.load puts each tensor back on "
            "its own device, and computing with them fails where the two meet."
        ),
        keys=tuple([each.path for each in placed if each.device == rare]),
        location=Location(path=state_dict.path),
        fix=tags.all_to_cpu(checkpoint, [tag for tag in counts if tag != devices.CPU]),
    )
