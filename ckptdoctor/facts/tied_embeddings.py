"""Tells which tensors models are known to share: output layers that are the input embedding, and whether they agree.

Sources: the names that transformers gives them; ``safetensors.torch.save_model``, which keeps one of two names and
notes the other in the file's metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.facts.siblings import config_beside
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex

EMBEDDING = regex(r"(?:^|\.)(?:embed_tokens|word_embeddings|tok_embeddings|wte|shared|embed_in)\.weight$")
HEAD = regex(r"(?:^|\.)(?:lm_head|embed_out)\.weight$")
_HEADS = ("lm_head.weight", "embed_out.weight")
_LOOKED_AT = 4  # heads of one model


# tensors that models share, and the other name of each: the lists of tied weights in transformers
# (_tied_weights_keys of GPT-2, Llama, BERT, Whisper and T5)
_SHARED = (
    (HEAD, EMBEDDING),
    (regex(r"(?:^|\.)proj_out\.weight$"), regex(r"(?:^|\.)decoder\.embed_tokens\.weight$")),
    (regex(r"\.predictions\.decoder\.weight$"), regex(r"(?:^|\.)embeddings\.word_embeddings\.weight$")),
    (regex(r"\.predictions\.decoder\.bias$"), regex(r"\.predictions\.bias$")),
    (regex(r"(?:^|\.)(?:en|de)coder\.embed_tokens\.weight$"), regex(r"(?:^|\.)shared\.weight$")),
)


def known_partner(key: str, here: Iterable[str]) -> str | None:
    """The only key here that models which have ``key`` are known to share it with, in this direction or the other."""
    for one, other in _SHARED:
        for mine, theirs in ((one, other), (other, one)):
            found = [each for each in here if theirs.search(each)] if mine.search(key) else []
            if len(found) == 1:
                return found[0]
    return None


_ENDS = (
    *("lm_head.weight", "embed_out.weight", "proj_out.weight"),
    *(".predictions.decoder.weight", ".predictions.decoder.bias", "embed_tokens.weight"),
)


def known_pairs(keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names that models are known to have for one tensor: (second name, first name)."""
    listed = list(keys)
    seconds = [key for key in listed if key.endswith(_ENDS)]
    for one, other in _SHARED if seconds else ():
        names = [key for key in seconds if one.search(key)]
        firsts = [key for key in listed if other.search(key)] if names else []
        if len(firsts) <= _LOOKED_AT:
            yield from ((name, first) for name in names for first in firsts if name != first)


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


def same_checksums(one: Tensor, other: Tensor) -> bool | None:
    """Whether two tensors that fill storages of their own have the same bytes, by length and stored checksum."""
    first, second = one.storage, other.storage
    if first is None or second is None or first.crc32 is None or second.crc32 is None:
        return None
    if one.stride != other.stride or not (_fills(one) and _fills(other)):
        return None
    return first.nbytes == second.nbytes and first.crc32 == second.crc32


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


def _fills(tensor: Tensor) -> bool:
    return tensor.storage is not None and tensor.offset == 0 and tensor.nbytes == tensor.storage.nbytes
