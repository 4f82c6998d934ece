"""Keys that are a second name of a tensor which a target wants under its first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.tensor import shared_view
from ckptdoctor.facts.tied_embeddings import EMBEDDING, HEAD, same_checksums


def twins_of(here: Mapping[str, Tensor], others: Iterable[str], wanted: Sequence[str]) -> dict[str, str]:
    """Those of ``others`` that are one tensor with a key of ``wanted`` → that key.

    One tensor is what shows the same elements of one storage. A head that has bytes of its own passes for its embedding
    where the checksums say that these are equal; of other tensors, equal checksums tell nothing: all zeros have one.
    """
    firsts: dict[object, str] = {}
    for key in wanted:
        firsts.setdefault(shared_view(here[key]), key)
    found: dict[str, str] = {}
    for key in others:
        view = shared_view(here[key])
        twin = firsts.get(view) if view is not None else None
        if twin is None and HEAD.search(key):
            twin = next((each for each in wanted if EMBEDDING.search(each) and _same(here[key], here[each])), None)
        if twin is not None:
            found[key] = twin
    return found


def is_one(tensor: Tensor, other: Tensor) -> bool:
    """Whether both show the same elements of one storage."""
    view = shared_view(tensor)
    return view is not None and view == shared_view(other)


def _same(head: Tensor, table: Tensor) -> bool:
    alike = (head.shape, head.dtype.name) == (table.shape, table.dtype.name)
    return alike and same_checksums(head, table) is True
