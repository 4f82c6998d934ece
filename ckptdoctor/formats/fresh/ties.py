"""Tensors that are one and the same memory, and which of their names keeps the bytes where only one can.

The input embedding is the one that loaders look for: transformers ties the output layer to it, never the other way
round, so a file without it loads with a random one. Everything else goes by the order of the file, never of the
alphabet, as ``safetensors.torch.save_model`` has it, which keeps ``lm_head.weight``.
"""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.edits.elements import NewStorage

# the last module of input embeddings in transformers, fairseq and GPT-like models; the first that is there is taken
_EMBEDDINGS = (
    *("shared", "embed_tokens", "wte", "word_embeddings", "word_embedding", "tok_embeddings", "embed_in"),
    *("token_embedding", "tok_emb", "embeddings", "embedding", "emb", "embed"),
)


def view_of(tensor: Tensor) -> object:
    """What tensors share when they are one: the bytes, how they are viewed, the dtype. None without elements."""
    if not tensor.numel or tensor.chunks:
        return None
    if isinstance(tensor.storage, NewStorage):
        place: object = tensor.storage.key
    elif tensor.storage is not None:
        where = tensor.storage.extent
        place = None if where is None else (where.file, where.offset, where.length)
    else:
        place = id(tensor.values)
    return place, tensor.form


def owners(named: Iterable[tuple[str, Tensor]]) -> dict[str, str]:
    """Alias → owner, for every name whose tensor is that of another name."""
    groups: dict[object, list[str]] = {}
    for name, tensor in named:
        view = view_of(tensor)
        if view is not None:
            groups.setdefault(view, []).append(name)
    found: dict[str, str] = {}
    for names in groups.values():
        if len(names) > 1:
            owner = owner_of(names)
            found.update((name, owner) for name in names if name != owner)
    return found


def owner_of(names: list[str]) -> str:
    """The name that keeps the bytes: that of the input embedding, else the first."""
    ranked = [(rank, index) for index, name in enumerate(names) if (rank := _rank(name)) is not None]
    return names[min(ranked)[1]] if ranked else names[0]


def _rank(name: str) -> int | None:
    modules = name.split(".")[:-1]
    if not modules or modules[-1] not in _EMBEDDINGS:
        return None
    return _EMBEDDINGS.index(modules[-1])
