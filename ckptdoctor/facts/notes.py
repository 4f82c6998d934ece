"""Finds what was noted of a file: by who recognised it, by who read it, and by who read every byte of it."""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, Note, NoteKind, Storage
from ckptdoctor.noun import noun

if TYPE_CHECKING:
    from ckptdoctor.facts.tied_embeddings import TiedPair

# ---- what reading every byte shows
#
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
    """Whether zeros within it would be odd: it holds floating-point values, as far as is known."""
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

    ``sure`` is false where the digits of a name may be something else than a checksum.
    """

    digits: str
    by: str
    sure: bool = True
    algorithm: str = "sha256"

    @property
    def kind(self) -> str:
        """What people call it."""
        return {"sha256": "SHA-256", "md5": "MD5"}[self.algorithm]


@noun
class Integrity:
    """What reading every byte of a checkpoint's storages showed.

    ``read`` counts the bytes. ``without_checksum`` counts the storages whose damage could not be seen for certain.
    ``digest`` is that of the whole file, worked out only where there is a ``promise`` to hold it against. ``twins``
    are the pairs of ``facts.tied_embeddings`` of which no checksums tell whether they are the same: those that were
    compared. Where it was broken off, it speaks of the storages that were read to their end, and of nothing else.
    """

    checkpoint: Checkpoint
    damage: tuple[Damage, ...]
    read: int
    without_checksum: int
    notes: tuple[Note, ...] = ()
    promise: Promise | None = None
    digest: str = ""
    twins: tuple[TiedPair, ...] = ()


# ---- notes, whoever made them


# Anything that carries notes. A rule over Noted does not depend on the moment at which a reader sees something: when
# it recognises the file, when it reads the contents, or when it reads every byte. It runs over each of the three.
Noted = Container | Checkpoint | Integrity


def notes_of(subject: Noted, *kinds: NoteKind) -> list[Note]:
    """The notes of these kinds. Those of a Checkpoint that its Container has already are left out: said once."""
    told = subject.container.notes if isinstance(subject, Checkpoint) and subject.container is not None else ()
    return [note for note in subject.notes if note.kind in kinds and note not in told]


def format_of(subject: Noted) -> str:
    """The name of the container format ("torch zip"), or "" when nothing matched."""
    return subject.checkpoint.format if isinstance(subject, Integrity) else subject.format


# ---- why safetensors refuses a header: for its metadata, or for all else


# how the reader's notes on metadata begin (formats.safetensors.header)
ENTRY = "the __metadata__ entry "
_METADATA = (ENTRY, "__metadata__ is not an object of strings")
_REST = "are not listed"  # how its last note ends, which only counts


def metadata_notes(notes: Iterable[Note]) -> list[Note]:
    """Of notes on a header, those on metadata that is not text."""
    on_header = [note for note in notes if note.kind is NoteKind.HEADER_INVALID]
    found = [note for note in on_header if note.message.startswith(_METADATA)]
    counts = [note for note in on_header if note.message.endswith(_REST)]
    return on_header if found and len(found) + len(counts) == len(on_header) else found


# ---- the version of an archive, apart from all else that is unusual about archives


# the reader's words for a version record that is there (torch_zip.read)
_KNOWN_WORDS = "version record that torch does not know"


def version_notes(subject: Noted) -> list[Note]:
    """The notes on a version record that torch does not know."""
    return [note for note in notes_of(subject, NoteKind.ZIP_UNUSUAL) if _KNOWN_WORDS in note.message]


# ---- what a packed checkpoint is called once it is unpacked


# what is left out of the name of a packed file, from the end
_PACKING = (".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".z", ".lzma", ".zip", ".tar", ".mar")

_TORCH = (".pt", ".pth", ".ckpt", ".bin")
_SAFETENSORS = (".safetensors", ".sft")
# what other contents are called; torch's own come first
_OTHERS = {"NumPy archive": (".npz",), "NumPy array": (".npy",), "pickle": (".pkl", ".pickle", ".joblib")}


def unwrapped_path(container: Container) -> str | None:
    """Where the inside of a packed file goes: beside it, under its name without what says how it was packed.

    Only its own name counts, or the one that the person gave (``weights.zip/epoch_9.pt``), and none that the file
    holds: those could be anything. None where it is not packed.
    """
    notes = notes_of(container, NoteKind.ARCHIVE_WRAPPED)
    if not notes:
        return None
    path, member = container.path, notes[0].member
    if member and path.endswith(f"/{member}"):
        path = os.path.join(os.path.dirname(path[: -len(member) - 1]), member.rpartition("/")[2])
    stem = path
    while stem.lower().endswith(_PACKING):
        stem = os.path.splitext(stem)[0]
    fitting = _fitting(container.format)
    known, suffix = os.path.splitext(stem)
    if suffix.lower() in fitting:
        return stem
    if suffix.lower() in (*_TORCH, *_SAFETENSORS):
        stem = known
    return stem + fitting[0]


def _fitting(format_: str) -> tuple[str, ...]:
    if format_ == "safetensors":
        return _SAFETENSORS
    return _OTHERS.get(format_, _TORCH)
