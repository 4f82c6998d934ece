"""The repair of an index of shards: it is written anew."""

from __future__ import annotations

from ckptdoctor.edits import Fix, Safety, WriteIndex
from ckptdoctor.facts.notes import Noted
from ckptdoctor.facts.sharding import index_to_write


def new_index(subject: Noted, code: str) -> Fix | None:
    """The repair; None where the shards do not tell what a right index is."""
    name = index_to_write(subject)
    if name is None:
        return None
    title = "write the index anew from the headers of the shards"
    return Fix(title, (WriteIndex(name),), Safety.SAFE, f"--select {code}")
