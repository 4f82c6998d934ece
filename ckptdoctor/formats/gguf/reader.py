"""Turns the header of a GGUF file into a container and a checkpoint; no tensor value is read.

A tensor that is packed in blocks is shown with its shape and as float32, which it stands for; its bytes, rows of whole
blocks, are its only part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ckptdoctor.checkpoint import (
    Checkpoint,
    Container,
    Extent,
    Mapping,
    Note,
    NoteKind,
    Role,
    Source,
    StateDict,
    Storage,
    Tensor,
)
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.errors import DamagedError, RefusedError
from ckptdoctor.formats.gguf.header import Entry, Header, read_header
from ckptdoctor.formats.gguf.kinds import PACKED

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.edits.applied.wanted import Wanted

_NAME = "GGUF file"
_READERS = "llama.cpp and the gguf package read it"
_WHOLE = f"{_READERS}; it holds weights for llama.cpp, not torch."
_BIG = "its values are big-endian, as for llama.cpp on such machines"

# each source's header, parsed once for examine and read
_headers: WeakKeyDictionary[Source, Header] = WeakKeyDictionary()


def _header_of(source: Source) -> Header:
    header = _headers.get(source)
    if header is None:
        header = _headers[source] = read_header(source)
    return header


def examine(source: Source, head: bytes) -> Container:
    """Return the container: readable where the header is intact and names tensors, be they in other shards."""
    try:
        header = _header_of(source)
    except DamagedError as error:
        told = f"{_READERS}, but its header is damaged: {error.message}. Download it again."
        return Container(source.path, source.size, _NAME, head, False, told, (), source.identity)
    if not header.tensors and header.metadata.get("split.count", "1") in ("0", "1"):  # the first shard may have none
        told = f"{_READERS}; it has no tensors."
        return Container(source.path, source.size, _NAME, head, False, told, (), source.identity)
    return Container(
        source.path, source.size, _NAME, head, True, _WHOLE, tuple(_notes(source, header)), source.identity
    )


def _notes(source: Source, header: Header) -> Iterator[Note]:
    if header.end > source.size:
        message = f"the file ends at byte {source.size:,}, and its tensors continue to byte {header.end:,}"
        yield Note(NoteKind.TRUNCATED, message, offset=source.size)
    if header.big:
        yield Note(NoteKind.BIG_ENDIAN, _BIG)


def read(source: Source, container: Container) -> Checkpoint:
    """Return the tensors in the order of the header, each on a storage of its own. Raises DamagedError."""
    header = _header_of(source)
    every = tuple([_tensor(source, each) for each in header.tensors])
    storages = [part.storage for each in every for part in (each, *each.parts)]
    return Checkpoint(
        path=source.path,
        format=_NAME,
        size=source.size,
        tree=Mapping("dict", tuple([(each.key, each) for each in every])),
        tensors=every,
        storages=tuple([each for each in storages if each is not None]),
        state_dicts=(StateDict((), Role.MODEL, every),),
        metadata=header.metadata,
        notes=tuple(_notes(source, header)),
        identity=source.identity,
        bytes_read=source.bytes_read,
        container=container,
    )


def _tensor(source: Source, entry: Entry) -> Tensor:
    path = (entry.name,)
    dtype = BY_NAME[entry.kind.dtype if entry.kind is not None and entry.kind.dtype else "bits8"]
    there = max(0, min(entry.nbytes, source.size - entry.offset))
    extent = Extent(source.file, entry.offset, there) if there or not entry.nbytes else None
    storage = Storage(entry.name, entry.nbytes, dtype, "cpu", extent)
    if entry.kind is not None and entry.kind.dtype is not None:
        return Tensor(path, dtype, entry.shape, contiguous_stride(entry.shape), storage, rebuild="gguf")
    if entry.kind is None:
        shape: tuple[int, ...] = (entry.nbytes,)
    else:
        shape = (*entry.shape[:-1], entry.shape[-1] // entry.kind.elements * entry.kind.nbytes)
    name = entry.kind.name if entry.kind is not None else f"type_{entry.code}"
    packed = Tensor(path, dtype, shape, contiguous_stride(shape), storage, rebuild="gguf")
    return Tensor(
        path,
        BY_NAME["float32"],
        entry.shape,
        contiguous_stride(entry.shape),
        None,
        rebuild="gguf",
        subclass=PACKED + name,
        parts=(packed,),
    )


def refused(wanted: Wanted) -> RefusedError:
    """Return the error for edits: the model is converted again instead."""
    path = wanted.original.path
    return RefusedError(
        f"{path} is a GGUF file, which ckptdoctor reads and does not write. Repair the checkpoint that it was made of, "
        "and convert that again with llama.cpp's convert_hf_to_gguf.py."
    )
