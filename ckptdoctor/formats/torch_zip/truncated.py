"""An archive without an end: how much of it is there.

``data.pkl`` comes first and names every storage with its length, so that even half a file says what it should hold:
its records are found by walking from one local header to the next, and each record's own checksum and length stand
in the descriptor behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptdoctor.checkpoint import Container, DType, Note, NoteKind, Source, Storage
from ckptdoctor.errors import CkptDoctorError, TruncatedError
from ckptdoctor.formats.torch_objects import interpret
from ckptdoctor.formats.torch_zip import structs
from ckptdoctor.formats.torch_zip.end import MAX_RECORDS
from ckptdoctor.formats.torch_zip.layout import DEFAULT_ALIGNMENT, MAX_ALIGNMENT, Item, lay_out
from ckptdoctor.formats.torch_zip.local import first_name
from ckptdoctor.formats.torch_zip.record import shown
from ckptdoctor.pickles import decode

# a record whose length only its descriptor tells is searched for it in at most this many bytes
_SEARCH = 256 << 20
_FIRST_SEARCH = 64 << 10

# a file that ends in this many zero bytes was given its full size before its contents
_ZEROS = 4096

# the small records that torch.save writes before and after the storages, with their usual lengths
_FIRST_WORDS = ((".format_version", 1), (".storage_alignment", 2), ("byteorder", 6))
_LAST_WORDS = (("version", 2), (".data/serialization_id", 40))

_GUIDANCE = "Fetch the file again, or take an earlier checkpoint; the storages that are complete can be salvaged."


@dataclass(slots=True)
class _Walk:
    """What was found on the way: complete records (name, data offset, size), and where it ended and why."""

    found: list[tuple[str, int, int]] = field(default_factory=list)
    at: int = 0
    ended: bool = False


class _Declared:
    """A storage table without bytes: it only writes down which storages the pickle names, in order."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def find(self, key: str, dtype: DType | None, device: str, nbytes: int) -> Storage:
        self.sizes[key] = nbytes
        return Storage(key, nbytes, dtype, device, None)


def describe(source: Source, head: bytes, format_name: str, error: TruncatedError) -> Container | None:
    """A container for a cut archive that begins with ``data.pkl``, whose note says how much is there; else None."""
    name = first_name(source)
    if name is None or not name.lower().endswith("/data.pkl") or name.count("/") != 1:
        return None
    try:
        message = _account(source, name)
    except CkptDoctorError:  # the pickle is damaged as well: less can be said, and that much is known
        message = f"{_cut(source)}; what it should hold cannot be told, because {shown(name)} is not whole"
    note = Note(NoteKind.TRUNCATED, message, offset=error.offset)
    return Container(source.path, source.size, format_name, head, False, _GUIDANCE, (note,), source.identity)


def _cut(source: Source) -> str:
    tail = source.read(max(0, source.size - _ZEROS), min(_ZEROS, source.size))
    if len(tail) == _ZEROS and not any(tail):
        return f"the file has no end record, and zero bytes where it should be (at byte {source.size:,})"
    return f"the file ends after {source.size:,} bytes, without the list of its records"


def _account(source: Source, name: str) -> str:
    """One sentence on what is there. Raises CkptDoctorError when ``data.pkl`` is not whole."""
    walk = _Walk()
    _step(source, walk, {}, name)
    _, offset, size = walk.found[0]
    declared = _Declared()
    interpret(decode(source.read(offset, size)), declared, shown(name))
    sizes = {f"{name[: -len('data.pkl')]}data/{key}": length for key, length in declared.sizes.items()}
    while not walk.ended and len(walk.found) < MAX_RECORDS:
        _step(source, walk, sizes, None)
    whole = [record for record, _, _ in walk.found if record in sizes]
    if walk.at + 4 <= source.size and source.read(walk.at, 4) == structs.CENTRAL_SIGNATURE and len(whole) == len(sizes):
        return f"{_cut(source)}, but all {len(sizes):,} storages are complete: nothing of value is lost"
    lost = sum(sizes.values()) - sum(sizes[record] for record in whole)
    return (
        f"{_cut(source)}: {len(whole):,} of {len(sizes):,} storages are complete, {lost:,} bytes of values are lost; "
        f"the whole file would have about {_whole_size(source, walk, sizes):,} bytes"
    )


