"""Keeps what files that are read one after another are like, and knows others again by it."""

from __future__ import annotations

from typing import Any, Protocol
from weakref import WeakKeyDictionary

from ckptdoctor.checkpoint import Checkpoint, Source
from ckptdoctor.checkpoint.blind import Looked
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.formats.alike.renewing import Again

_KEPT = 12  # likenesses at once,
_TENSORS = 20_000  # with so many tensors together,
_OF_ONE_LENGTH = 3
_MOST_LENGTHS = 4_096  # that are noted
_TRIES = 4  # for files of one length; what differs in another way each time is not worth more
_CONTENTS = 8  # of which it is known what they are like: those that were read last
_FORMATS = ("torch zip", "safetensors")


class Likeness(Protocol):
    """A file that others are like. Of ``blind`` nobody may look at what differs (``checkpoint.blind``).

    ``kept`` is for what others work out about all of them.
    """

    blind: Checkpoint
    kept: dict[str, Any]

    def again(self, source: Source) -> Again | None:
        """Return what is known of a file of the same length; None where it is not like this one."""


class Remembered:
    """What was read before, the last of it first."""

    def __init__(self) -> None:
        self._known: dict[int, list[Likeness]] = {}  # by the length of the file
        self._met: dict[int, int] = {}  # how often files of a length were read in full
        self._near: WeakKeyDictionary[Source, Likeness] = WeakKeyDictionary()
        self._taken: WeakKeyDictionary[Source, tuple[Checkpoint, Likeness]] = WeakKeyDictionary()
        self._like: dict[int, tuple[Checkpoint, Likeness]] = {}  # by the identity of contents

    def look_at(self, source: Source) -> None:
        """Note whether a file that was opened is like one before."""
        if source.path != source.file:  # it is called otherwise, and its contents would be
            return
        for likeness in self._known.get(source.size, ()):
            try:
                again = likeness.again(source)
            except CkptDoctorError:  # it cannot be read that far: whoever reads it says why
                return
            if again is not None and again.contents is not None:
                self._taken[source] = again.contents, likeness
                return
            if again is not None:
                self._near[source] = likeness

    def contents(self, source: Source) -> Checkpoint | None:
        """Return the contents of a file that is like one before."""
        found = self._taken.get(source)
        return found[0] if found is not None else None

    def note(self, source: Source, read: Checkpoint, made: Checkpoint) -> None:
        """Note what was ``read`` of a file, and the contents that were ``made`` of that and its container."""
        if source in self._taken:
            _, likeness = self._taken.pop(source)
            while len(self._like) >= _CONTENTS:
                del self._like[next(iter(self._like))]
            self._like[id(made)] = made, likeness
        elif read.format in _FORMATS:
            self._learn(source, read)

    def _learn(self, source: Source, read: Checkpoint) -> None:
        if len(self._met) > _MOST_LENGTHS:
            self._met.clear()
        met = self._met[source.size] = self._met.get(source.size, 0) + 1
        if not 1 < met <= _TRIES + 1 or not read.tensors or len(read.tensors) > _TENSORS // 2:
            return
        near = self._near.pop(source, None)
        try:
            found = _made(source, read, near)
        except (ValueError, LookupError, CkptDoctorError, Looked):  # nothing can be like it; it was read as it is
            return
        others = [each for each in self._known.pop(source.size, ()) if each is not near]
        self._known[source.size] = [found, *others[: _OF_ONE_LENGTH - 1]]
        while len(self._known) > 1 and self._is_much():
            gone = next(iter(self._known))
            del self._known[gone]
            self._met.pop(gone, None)

    def _is_much(self) -> bool:
        every = [each for some in self._known.values() for each in some]
        return len(every) > _KEPT or sum([len(each.blind.tensors) for each in every]) > _TENSORS

    def likeness_of(self, made: Checkpoint) -> Likeness | None:
        """Return what contents are like."""
        found = self._like.get(id(made))
        return found[1] if found is not None and found[0] is made else None


def _made(source: Source, read: Checkpoint, near: Any) -> Likeness:
    if read.format == "safetensors":
        from ckptdoctor.formats.alike import safetensors

        return safetensors.Likeness(source, read)
    from ckptdoctor.formats.alike import torch_zip

    return torch_zip.Likeness(source, read, near)
