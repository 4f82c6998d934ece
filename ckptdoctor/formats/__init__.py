"""Opens any checkpoint by what its bytes are, and says how to write it with edits applied.

``examine`` looks at the outside of a file, ``read`` at its headers, and ``write`` turns what is wanted into a recipe
for a new file. Each container format is a module of its own (``formats.registry``), imported when a file may need it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Aside, Checkpoint, Container, FileSource, FolderSource, Note, NoteKind, Source
from ckptdoctor.checkpoint.process import collector_paused
from ckptdoctor.errors import (
    CkptDoctorError,
    DamagedError,
    MissingFileError,
    NotACheckpointError,
    RefusedError,
    TruncatedError,
    UnreadableError,
)
from ckptdoctor.formats.registry import FOREIGN, built_in, folder_formats, format_named, plugged_in
from ckptdoctor.inplace.names import interrupted, undo_command
from ckptdoctor.noun import replace
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.wording import format_name, listed, plural

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.formats.packed.front import Front
    from ckptdoctor.formats.packed.thin import Thin
    from ckptdoctor.writing.recipe import Recipe

__all__ = [
    "examine",
    "examine_directory",
    "named_in",
    "open_checkpoint",
    "opened",
    "passed_by",
    "read",
    "require_own",
    "salvage",
    "split_member",
    "write",
    "write_in_place",
]

# how much of the beginning of a file is looked at to recognise it
HEAD_BYTES = 4096

# what is looked into for a checkpoint (``formats.packed``)
PACKED = frozenset(
    {"gzip file", "bzip2 file", "xz file", "zstd file", "zlib file", "lzma file"}
    | {"zip archive", "tar archive", "TorchServe archive"}
)

# the built-in formats that are written as well as read: ``write`` and ``salvage`` give a file of the same format
_WRITTEN = ("torch zip", "torch legacy", "safetensors")

# the notes of a container that say that it is a checkpoint, but a broken one
_DAMAGE = frozenset(
    {
        NoteKind.HEADER_INVALID,
        NoteKind.OFFSETS_INVALID,
        NoteKind.ZIP_DAMAGED,
        NoteKind.PICKLE_DAMAGED,
        NoteKind.CRC_MISMATCH,
    }
)


@contextmanager
def opened(
    path: str | os.PathLike[str], *, headers: bool = False, passed: bool = False, here: bool = False
) -> Iterator[tuple[Source, Container]]:
    """Open the file or folder at ``path``, and tell what it is: a checkpoint that was packed is opened inside.

    An address (``https://…``) is opened where it is, and ``archive.zip/name`` names a member. ``headers`` promises that
    no values are read: what is packed then is unpacked no further than it takes, and its extents name no file.
    With ``passed`` they are, but in one passage if it offers one (``packed.front``); ``passed_by`` follows it.
    Raises UnreadableError when it cannot be opened, and with ``here`` UsageError for an address.
    """
    source, member = _source(os.fsdecode(path), here)
    with closing(source):
        container = _whole_or_interrupted(source, examine(source))
        if container.format not in PACKED or isinstance(source, FolderSource):
            if member is not None:
                raise UnreadableError(f"{os.fsdecode(path)} cannot be opened: {source.path} is not an archive.")
            yield source, container
            return
        from ckptdoctor.formats.packed import opened_inside

        with opened_inside(source, container, examine, member, headers, passed) as inside:
            yield inside


def _whole_or_interrupted(source: Source, container: Container) -> Container:
    """Return the container; one that a change in place did not complete is not readable, and a note says so."""
    owner = None if source.distant else interrupted(source.path)
    if owner is None:
        return container
    note = Note(NoteKind.INTERRUPTED, "a change in place was not completed", guidance=undo_command(owner))
    return replace(container, readable=False, notes=(note,))


def passed_by(front: Front | Thin, size: int, error: DamagedError | None) -> tuple[Source, Container]:
    """Return what ``opened`` gave, once all of it has passed by.

    That is so many bytes, or as many as there were up to an error.
    """
    from ckptdoctor.formats import packed

    return packed.passed_by(front, size, error, examine)


def _source(path: str, here: bool) -> tuple[Source, str | None]:
    """Return where the bytes are, and the member of an archive that is meant."""
    if is_address(path):
        from ckptdoctor.remote import open_remote
        from ckptdoctor.remote.downloading import path_of, require_local

        local = path_of(path)
        if here:
            require_local(path)
        if local is None and path.endswith("/"):
            from ckptdoctor.remote.folders import RemoteFolder

            return RemoteFolder(path), None
        if local is None:
            return open_remote(path), None
        path = local
    if os.path.isdir(path):
        return FolderSource(path), None
    try:
        return FileSource(path), None
    except UnreadableError as error:
        found = split_member(path)
        if found is None and isinstance(error, MissingFileError):
            from ckptdoctor.checkpoint.missing import missing

            raise missing(path) from error
        if found is None:
            raise
    return FileSource(found[0]), found[1]


def split_member(path: str) -> tuple[str, str] | None:
    """Return an archive and a name in it, of a path such as ``weights.zip/epoch_9.pt``.

    It is None where no file is on the way.
    """
    archive, member = os.path.split(path)
    while member and archive and not os.path.lexists(archive):
        archive, last = os.path.split(archive)
        if not last:
            return None
        member = f"{last}/{member}"
    return (archive, member) if member and os.path.isfile(archive) else None


@collector_paused()
def examine(source: Source) -> Container:
    """Return what the file or folder is by its bytes, and what is wrong with its outside.

    Never raises for what the file holds: what cannot be read is a Container that says so. ``format`` is "" when
    nothing is known that the bytes could be.
    """
    if isinstance(source, FolderSource):
        return _recognised_folder(source)
    from ckptdoctor.formats.suffixes import suffix_notes

    head = source.read(0, min(HEAD_BYTES, source.size))
    container = _recognised(source, head)
    notes = suffix_notes(container)
    if not notes and container.identity is source.identity:
        return container
    return replace(container, notes=(*container.notes, *notes), identity=source.identity)


def _recognised(source: Source, head: bytes) -> Container:
    for format_ in built_in():
        container = format_.examine(source, head)
        if container is not None:
            return container
    from ckptdoctor.formats.recognise.other_files import recognise

    other = recognise(source, head)
    if other.format and not other.readable:
        return other
    for format_ in plugged_in():
        container = format_.examine(source, head)
        if container is not None:
            return container
    return other


def examine_directory(path: str | os.PathLike[str]) -> Container | None:
    """Return what the directory at ``path`` is, when it is a checkpoint in several files.

    It is None when it is nothing known.
    """
    try:
        with opened(path) as (source, container):
            return container if isinstance(source, FolderSource) and container.format else None
    except UnreadableError:  # not there, or not ours to read: whoever opens it says so
        return None


def _recognised_folder(folder: FolderSource) -> Container:
    for format_ in folder_formats():
        container = format_.examine(folder, b"")
        if container is not None:
            return container
    from ckptdoctor.formats.recognise.folders import recognise_folder

    return recognise_folder(folder)


@collector_paused()
def read(source: Source, container: Container) -> Checkpoint:
    """Return what the checkpoint holds, from its headers; no tensor value is read.

    Raises NotACheckpointError for everything that is not read, and DamagedError (TruncatedError, HostileError) for a
    checkpoint that is broken where it must be whole; the container's notes say more.
    """
    if not container.readable:
        raise _unreadable(container)
    checkpoint = format_named(container.format).read(source, container)
    known = frozenset(container.notes if checkpoint.notes else ())
    notes = tuple([note for note in checkpoint.notes if note not in known])
    return replace(
        checkpoint,
        size=container.size,
        notes=(*container.notes, *notes),
        identity=source.identity,
        bytes_read=source.bytes_read,
        container=container,
    )


def named_in(source: Source) -> tuple[Aside, ...]:
    """Return what the pickles in a file or folder name, as far as each can be followed."""
    if isinstance(source, FolderSource):
        from ckptdoctor.formats.folders.companions import beside

        return beside(source, ())[0]
    from ckptdoctor.formats.other_pickles import asides_of

    return asides_of(source)


def _unreadable(container: Container) -> CkptDoctorError:
    """Return why a container cannot be read: it is damaged, or it is not a checkpoint."""
    for note in container.notes:
        if note.kind is NoteKind.INTERRUPTED:
            return DamagedError(f"{container.path} is interrupted: {note.message}. Restore it: {note.guidance}")
        if note.kind in _DAMAGE or note.kind is NoteKind.TRUNCATED:
            kind = TruncatedError if note.kind is NoteKind.TRUNCATED else DamagedError
            message = f"{container.path}: {note.message.rstrip('.')}. {container.guidance}".rstrip()
            return kind(message, offset=note.offset, member=note.member)
    if not container.format:
        told = container.guidance or "Unrecognised format."
        if told.startswith("It is "):
            return NotACheckpointError(f"{container.path} {told.removeprefix('It ')}")
        return NotACheckpointError(f"{container.path}: {told[0].lower()}{told[1:]}")
    article = "an" if container.format[:1].lower() in "aeiou" else "a"
    return NotACheckpointError(
        f"{container.path} is {article} {format_name(container.format)}. {container.guidance}".rstrip()
    )


def require_own(container: Container) -> None:
    """Raise NotACheckpointError for a container that is read, but is for another program, which its guidance names."""
    if container.format in FOREIGN:
        raise _unreadable(container)


def open_checkpoint(path: str | os.PathLike[str], *, headers: bool = False) -> Checkpoint:
    """Return what the checkpoint at ``path``, which may be a folder, holds: ``examine`` and ``read`` in one.

    ``headers`` promises that nobody reads its values afterwards (``opened``).
    Raises UnreadableError when there is no such file, and what ``read`` raises.
    """
    with opened(path, headers=headers) as (source, container):
        return read(source, container)


@collector_paused()
def salvage(source: Source, container: Container) -> Checkpoint:
    """Return what is left of a broken checkpoint; afterwards ``write`` with this source copies whatever is whole.

    Storages of which nothing is left have no extent, those that are cut off a shorter one than ``nbytes`` says.
    Raises NotACheckpointError for a container that cannot be salvaged, and DamagedError where its headers are lost.
    """
    _require_local(source)
    if any(note.kind is NoteKind.INTERRUPTED for note in container.notes):
        raise _unreadable(container)
    what_is_left = getattr(format_named(container.format), "salvage", None) if container.format in _WRITTEN else None
    if what_is_left is None:
        article = "an" if container.format[:1].lower() in "aeiou" else "a"
        kind = f"{article} {format_name(container.format)}" if container.format else "not in a known format"
        raise NotACheckpointError(
            f"{container.path} is {kind}: only {listed(list(map(format_name, _WRITTEN)))} files can be salvaged."
        )
    checkpoint: Checkpoint = what_is_left(source, container)
    return replace(checkpoint, size=container.size, identity=source.identity, container=container)


def is_written(name: str) -> bool:
    """Return whether contents of this format can be edited; others are converted first."""
    return name in _WRITTEN or any(name == format_.NAME for format_ in plugged_in())


@collector_paused()
def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Return how to write what is wanted: as a copy of the file that is its original, or with None out of nouns alone.

    Alone, Truncate and SetSuffix are the same for every container: the first copies the beginning of the file, the
    second changes no byte. Raises UnprovenError when a lossless copy cannot be proven, RefusedError when an edit is
    impossible (two keys would get one name) and DamagedError when the file cannot be read far enough.
    """
    from ckptdoctor.edits import SetSuffix, Truncate
    from ckptdoctor.writing.recipe import Copy, Recipe

    if source is None:
        return format_named(wanted.contents.format).write(wanted, None)
    _require_local(source)
    held = [edit for edit in wanted.edits if not isinstance(edit, SetSuffix)]  # a new name changes no byte
    lengths = [edit.length for edit in held if isinstance(edit, Truncate)]
    if not wanted.edits or len(lengths) < len(held):
        return format_named(wanted.original.format).write(wanted, source)
    for length in lengths:
        if not 0 <= length <= source.size:
            raise RefusedError(f"The file has {plural(source.size, 'byte')}: it cannot be cut after {length:,}.")
    return Recipe(source.file, (Copy(0, min(lengths, default=source.size)),))


@collector_paused()
def write_in_place(wanted: Wanted, source: Source, block: int | None) -> Recipe:
    """Return how to write what is wanted in the file itself: a recipe in which ranges of tensors stay where they are.

    Where the file system can put whole blocks in front of a file, ``block`` is their size. Raises NotInPlaceError
    where that cannot be, and what ``write`` raises.
    """
    from ckptdoctor.edits import SetSuffix, Truncate
    from ckptdoctor.inplace.change import NotInPlaceError

    _require_local(source)
    if any(isinstance(edit, SetSuffix) for edit in wanted.edits):
        raise NotInPlaceError("its name has to change")
    if wanted.stored:
        raise NotInPlaceError("bytes of tensors would be written, not only names")
    lengths = [edit.length for edit in wanted.edits if isinstance(edit, Truncate)]
    if len(lengths) == len(wanted.edits):
        return write(wanted, source)
    if wanted.original.format == "torch zip":
        from ckptdoctor.formats.torch.zip import in_place as zip_in_place

        return zip_in_place.write_in_place(wanted, source)
    if wanted.original.format == "safetensors":
        from ckptdoctor.formats.safetensors import in_place as safetensors_in_place

        return safetensors_in_place.write_in_place(wanted, source, block)
    if wanted.original.format == "torch legacy":
        from ckptdoctor.formats.torch.legacy import in_place as legacy_in_place

        return legacy_in_place.write_in_place(wanted, source, block)
    raise NotInPlaceError("only PyTorch files (zip and legacy) and safetensors files can be")


def _require_local(source: Source) -> None:
    """Raise RefusedError for a file on another machine: what is written is copied from a file."""
    if source.distant:
        from ckptdoctor.remote.downloading import download_first

        raise RefusedError(f"{source.path} is not on this machine: {download_first(source.path)}")
