"""Reads values of one tensor when somebody looks at them. NumPy is imported when the first is looked at."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from threading import Lock
from typing import TYPE_CHECKING, TypeVar, Union

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, FileSource, Source, Tensor
from ckptdoctor.checkpoint.checkpoint import FileIdentity
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.errors import CkptDoctorError, StoppedError, UnreadableError
from ckptdoctor.noun import noun, replace
from ckptdoctor.values.statistics import (
    Extreme,
    Extremes,
    Look,
    Number,
    Picture,
    Spectrum,
    TensorValues,
    Values,
    Window,
)

if TYPE_CHECKING:
    from ckptdoctor.values.regions import Boxes

__all__ = ["Extreme", "Extremes", "Inspector", "Look", "Number", "Picture", "Refused", "Spectrum", "TensorValues"]
__all__ += ["Values", "Window"]

_KEPT = 64  # looks that are remembered

Seen = TypeVar("Seen")


@noun
class Refused:
    """Values that cannot be looked at, and why."""

    reason: str


class Inspector:
    """Looks into the tensors of a checkpoint that has been read; threads may share it.

    The file is opened with the first look and stays open. What cannot be looked at is ``Refused``; where nobody
    wants the rest of the ``work``, a look ends early, refused for no reason.
    """

    def __init__(self, path: str, checkpoint: Checkpoint) -> None:
        self._path = path
        self._checkpoint = checkpoint
        self._lock = Lock()  # of opening, and of every read
        self._opened = ExitStack()
        self._source: Source | None = None
        self._looks: dict[int, Look] = {}  # by the tensor, which the checkpoint keeps

    def window(self, tensor: Tensor, box: Sequence[range], work: Work) -> Union[Window, Refused]:
        """Return the values of a box: of each dimension some neighbouring indexes."""

        def see(boxes: Boxes, distant: bool) -> Window:
            from ckptdoctor.values.preview import window

            return window(tensor, box, boxes)

        return self._try(see, work)

    def look(self, tensor: Tensor, work: Work) -> Union[Look, Refused]:
        """Return its statistics, histograms and extremes; of a large tensor, of a sample of it."""

        def see(boxes: Boxes, distant: bool) -> Look:
            from ckptdoctor.values.preview import look

            return look(tensor, boxes, work, distant)

        known = self._looks.pop(id(tensor), None)
        seen = self._try(see, work) if known is None else known
        if isinstance(seen, Look):
            self._looks[id(tensor)] = seen  # the last ones stay: people go back and forth
            if len(self._looks) > _KEPT:
                self._looks.pop(next(iter(self._looks)), None)
        return seen

    def picture(
        self, tensor: Tensor, box: Sequence[range], rows: int | None, shape: tuple[int, int], how: str, work: Work
    ) -> Union[Picture, Refused]:
        """Return a slice of at most two dimensions as at most so many rows and columns of cells."""

        def see(boxes: Boxes, distant: bool) -> Picture:
            from ckptdoctor.values.preview import picture

            return picture(tensor, box, rows, shape, how, boxes)

        return self._try(see, work)

    def difference(
        self,
        tensor: Tensor,
        other: Inspector,
        its: Tensor,
        box: Sequence[range],
        rows: int | None,
        shape: tuple[int, int],
        how: str,
        work: Work,
    ) -> Union[Picture, Refused]:
        """Return the same of the values of a tensor minus those of one of the same shape in another checkpoint."""

        def see(boxes: Boxes, distant: bool) -> Union[Picture, Refused]:
            from ckptdoctor.values.preview import difference_picture

            return other._try(
                lambda there, _: difference_picture(tensor, its, box, rows, shape, how, (boxes, there)), work
            )

        return self._try(see, work)

    def measure(self, tensors: Sequence[Tensor], work: Work) -> Union[Values, Refused]:
        """Return all values of some tensors in numbers: for few bytes, of a file on this machine."""

        def see(boxes: Boxes, distant: bool) -> Union[Values, Refused]:
            from ckptdoctor.values.examine import examine_values

            if distant or self._source is None:
                return Refused("")
            with self._lock:
                part = replace(self._checkpoint, tensors=tuple(tensors))
                return examine_values(part, self._source, work, threads=1)

        return self._try(see, work)

    def spectrum(self, tensor: Tensor, work: Work) -> Union[Spectrum, Refused]:
        """Return the singular values of a matrix; a convolution counts as one, with a row for each output channel."""

        def see(boxes: Boxes, distant: bool) -> Spectrum:
            from ckptdoctor.values.spectrum import spectrum

            return spectrum(tensor, boxes)

        return self._try(see, work)

    def seen_as(self, tensor: Tensor) -> Union[Tensor, Refused]:
        """Return the tensor whose values are shown: of a sparse one, or of a wrapper, the one inside."""
        from ckptdoctor.values.regions import UnreadError, plain

        try:
            return plain(tensor)
        except UnreadError as error:
            return Refused(str(error))

    def _try(self, see: Callable[[Boxes, bool], Seen], work: Work) -> Union[Seen, Refused]:
        from ckptdoctor.values.regions import Boxes, UnreadError

        try:
            source = self._open()
            return see(Boxes(self._checkpoint, source, work, self._lock), source.distant)
        except (UnreadError, StoppedError) as error:
            return Refused(str(error))
        except CkptDoctorError as error:
            return Refused(error.message)
        except MemoryError:
            return Refused("there is not enough memory for it")

    def _open(self) -> Source:
        with self._lock:
            if self._source is None:
                source = self._plain() or self._opened.enter_context(formats.opened(self._path))[0]
                if source.identity != self._checkpoint.identity:
                    raise UnreadableError("The file has changed since it was opened: open it again.")
                self._source = source
            elif _overwritten(self._source):
                raise UnreadableError("The file has been overwritten since it was opened: open it again.")
            return self._source

    def _plain(self) -> Union[Source, None]:
        """Return the file, where it is the checkpoint itself and the same as then.

        A long header need not be read again.
        """
        try:
            source = FileSource(self._path)
        except UnreadableError:  # an address, a folder, a member of an archive
            return None
        if (source.identity, source.size) == (self._checkpoint.identity, self._checkpoint.size):
            return self._opened.enter_context(closing(source))
        source.close()
        return None


def _overwritten(source: Source) -> bool:
    """Return whether the file that is open has other contents by now; one that took its place changes nothing."""
    if source.identity is None:
        return False
    try:
        status = os.stat(source.file)
    except OSError:
        return False
    now = FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    there = (now.device, now.inode) == (source.identity.device, source.identity.inode)
    return there and now != source.identity
