"""Holds what reading every byte of a checkpoint showed: storages that are damaged, and checksums that do not fit."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, Note, Storage
from ckptdoctor.facts.names import TiedPair
from ckptdoctor.noun import noun

# A hole is what an interrupted download leaves: a run of zero bytes, 64 KiB or longer, that begins or ends at a page
# boundary of the file in the middle of values that are not zero.

PAGE = 4096
HOLE = 64 << 10  # shorter runs of zeros are too common in real weights


@noun
class Hole:
    """``length`` zero bytes at ``offset`` of the file, within a storage that is not all zero."""

    offset: int
    length: int


def may_have_holes(storage: Storage) -> bool:
    """Return whether zeros within it would be odd: it holds floating-point values, as far as is known."""
    return storage.dtype is None or storage.dtype.kind in ("float", "complex")


@noun
class Damage:
    """What is wrong with the bytes of one storage: its checksum (None: it has none, or it fits) or holes."""

    storage: Storage
    computed: int | None
    holes: tuple[Hole, ...]


@noun
class Promise:
    """The SHA-256 (or its first digits) or MD5 that a file should have, and who says so.

    ``sure`` is false where the digits of a name may be something else than a checksum. ``seal`` is the seal that says
    so, which knows more than the whole, or "".
    """

    digits: str
    by: str
    sure: bool = True
    algorithm: str = "sha256"
    seal: str = ""

    @property
    def sealed(self) -> bool:
        """Whether a seal says so."""
        return bool(self.seal)

    @property
    def kind(self) -> str:
        """What people call it."""
        return {"sha256": "SHA-256", "md5": "MD5"}[self.algorithm]


@noun
class Integrity:
    """What reading every byte of a checkpoint's storages showed.

    ``read`` counts the bytes. ``without_checksum`` counts the storages whose damage could not be seen for certain.
    ``digest`` is that of the whole file, computed only where there is a ``promise`` to compare it with. ``twins`` are
    the pairs of ``facts.names`` that were compared, because no checksums show whether they are the same. After an
    interruption it covers only the storages that were read to their end. ``bad_seals`` are why seals of the file say
    nothing: they cannot be read, or are damaged.
    """

    checkpoint: Checkpoint
    damage: tuple[Damage, ...]
    read: int
    without_checksum: int
    notes: tuple[Note, ...] = ()
    promise: Promise | None = None
    digest: str = ""
    twins: tuple[TiedPair, ...] = ()
    bad_seals: tuple[str, ...] = ()
