"""Arrays of Python objects are pickled: which classes and functions they name. None of the objects is made."""

from __future__ import annotations

from ckptdoctor.checkpoint import GlobalName, Source
from ckptdoctor.formats.archives import Archive
from ckptdoctor.formats.numpy_files.header import Header

# bytes of pickles that are unpacked of one archive
MOST_PICKLED = 64 << 20


def is_pickled(header: Header) -> bool:
    """Whether the values of this array are a pickle."""
    return "O" in header.code


def names_in_file(source: Source, header: Header) -> tuple[GlobalName, ...]:
    """The names in the pickle that follows the header. Raises DamagedError when it makes no sense."""
    from ckptdoctor.formats.plain_pickle.stream import read_stream

    pickle = read_stream(source, header.size).pickle
    return tuple([GlobalName(use.module, use.name, "", use.offset) for use in pickle.globals])


def names_in_record(source: Source, archive: Archive, name: str, header: Header, limit: int) -> list[GlobalName]:
    """The same of an array in an archive, of ``limit`` bytes at most. Raises DamagedError."""
    from ckptdoctor.pickles import decode

    pickle = decode(archive.read(source, name, limit), header.size)
    return [GlobalName(use.module, use.name, name, use.offset) for use in pickle.globals]
