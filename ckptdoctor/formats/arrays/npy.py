"""``numpy.save`` writes one array into a file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import (
    Aside,
    Checkpoint,
    Container,
    Extent,
    GlobalName,
    Note,
    NoteKind,
    Source,
    Storage,
)
from ckptdoctor.errors import DamagedError
from ckptdoctor.formats.arrays.npy_header import (
    BIG_ENDIAN,
    MAGIC,
    PREFIX,
    STRUCTURE,
    Header,
    header_size,
    left_out,
    opaque,
    parse,
    reason,
    tensor,
)
from ckptdoctor.formats.torch.zip.records import shown
from ckptdoctor.formats.unrepairable import refused
from ckptdoctor.formats.zip_archives import Archive
from ckptdoctor.pickles.lookups import named_globals
from ckptdoctor.wording import plural

if TYPE_CHECKING:
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

__all__ = ["NAME", "examine", "read", "write"]

NAME = "NumPy array"


def examine(source: Source, head: bytes) -> Container | None:
    """Return a file that begins with NumPy's magic, or None for any other."""
    if not head.startswith(MAGIC):
        return None
    return Container(source.path, source.size, NAME, head, True, identity=source.identity)


def read(source: Source, container: Container) -> Checkpoint:
    """Return the array, from its header, or the names in its pickle. Raises DamagedError when these are invalid."""
    size = header_size(source.read(0, min(PREFIX, source.size)))
    header = parse(source.read(0, min(size, source.size)))
    storage, notes = _storage(source, header)
    names, asides = named_in(source, header) if header.objects else ((), ())
    if header.element is not None and source.size > header.size + header.nbytes:
        from ckptdoctor.formats.other_pickles import behind

        asides = behind(source, header.size + header.nbytes)
    array = None if storage is None else tensor((), header, storage, 0)
    return Checkpoint(
        path=source.path,
        format=NAME,
        size=source.size,
        tree=opaque(header) if array is None else array,
        tensors=() if array is None else (array,),
        storages=() if storage is None else (storage,),
        state_dicts=(),
        globals=names,
        notes=tuple(notes),
        identity=source.identity,
        bytes_read=source.bytes_read,
        container=container,
        asides=asides,
    )


def _storage(source: Source, header: Header) -> tuple[Storage | None, list[Note]]:
    if header.element is None:
        return None, left_out({reason(header.code): [()]})
    there = min(header.nbytes, source.size - header.size)
    storage = Storage("0", header.nbytes, header.element.dtype, "cpu", Extent(source.file, header.size, there))
    notes = [Note(NoteKind.BIG_ENDIAN, BIG_ENDIAN)] if header.element.big else []
    end = header.size + header.nbytes
    if there < header.nbytes:
        message = f"the file ends at byte {source.size:,} and should have {end:,}"
        notes.append(Note(NoteKind.TRUNCATED, message, offset=source.size))
    elif end < source.size:
        message = (
            f"{plural(source.size - end, 'byte follows', 'bytes follow')} the array at byte {end:,}; "
            "numpy.load never reads there"
        )
        notes.append(Note(NoteKind.TRAILING_BYTES, message, offset=end))
    return storage, notes


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Raise RefusedError: a file of NumPy is converted, not repaired."""
    raise refused(wanted.original.path, NAME)


# ---- arrays of Python objects are pickled: which classes and functions they name; none of the objects is made


# bytes of pickles that are unpacked of one archive
MOST_PICKLED = 64 << 20

Named = tuple[tuple[GlobalName, ...], tuple[Aside, ...]]


def named_in(source: Source, header: Header, member: str = "") -> Named:
    """Return the names in the pickle that follows the header, and what other pickles in and behind it name.

    Raises DamagedError when it is invalid.
    """
    from ckptdoctor.formats.arrays.pickled.stream import read_stream
    from ckptdoctor.formats.other_pickles import asides_of, behind, of_texts

    try:
        stream = read_stream(source, header.size)
    except DamagedError:
        if header.code != STRUCTURE or asides_of(source):
            raise
        return (), ()  # numbers, with a field whose name looks like a type
    names = named_globals(stream.pickle.globals, member)
    return names, (*of_texts(stream.texts, member), *behind(source, stream.pickle.end, member))


def named_in_record(source: Source, archive: Archive, name: str, header: Header, limit: int) -> Named:
    """Return the same of an array in an archive, of ``limit`` bytes at most. Raises DamagedError."""
    from ckptdoctor.formats.window import Memory

    return named_in(Memory(source.path, archive.read(source, name, limit)), header, shown(name))
