"""Arrays of Python objects are pickled: which classes and functions they name. None of the objects is made."""

from __future__ import annotations

from ckptdoctor.checkpoint import Aside, GlobalName, Source
from ckptdoctor.errors import DamagedError
from ckptdoctor.formats.archives import Archive
from ckptdoctor.formats.arrays.npy_header import STRUCTURE, Header
from ckptdoctor.formats.torch.zip.record import shown

# bytes of pickles that are unpacked of one archive
MOST_PICKLED = 64 << 20

Named = tuple[tuple[GlobalName, ...], tuple[Aside, ...]]


def named_in(source: Source, header: Header, member: str = "") -> Named:
    """The names in the pickle that follows the header, and what other pickles in and behind it name.

    Raises DamagedError when it makes no sense.
    """
    from ckptdoctor.formats.arrays.pickled.stream import read_stream
    from ckptdoctor.formats.asides import asides_of, behind, of_texts

    try:
        stream = read_stream(source, header.size)
    except DamagedError:
        if header.code != STRUCTURE or asides_of(source):
            raise
        return (), ()  # numbers, with a field whose name looks like a type
    names = tuple([GlobalName(use.module, use.name, member, use.offset) for use in stream.pickle.globals])
    return names, (*of_texts(stream.texts, member), *behind(source, stream.pickle.end, member))


def named_in_record(source: Source, archive: Archive, name: str, header: Header, limit: int) -> Named:
    """The same of an array in an archive, of ``limit`` bytes at most. Raises DamagedError."""
    from ckptdoctor.formats.window import Memory

    return named_in(Memory(source.path, archive.read(source, name, limit)), header, shown(name))
