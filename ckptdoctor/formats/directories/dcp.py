"""A folder of torch.distributed.checkpoint: ``.metadata`` says which bytes of which ``.distcp`` file are what.

Each value was saved by ``torch.save`` into a stretch of a file; a sharded tensor is several of them (its chunks).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, FolderSource, Note, NoteKind, Source
from ckptdoctor.edits import Edit
from ckptdoctor.errors import CkptDoctorError, DamagedError, HostileError
from ckptdoctor.formats.directories.gathering import Gathering, folder_of, known, size_of, unread
from ckptdoctor.formats.directories.metadata import Metadata, read_metadata
from ckptdoctor.formats.directories.nesting import nested
from ckptdoctor.formats.directories.pieces import Pieces
from ckptdoctor.formats.directories.refusing import refusal

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.writing.recipe import Recipe

NAME = "torch distributed checkpoint"

_METADATA = ".metadata"
_LONGEST = 1 << 30


def examine(source: Source, head: bytes) -> Container | None:
    """The folder by ``.metadata`` and what lies beside it; without ``.metadata`` nothing in it can be found."""
    folder = folder_of(source)
    files = [name for name in folder.names if name.endswith(".distcp")]
    if not files and _METADATA not in folder.names:
        return None
    container = known(folder, NAME, size_of(folder, [*files, _METADATA]))
    if _METADATA in folder.names:
        return container
    message = ".metadata is missing, which says what the .distcp files hold"
    guidance = (
        "Copy .metadata from where it was saved (its name begins with a dot, so that “cp FOLDER/*” leaves it out); "
        "a save that was interrupted never wrote it."
    )
    return unread(container, guidance, [Note(NoteKind.FILE_MISSING, message, _METADATA)])


def read(source: Source, container: Container) -> Checkpoint:
    """The nested contents, from ``.metadata`` and the headers of what it points to. Raises DamagedError."""
    folder = folder_of(source)
    metadata = _metadata(folder)
    gathering = Gathering(folder)
    for name in metadata.odd[:8]:
        gathering.note(NoteKind.NOT_EXAMINED, f"{name[:80]} is described in no way that is known", _METADATA)
    pieces = Pieces(gathering, metadata)
    values = [(metadata.paths.get(entry.key) or (entry.key,), entry) for entry in metadata.entries]
    tree = nested(values, pieces.value, gathering)
    gathering.globals += pieces.globals
    return gathering.checkpoint(container, tree)


def _metadata(folder: FolderSource) -> Metadata:
    source = folder.open(_METADATA)
    if source.size > _LONGEST:
        raise HostileError(f".metadata is {source.size:,} bytes long; at most {_LONGEST:,} are read.", member=_METADATA)
    try:
        return read_metadata(source.read(0, source.size))
    except DamagedError as error:
        raise type(error)(f".metadata: {error.message}", offset=error.offset, member=_METADATA) from error
    except CkptDoctorError:
        raise


def rewrite(source: Source, checkpoint: Checkpoint, edits: Sequence[Edit]) -> Recipe:
    """Not done in place."""
    raise refusal(checkpoint)
