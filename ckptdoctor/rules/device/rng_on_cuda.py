"""The state of a random number generator is not a byte tensor on the CPU, as torch requires.

Meaning
    ``torch.get_rng_state()`` and ``torch.cuda.get_rng_state()`` give byte tensors on the CPU. A checkpoint that was
    loaded with ``map_location="cuda"`` and saved again holds them tagged as CUDA tensors; one that went through
    ``Optimizer.load_state_dict`` may hold them cast to floating point.

Why it matters
    Resuming fails when the state is set, though everything else loads.

Symptoms
    RNG state must be a torch.ByteTensor

Detection
    A tensor of one dimension with 5,056, 816, 44 or 16 elements (the lengths of torch's generators) that is tagged with
    another device than the CPU, or is not uint8: under a key like ``rng_state`` or ``random_state``, or 5,056 bytes
    under any key, or bytes next to these.

Repair
    ``ckptdoctor fix FILE --select D607`` writes ``cpu`` as the device of these tensors. Safe: only the tags change, not
    a single value. A state that was cast to another dtype becomes bytes again with ``--unsafe-fixes``, if every value
    of it is a whole number from 0 to 255; every floating-point dtype of 16 bits and more holds these exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Tensor, show_path
from ckptdoctor.edits import Cast, Fix, Retag, Safety
from ckptdoctor.facts import devices
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.device import tags
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import SAFE, Message, Way
from ckptdoctor.rules.when import generator_states

_FC = T((2, 4))
MESSAGES = (
    Message(
        ("RNG state must be a torch.ByteTensor",),
        "the state of a random generator was moved to the GPU or cast to another type while it was loaded, "
        'usually by map_location="cuda"',
        (Way("set it with", "torch.set_rng_state(state.cpu().to(torch.uint8))"), SAFE),
    ),
)
SICK = (
    Example("saved again after map_location=cuda", {"model": {"w": _FC}, "rng_state": T((5056,), "uint8", "cuda:0")}),
    Example(
        "a list of states of two GPUs",
        {"state_dict": {"w": _FC}, "cuda_rng": [T((16,), "uint8", "cuda:0"), T((16,), "uint8", "cuda:1")]},
    ),
    Example("a state that was cast", {"model": {"w": _FC}, "rng_state": T((5056,), "float32")}),
)
HEALTHY = (
    Example(
        "states on the CPU", {"model": {"w": _FC}, "rng_state": T((5056,), "uint8"), "cuda_rng": T((16,), "uint8")}
    ),
    Example("sixteen bytes of something else", {"model": {"lookup": T((16,), "uint8", "cuda:0")}}),
)


@rule("D607", "rng-on-cuda", Severity.ERROR, when=generator_states)
def rng_on_cuda(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report states of random number generators that torch will not take back."""
    states = devices.rng_tensors(checkpoint)
    moved = [each for each in states if each.dtype.name == "uint8" and _device(each) not in (devices.CPU, tags.META)]
    if moved:
        yield _moved(moved)
    cast = [each for each in states if each.dtype.name != "uint8"]
    if cast:
        yield _cast(cast)


def _moved(states: Sequence[Tensor]) -> Problem:
    found = list(dict.fromkeys(map(_device, states)))
    storages = tuple(dict.fromkeys([each.storage.key for each in states if each.storage is not None]))
    return Problem(
        message=f"{_are(states)} tagged {tags.listed_tags(found)}",
        cause=(
            "torch accepts the state of a random number generator only as a byte tensor on the CPU, even for "
            'a CUDA generator. Usually the file was loaded with map_location="cuda" and saved again.'
        ),
        torch_says=("RNG state must be a torch.ByteTensor",),
        keys=tuple([each.path for each in states]),
        location=Location(path=states[0].path),
        fix=tags.to_cpu(found, storages, "--select D607"),
    )


def _cast(states: Sequence[Tensor]) -> Problem:
    dtypes = wording.listed(list(dict.fromkeys([each.dtype.name for each in states])))
    return Problem(
        message=f"{_are(states)} {dtypes} instead of uint8",
        cause=(
            "torch accepts the state of a random number generator only as a byte tensor. "
            "Optimizer.load_state_dict casts the state that it loads to the dtype of the parameters."
        ),
        torch_says=("RNG state must be a torch.ByteTensor",),
        keys=tuple([each.path for each in states]),
        location=Location(path=states[0].path),
        fix=_to_bytes(states),
    )


def _to_bytes(states: Sequence[Tensor]) -> Fix:
    """Return the fix that makes them bytes on the CPU; it is refused where a value is not one of 0 to 255."""
    away = [each.storage for each in states if each.storage is not None and each.storage.device != devices.CPU]
    retagged = (Retag(devices.CPU, None, tuple(dict.fromkeys([each.key for each in away]))),) if away else ()
    cast = Cast(tuple([each.path for each in states]), "uint8", exact=True)
    return Fix("cast to uint8", (*retagged, cast), Safety.UNSAFE, "--select D607")


def _are(states: Sequence[Tensor]) -> str:
    if len(states) == 1:
        return f"the random number generator's state {show_path(states[0].path)} is"
    return f"the states of {len(states):,} random number generators are"


def _device(tensor: Tensor) -> str:
    return tensor.storage.device if tensor.storage is not None else tensor.device
