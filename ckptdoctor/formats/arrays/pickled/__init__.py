"""``pickle.dump`` and joblib write NumPy arrays and torch tensors into plain pickles."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ckptdoctor.checkpoint import Checkpoint, Container, Source
from ckptdoctor.formats.recognise.pickled import is_pickle
from ckptdoctor.formats.unrepairable import refused

if TYPE_CHECKING:
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

__all__ = ["NAME", "examine", "read", "write"]

NAME = "pickle"

# of what is unpacked in part: it is read to tell whether its headers are enough, and for these
_contents: WeakKeyDictionary[Source, Checkpoint] = WeakKeyDictionary()


def examine(source: Source, head: bytes) -> Container | None:
    """Return a file that begins as a pickle does, or None for any other. What is wrong inside of it, ``read`` says."""
    if not is_pickle(source, head):
        return None
    return Container(source.path, source.size, NAME, head, True, identity=source.identity)


def read(source: Source, container: Container) -> Checkpoint:
    """Return the contents. No array's values are read but those that are pickled as text. Raises DamagedError."""
    from ckptdoctor.formats.arrays.pickled.contents import contents_of
    from ckptdoctor.formats.arrays.pickled.stream import Mapped

    if not isinstance(source, Mapped):
        return contents_of(source, container)
    if source not in _contents:
        _contents[source] = contents_of(source, container)
    return _contents[source]


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Raise RefusedError: a plain pickle is converted, not repaired."""
    raise refused(wanted.original.path, NAME)
