"""Output layers of language models that are the input embedding: which of the two a file has, and whether they agree.

Sources: the names that transformers gives them; ``safetensors.torch.save_model``, which keeps one of two names and
notes the other in the file's metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from ckptdoctor.checkpoint import Checkpoint, NoteKind, Role, StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.facts.siblings import config_beside, is_shard
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex

EMBEDDING = regex(r"(?:^|\.)(?:embed_tokens|word_embeddings|tok_embeddings|wte|shared|embed_in)\.weight$")
HEAD = regex(r"(?:^|\.)(?:lm_head|embed_out)\.weight$")
_HEAD, _HEADS = "lm_head.weight", ("lm_head.weight", "embed_out.weight")
_LOOKED_AT = 4  # heads of one model
# where the first layer lies beside such a head, and what the embedding is called: Llama and most others, GPT-2, OPT
_FAMILIES = (
    ("model.layers.0.", "model.embed_tokens.weight"),
    ("transformer.h.0.", "transformer.wte.weight"),
    ("model.decoder.layers.0.", "model.decoder.embed_tokens.weight"),
)
_LIKE_AN_EMBEDDING = regex(r"emb|wte|tok|vocab", re.IGNORECASE)
_IN_PIECES = frozenset({NoteKind.FILE_MISSING, NoteKind.FILE_DAMAGED, NoteKind.INDEX_LACKS})


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
class Orphan:
    """A head without its embedding: what that would be called, and what says that the two are one ("": nothing)."""

    head: Tensor
    missing: str
    proof: str


@noun
class TiedPair:
    """Head and embedding, each with bytes of its own. ``same``: whether their checksums agree (None: unknown)."""

    head: Tensor
    embedding: Tensor
    same: bool | None


def orphans(checkpoint: Checkpoint) -> Iterator[Orphan]:
    """Heads whose embedding is missing in a model that is all there otherwise."""
    if is_shard(checkpoint.path) or any(note.kind in _IN_PIECES for note in checkpoint.notes):
        return
    for state_dict in _models(checkpoint):
        for head in _heads(state_dict):
            missing = _missing_beside(state_dict, head) if head.key.endswith(_HEAD) else ""
            proof = _proof(checkpoint, state_dict, head, missing) if missing else None
            if proof is not None:
                yield Orphan(head, missing, proof)


@cached_by_identity
def tied_pairs(checkpoint: Checkpoint) -> tuple[TiedPair, ...]:
    """Heads that lie beside the only embedding of their shape, without sharing its memory."""
    return tuple(_tied_pairs(checkpoint))


def _tied_pairs(checkpoint: Checkpoint) -> Iterator[TiedPair]:
    for state_dict in _models(checkpoint):
        heads = _heads(state_dict)
        tables = [each for each in state_dict.tensors if heads and EMBEDDING.search(each.key)]
        for head in heads:
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


def _models(checkpoint: Checkpoint) -> Iterator[StateDict]:
    return (each for each in checkpoint.state_dicts if each.role in (Role.MODEL, Role.EMA))


def _heads(state_dict: StateDict) -> list[Tensor]:
    found = (each for each in state_dict.tensors if each.key.endswith(_HEADS) and HEAD.search(each.key))
    return list(islice(filter(_is_table, found), _LOOKED_AT))


def _is_table(tensor: Tensor) -> bool:
    """Whether it is as large as a vocabulary asks for: more rows than columns."""
    return len(tensor.shape) == 2 and tensor.dtype.kind == "float" and tensor.shape[0] > tensor.shape[1] > 1


def _fills(tensor: Tensor) -> bool:
    return tensor.storage is not None and tensor.offset == 0 and tensor.nbytes == tensor.storage.nbytes


def _missing_beside(state_dict: StateDict, head: Tensor) -> str:
    """The name of the embedding that ought to be there; "" where one may be there under whatever name."""
    prefix = head.key[: -len(_HEAD)]
    keys = state_dict.keys
    family = next((each for each in _FAMILIES if any(key.startswith(prefix + each[0]) for key in keys)), None)
    if family is None:
        return ""
    layer = prefix + family[0]
    whole = False
    for tensor in state_dict.tensors:
        if tensor is not head and len(tensor.shape) == 2:
            if tensor.shape == head.shape or _LIKE_AN_EMBEDDING.search(tensor.key):
                return ""
        elif tensor.key.startswith(layer) and tensor.shape == head.shape[1:]:  # its norm: an adapter has none
            whole = True
    return prefix + family[1] if whole else ""


def _proof(checkpoint: Checkpoint, state_dict: StateDict, head: Tensor, missing: str) -> str | None:
    """What says that the two are one; "" where nothing does, None where something says the contrary."""
    if not state_dict.path and (checkpoint.metadata or {}).get(missing) == head.key:
        return "the file's metadata"
    tied = says_tied(checkpoint)
    if tied is False:
        return None
    return "config.json" if tied else ""
