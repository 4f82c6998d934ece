"""Turns a header into a container and a checkpoint; no tensor value is read."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

from ckptdoctor.checkpoint import (
    Checkpoint,
    Container,
    Elided,
    Extent,
    Mapping,
    Node,
    Note,
    NoteKind,
    Role,
    Source,
    StateDict,
    Storage,
    Tensor,
)
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.errors import DamagedError, TruncatedError
from ckptdoctor.formats.safetensors.header import Header, read_header
from ckptdoctor.formats.safetensors.signature import NAME
from ckptdoctor.noun import maker, replace

# each source's header, parsed once for examine, read and write
_headers: WeakKeyDictionary[Source, Header] = WeakKeyDictionary()

# shapes that are remembered; more could be chosen so that their hashes collide, which makes looking them up slow
_MOST_SHAPES = 64

_DAMAGED = "The header is broken, so nothing in the file can be found; fetch the file again, or use another copy."
_CUT = "Download the file again, or use another copy: the list of its tensors is not complete."


def header_of(source: Source) -> Header:
    """Return the header, read at most once per open source. Raises what read_header raises."""
    header = _headers.get(source)
    if header is None:
        header = _headers[source] = read_header(source)
    return header


def remember(source: Source, header: Header) -> None:
    """Take this for the header of the file from now on."""
    _headers[source] = header


def examine(source: Source, head: bytes) -> Container:
    """Return the container, with notes on everything for which safetensors would refuse the file."""
    try:
        header = header_of(source)
    except DamagedError as error:
        cut = isinstance(error, TruncatedError)
        note = Note(NoteKind.TRUNCATED if cut else NoteKind.HEADER_INVALID, error.message, offset=error.offset)
        guidance = _CUT if cut else _DAMAGED
        return Container(source.path, source.size, NAME, head, False, guidance, (note,), source.identity)
    return Container(source.path, source.size, NAME, head, True, "", header.notes, source.identity)


def read(source: Source, container: Container) -> Checkpoint:
    """Return the tensors in header order, each on a storage of its own that is called after it.

    A name whose entry is invalid stays in the tree as Elided, with the reason. An extent that reaches past the
    end of the file is cut there. Raises DamagedError when the header cannot be read at all.
    """
    header = header_of(source)
    entries = tuple(_entries(source, header))
    tensors = tuple([node for _, node in entries if isinstance(node, Tensor)])
    return Checkpoint(
        path=source.path,
        format=NAME,
        size=source.size,
        tree=Mapping("dict", entries),
        tensors=tensors,
        storages=tuple([tensor.storage for tensor in tensors if tensor.storage is not None]),
        state_dicts=(StateDict((), Role.MODEL, tensors),) if tensors else (),
        metadata=header.metadata,
        notes=header.notes,
        identity=source.identity,
        bytes_read=source.bytes_read,
        container=container,
    )


_extent, _storage, _tensor = maker(Extent), maker(Storage), maker(Tensor)


def _entries(source: Source, header: Header) -> Iterator[tuple[str, Node]]:
    path, size, data = source.file, source.size, header.data
    strides: dict[tuple[int, ...], tuple[int, ...]] = {}  # most tensors have one of a few shapes
    for name, info in header.entries.items():
        if isinstance(info, str):
            yield name, Elided(info)
            continue
        dtype, shape, begin, end = info
        stride = strides.get(shape)
        if stride is None:
            stride = contiguous_stride(shape)
            if len(strides) < _MOST_SHAPES:
                strides[shape] = stride
        start = data + begin
        length = end - begin if end > begin else 0
        extent = _extent(path, start, length) if start + length <= size else _cut(source, start)
        yield name, _tensor((name,), dtype, shape, stride, _storage(name, length, dtype, "cpu", extent))


def _cut(source: Source, start: int) -> Extent | None:
    """Return what is there of a storage that reaches past the end of the file, or None when nothing is."""
    return Extent(source.file, start, source.size - start) if start < source.size else None


# ---- a file that was cut off, or goes on behind its end, as if its header were all that is wrong to believe


# what is wrong with the end of the file, not with the header
_ENDS = (NoteKind.TRUNCATED, NoteKind.TRAILING_BYTES)


def salvage(source: Source, container: Container) -> Checkpoint:
    """Return the contents with whatever is left of them; afterwards ``write`` copies what is whole.

    Tensors of which nothing is left have a storage without an extent, the one at the cut a shorter one. Raises
    DamagedError where the header itself is not whole: all values are behind it.
    """
    header = header_of(source)
    remember(source, replace(header, notes=tuple([note for note in header.notes if note.kind not in _ENDS])))
    return read(source, container)
