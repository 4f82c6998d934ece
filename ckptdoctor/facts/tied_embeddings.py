"""Tells which tensors models are known to share: output layers that are the input embedding, and whether they agree.

Sources: the names that transformers gives them; ``safetensors.torch.save_model``, which keeps one of two names and
notes the other in the file's metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.tensor import same_checksums
from ckptdoctor.facts.siblings import config_beside
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex

EMBEDDING = regex(r"(?:^|\.)(?:embed_tokens|word_embeddings|tok_embeddings|wte|shared|embed_in)\.weight$")
HEAD = regex(r"(?:^|\.)(?:lm_head|embed_out)\.weight$")
_HEADS = ("lm_head.weight", "embed_out.weight")
_LOOKED_AT = 4  # heads of one model


@noun
class TiedPair:
    """Head and embedding, each with bytes of its own. ``same``: whether their checksums agree (None: unknown)."""

    head: Tensor
    embedding: Tensor
    same: bool | None


@cached_by_identity
def tied_pairs(checkpoint: Checkpoint) -> tuple[TiedPair, ...]:
    """Heads that lie beside the only embedding of their shape, without sharing its memory."""
    return tuple(_tied_pairs(checkpoint))


def _tied_pairs(checkpoint: Checkpoint) -> Iterator[TiedPair]:
    for state_dict in models(checkpoint):
        found = heads(state_dict)
        tables = [each for each in state_dict.tensors if found and EMBEDDING.search(each.key)]
        for head in found:
            alike = [each for each in tables if each.shape == head.shape and each.dtype == head.dtype]
            if len(alike) == 1 and head.storage is not None and head.storage is not alike[0].storage:
                yield TiedPair(head, alike[0], same_checksums(head, alike[0]))


def says_tied(checkpoint: Checkpoint) -> bool | None:
    """What the ``config.json`` beside the checkpoint says of ``tie_word_embeddings``; None where it says nothing."""
    config = config_beside(checkpoint)
    said = config.fields.get("tie_word_embeddings") if config is not None else None
    return said if isinstance(said, bool) else None


def models(checkpoint: Checkpoint) -> Iterator[StateDict]:
    """The weights that a head may stand in."""
    return (each for each in checkpoint.state_dicts if each.role in (Role.MODEL, Role.EMA))


def heads(state_dict: StateDict) -> list[Tensor]:
    """The output layers of language models, as large as a vocabulary asks for."""
    found = (each for each in state_dict.tensors if each.key.endswith(_HEADS) and HEAD.search(each.key))
    return list(islice(filter(_is_table, found), _LOOKED_AT))


def _is_table(tensor: Tensor) -> bool:
    """Whether it is as large as a vocabulary asks for: more rows than columns."""
    return len(tensor.shape) == 2 and tensor.dtype.kind == "float" and tensor.shape[0] > tensor.shape[1] > 1
