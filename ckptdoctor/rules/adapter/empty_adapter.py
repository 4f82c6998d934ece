"""An adapter file holds no adapter: it has no tensors, or low-rank matrices without elements.

Meaning
    The file that should hold the adapter is empty (443 bytes in old files of torch, 40 of safetensors), or some of its
    matrices are empty or flat. Common reasons: ``model.state_dict`` was replaced by a function that gives the adapter's
    tensors, and peft then filtered those once more (alpaca-lora's training script); or ZeRO-3 or FSDP had sharded the
    parameters when they were saved.

Why it matters
    It loads without an error, and the model answers as if it had never been trained.

Symptoms
    UserWarning: Found missing adapter keys while loading the checkpoint: …
    size mismatch for …lora_A.default.weight: copying a param with shape torch.Size([0]) from checkpoint, …

Detection
    A file called ``adapter_model.safetensors`` or ``.bin`` has no tensor. Or a matrix of LoRA has no element, or only
    one dimension.

Repair
    None: the weights are not in this file. A trainer's ``checkpoint-*`` folder next to it often has them, as
    ``adapter_model.*`` or within ``pytorch_model.bin``. When saving again, gather the parameters first.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Mapping, StateDict
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.facts.adapters import adapter_in, is_adapter_file
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.renames import how_many
from ckptdoctor.rules.when import adapter_file, adapter_keys, any_of

_Q = "base_model.model.layers.0.q_proj"
_WHOLE = {f"{_Q}.lora_A.weight": T((2, 4)), f"{_Q}.lora_B.weight": T((4, 2))}
SICK = (
    Example("an empty file", {}, name="adapter_model.bin"),
    Example("metadata only", {}, "safetensors", metadata={"format": "pt"}, name="adapter_model.safetensors"),
    Example("matrices without elements", {key: T((0,)) for key in _WHOLE}, name="adapter_model.bin"),
    Example("one of them", {**_WHOLE, f"{_Q}.lora_B.weight": T((0,))}),
)
HEALTHY = (
    Example("an adapter", _WHOLE, name="adapter_model.bin"),
    Example("another empty file", {}),
)

_CAUSE = "With peft this loads without an error, and the model answers as if it had never been trained."
_ADVICE = (
    "Look for a folder checkpoint-* next to it: its adapter_model.*, or the lora_ keys in its "
    "pytorch_model.bin. When saving again, gather sharded parameters first (ZeRO-3, FSDP), and do not "
    "replace state_dict()."
)


@rule("L903", "empty-adapter", Severity.ERROR, when=any_of(adapter_file, adapter_keys))
def empty_adapter(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report adapters with nothing in them."""
    if is_adapter_file(checkpoint.path) and not checkpoint.tensors and isinstance(checkpoint.tree, Mapping):
        yield Problem(message="the adapter file holds no tensors", cause=_CAUSE, advice=_ADVICE)
    for state_dict in checkpoint.state_dicts:
        if state_dict.role in WEIGHTS:
            yield from _hollow(state_dict)


def _hollow(state_dict: StateDict) -> Iterator[Problem]:
    adapter = adapter_in(state_dict)
    if adapter is None:
        return
    # the factors of LoRA have two dimensions or more in every layer that peft knows
    empty = [
        tensor
        for _, tensor in adapter.factors(state_dict.tensors)
        if not tensor.numel or (len(tensor.shape) < 2 and tensor.key.endswith(".weight"))
    ]
    if not empty:
        return
    first = empty[0]
    yield Problem(
        message=f"{how_many(len(empty), state_dict)} {'is a matrix' if len(empty) == 1 else 'are matrices'} of LoRA "
        f"without rows and columns ({first.key} is {wording.shape(first.shape)})",
        cause=_CAUSE,
        advice=_ADVICE,
        keys=tuple([tensor.path for tensor in empty]),
        location=Location(path=state_dict.path),
    )
