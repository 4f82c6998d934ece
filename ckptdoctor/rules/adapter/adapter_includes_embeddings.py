"""Most of an adapter file is embeddings or an output layer, in full.

Meaning
    Next to low-rank matrices the file holds ``embed_tokens`` or ``lm_head`` in full: they were named in
    ``modules_to_save``, or peft saved them because the vocabulary was resized or they were targets.

Why it matters
    The adapter is as large as a part of the model. If the embeddings were not trained, they are only a copy of the base
    model's; if they were, the adapter does not work without them.

Symptoms
    An ``adapter_model.safetensors`` of gigabytes.

Detection
    Keys of embeddings or of an output layer take more than half of an adapter's bytes.

Repair
    No automatic one: their values would have to be compared with those of the base model. If they are the same,
    ``save_pretrained(…, save_embedding_layers=False)`` does not write them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.facts.adapters import EMBEDDINGS, adapter_in
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import adapter_keys

_Q = "base_model.model.model.layers.0.q_proj"
_SMALL = {f"{_Q}.lora_A.weight": T((2, 4)), f"{_Q}.lora_B.weight": T((4, 2))}
SICK = (
    Example("an adapter with an output layer", {**_SMALL, "base_model.model.lm_head.weight": T((90, 4))}),
    Example("an adapter with embeddings", {**_SMALL, "base_model.model.model.embed_tokens.weight": T((90, 4))}),
)
HEALTHY = (
    Example("matrices alone", _SMALL),
    Example("a classifier that was trained", {**_SMALL, "base_model.model.score.weight": T((90, 4))}),
    Example("not an adapter", {"lm_head.weight": T((90, 4)), "model.layers.0.q_proj.weight": T((4, 4))}),
)


@rule("L907", "adapter-includes-embeddings", Severity.INFO, when=adapter_keys)
def adapter_includes_embeddings(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report adapters that are mostly embeddings."""
    for state_dict in checkpoint.state_dicts:
        adapter = adapter_in(state_dict) if state_dict.role in WEIGHTS else None
        if adapter is None or adapter.wrapped:
            continue
        large = [each for each in state_dict.tensors if each.key not in adapter.parts and _is_embedding(each.key)]
        size, whole = sum([each.nbytes for each in large]), sum([each.nbytes for each in state_dict.tensors])
        if 2 * size <= whole:
            continue
        shown = wording.abridged([each.key for each in large])
        yield Problem(
            message=f"{wording.proportion(size, whole)} of this adapter {'are' if len(large) > 1 else 'is'} {shown}",
            cause="They were named in modules_to_save, resized or targeted by the adapter: peft then saves them in "
            "full.",
            advice="If they were not trained, they are a copy of the base model's, and save_pretrained leaves them "
            "out with save_embedding_layers=False. No command drops them: this file does not show whether "
            "they were trained.",
            keys=tuple([each.path for each in large]),
            location=Location(path=state_dict.path),
        )


def _is_embedding(key: str) -> bool:
    """Return whether a key is the weight of an embedding or of an output layer, as a whole."""
    tokens = key.split(".")
    return tokens[-1] == "weight" and not EMBEDDINGS.isdisjoint(tokens[:-1])