def _step(source: Source, walk: _Walk, sizes: dict[str, int], wanted: str | None) -> None:
    """Take one record, or end the walk. Raises TruncatedError when the record ``wanted`` is not whole."""
    header = _local(source, walk.at)
    if header is not None:
        name, data, size, deferred = header
        length = sizes.get(name) if deferred else size
        if length is None:
            length = _search(source, data)
        stop = None if length is None else _behind(source, data, length, deferred)
        if length is not None and stop is not None:
            walk.found.append((name, data, length))
            walk.at = stop
            return
    if wanted is not None:
        raise TruncatedError(f"The record {shown(wanted)} is not whole.", offset=walk.at)
    walk.ended = True


def _local(source: Source, at: int) -> tuple[str, int, int, bool] | None:
    """Name, data offset, size, and whether the size only follows the data, from the local header at ``at``."""
    if at + structs.LOCAL.size > source.size:
        return None
    fields = structs.LOCAL.unpack(source.read(at, structs.LOCAL.size))
    signature, _, flags, method, _, _, _, compressed, size, name_length, extra_length = fields
    data = at + structs.LOCAL.size + name_length + extra_length
    if signature != structs.LOCAL_SIGNATURE or data > source.size or method != structs.STORED or compressed != size:
        return None
    name = source.read(at + structs.LOCAL.size, name_length).decode("utf-8", "surrogateescape")
    return name, data, size, bool(flags & structs.HAS_DESCRIPTOR) and not size


def _search(source: Source, data: int) -> int | None:
    """The length of a record that only its descriptor tells: the one that gives just the length it stands behind."""
    reach = _FIRST_SEARCH
    while True:
        window = source.read(data, min(reach, source.size - data))
        at = window.find(structs.DESCRIPTOR_SIGNATURE)
        while at >= 0:
            if window[at + 8 : at + 12] == window[at + 12 : at + 16] == at.to_bytes(4, "little"):
                return at
            at = window.find(structs.DESCRIPTOR_SIGNATURE, at + 1)
        if reach >= min(_SEARCH, source.size - data):
            return None
        reach *= 16


def _behind(source: Source, data: int, size: int, deferred: bool) -> int | None:
    """The byte after a record's data and descriptor; None when they are not all there."""
    end = data + size
    if not deferred or not size:
        return end if end <= source.size else None
    for form in (structs.DESCRIPTOR, structs.DESCRIPTOR64):
        if end + form.size <= source.size:
            signature, _, compressed, length = form.unpack(source.read(end, form.size))
            if (signature, compressed, length) == (structs.DESCRIPTOR_SIGNATURE, size, size):
                return end + form.size
    return None


def _alignment(source: Source, walk: _Walk) -> int:
    """The alignment that the archive states, torch's usual one where it does not."""
    for name, data, size in walk.found:
        if name.endswith("/.storage_alignment") and size < 8:
            word = source.read(data, size)
            if word.isdigit() and 0 < int(word) <= MAX_ALIGNMENT:
                return int(word)
    return DEFAULT_ALIGNMENT


def _whole_size(source: Source, walk: _Walk, sizes: dict[str, int]) -> int:
    """The size that torch.save would give the file: the records found, the storages that are missing, and the rest."""
    names = {name: size for name, _, size in walk.found}
    folder = walk.found[0][0][: -len("data.pkl")]
    missing = [(name, size) for name, size in sizes.items() if name not in names]
    first = [(f"{folder}{word}", size) for word, size in _FIRST_WORDS] if len(missing) == len(sizes) else []
    last = [(f"{folder}{word}", size) for word, size in _LAST_WORDS]
    words = [[pair for pair in pairs if pair[0] not in names] for pairs in (first, last)]
    records = [*names.items(), *words[0], *missing, *words[1]]
    items = [Item(name, size, 0, ()) for name, size in records]
    return sum(segment.length for segment in lay_out(items, _alignment(source, walk))) + sum(
        size for _, size in records
    )
