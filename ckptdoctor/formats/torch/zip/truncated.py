"""Tells how much of an archive without an end is there.

``data.pkl`` comes first and names every storage with its length, so that even half a file says what it should hold:
its records are found by walking from one local header to the next, and each record's own checksum and length are
in the descriptor behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ckptdoctor.checkpoint import Container, DType, Note, NoteKind, Source, Storage
from ckptdoctor.checkpoint.notes import IN_FRONT
from ckptdoctor.errors import CkptDoctorError, TruncatedError
from ckptdoctor.formats.torch.read import interpret
from ckptdoctor.formats.torch.read.storages import ZIP_ID
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.central_directory import MAX_RECORDS
from ckptdoctor.formats.torch.zip.layout import DEFAULT_ALIGNMENT, MAX_ALIGNMENT, Item, lay_out
from ckptdoctor.formats.torch.zip.local_headers import first_name
from ckptdoctor.formats.torch.zip.records import Record, raw_name, shown
from ckptdoctor.noun import field, noun
from ckptdoctor.pickles import decode
from ckptdoctor.shell import quote

# a file that ends in this many zero bytes was given its full size before its contents
_ZEROS = 4096

# the small records that torch.save writes before and after the storages, with their usual lengths
_FIRST_WORDS = ((".format_version", 1), (".storage_alignment", 2), ("byteorder", 6))
_LAST_WORDS = (("version", 2), (".data/serialization_id", 40))

_GUIDANCE = "Download the file again, or use an earlier checkpoint."


class _Declared:
    """A storage table without bytes: it only writes down which storages the pickle names, in order."""

    id_parts = ZIP_ID

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def find(self, key: str, dtype: DType | None, device: str, nbytes: int) -> Storage:
        self.sizes[key] = nbytes
        return Storage(key, nbytes, dtype, device, None)


def describe(source: Source, head: bytes, format_name: str, error: TruncatedError) -> Container | None:
    """Return a container for a cut archive that begins with ``data.pkl``, or None.

    Its note says how much is there.
    """
    name = first_name(source)
    if name is None or not name.lower().endswith("/data.pkl") or name.count("/") != 1:
        return None
    try:
        message, some = _account(source, name)
    except CkptDoctorError:  # the pickle is damaged as well: less can be said, and that much is known
        message = f"{_cut(source)}; its contents cannot be determined, because {shown(name)} is incomplete"
        some = False
    note = Note(NoteKind.TRUNCATED, message, offset=error.offset, guidance=IN_FRONT if some else "")
    saving = f"Download the file again, or recover what is intact: ckptdoctor salvage {quote(source.path)}"
    guidance = saving if some else _GUIDANCE
    return Container(source.path, source.size, format_name, head, False, guidance, (note,), source.identity)


def _cut(source: Source) -> str:
    tail = source.read(max(0, source.size - _ZEROS), min(_ZEROS, source.size))
    if len(tail) == _ZEROS and not any(tail):
        return f"the file has no end record, and zero bytes where it should be (at byte {source.size:,})"
    return f"the file ends after {source.size:,} bytes, without the list of its records"


def declared_sizes(source: Source, walk: Walk, name: str) -> dict[str, int]:
    """Return the lengths of the storages' records (by name), from the pickle ``name``.

    Raises CkptDoctorError when it is not whole, or damaged.
    """
    step(source, walk, {})
    if not walk.found:
        raise TruncatedError(f"The record {shown(name)} is incomplete.", offset=walk.at)
    return sizes_in(source, walk.found[0])


def sizes_in(source: Source, pickle: Record) -> dict[str, int]:
    """Return the lengths of the storages' records (by name), from this pickle. Raises DamagedError."""
    declared = _Declared()
    interpret(decode(source.read(pickle.data_offset, pickle.size)), declared, shown(pickle.name))
    return {f"{pickle.name[: -len('data.pkl')]}data/{key}": length for key, length in declared.sizes.items()}


def later_pickle_is_cut(source: Source, walk: Walk, name: str) -> bool:
    """Return whether a walk ended in a pickle that a change in place put behind the storages."""
    head, raw = structs.LOCAL.size, raw_name(name)
    there = source.read(walk.at, min(head + len(raw), source.size - walk.at))
    return walk.at > 0 and there.startswith(structs.LOCAL_SIGNATURE) and there[head:] == raw


# what is said of such a file
OLDER = "the pickle that changes in place put at the end is incomplete, so all names are those before these changes"


def _account(source: Source, name: str) -> tuple[str, bool]:
    """Return one sentence on what is there, and whether anything can be saved.

    Raises CkptDoctorError without ``data.pkl``.
    """
    walk = Walk()
    sizes = declared_sizes(source, walk, name)
    while not walk.ended and len(walk.found) < MAX_RECORDS:
        step(source, walk, sizes)
    whole = [record.name for record in walk.found if record.name in sizes]
    if walk.at + 4 <= source.size and source.read(walk.at, 4) == structs.CENTRAL_SIGNATURE and len(whole) == len(sizes):
        return f"{_cut(source)}, but {_complete(len(whole), len(sizes))}: nothing of value is lost", True
    lost = sum(sizes.values()) - sum(sizes[record] for record in whole)
    rest = f"the whole file would have about {_whole_size(source, walk, sizes):,} bytes"
    return (
        f"{_cut(source)}: {_complete(len(whole), len(sizes))}, {f'{lost:,}' if lost else 'no'} bytes of values are "
        f"lost; {OLDER if later_pickle_is_cut(source, walk, name) else rest}"
    ), bool(whole) or not sizes


def _complete(whole: int, every: int) -> str:
    """Return how many storages are complete, as a clause."""
    if not every:
        return "it has no storages"
    if every == 1:
        return f"its only storage is {'' if whole else 'not '}complete"
    if not whole:
        return f"none of {every:,} storages is complete"
    many = f"all {every:,}" if whole == every else f"{whole:,} of {every:,}"
    return f"{many} storages {'is' if whole == 1 else 'are'} complete"


def alignment(source: Source, records: Iterable[Record]) -> int:
    """Return the alignment that one of the records states, torch's usual one where none does."""
    for record in records:
        if record.name.endswith("/.storage_alignment") and record.size < 8:
            word = source.read(record.data_offset, record.size)
            if word.isdigit() and 0 < int(word) <= MAX_ALIGNMENT:
                return int(word)
    return DEFAULT_ALIGNMENT


def _whole_size(source: Source, walk: Walk, sizes: dict[str, int]) -> int:
    """Return the size that torch.save would give the file.

    It adds up the records found, the storages that are missing, and the rest.
    """
    names = {record.name: record.size for record in walk.found}
    folder = walk.found[0].name[: -len("data.pkl")]
    missing = [(name, size) for name, size in sizes.items() if name not in names]
    first = [(f"{folder}{word}", size) for word, size in _FIRST_WORDS] if len(missing) == len(sizes) else []
    last = [(f"{folder}{word}", size) for word, size in _LAST_WORDS]
    words = [[pair for pair in pairs if pair[0] not in names] for pairs in (first, last)]
    records = [*names.items(), *words[0], *missing, *words[1]]
    items = [Item(name, size, 0, ()) for name, size in records]
    return sum(segment.length for segment in lay_out(items, alignment(source, walk.found))) + sum(
        size for _, size in records
    )


# ---- from one record to the next by what stands at each, without the list at the end


# a record whose length only its descriptor tells is searched for it in at most this many bytes
_SEARCH = 256 << 20
_FIRST_SEARCH = 64 << 10


@noun(frozen=False)
class Walk:
    """What was found on the way: the complete records, where the next one should begin, and whether that was the end.

    ``cut`` is a record that begins in the file and whose length is known, but whose data or descriptor is not all
    there: its ``compressed`` counts the bytes that are.
    """

    found: list[Record] = field(default_factory=list)
    at: int = 0
    ended: bool = False
    cut: Record | None = None


@noun
class Local:
    """A local header: ``size`` and ``crc`` are what it says itself, ``deferred`` whether they follow the data."""

    name: str
    flags: int
    header: int
    data: int
    size: int
    crc: int
    deferred: bool

    def record(self, size: int, crc: int, there: int | None = None) -> Record:
        """Return the record of ``size`` bytes, of which ``there`` are in the file (None: all)."""
        stored = structs.STORED
        count = size if there is None else there
        return Record(self.name, stored, self.flags, crc, size, count, self.header, self.data, False)


def step(source: Source, walk: Walk, sizes: Mapping[str, int]) -> None:
    """Take the next record, or end the walk. ``sizes`` are the lengths of records that are known by other means."""
    local = local_at(source, walk.at)
    if local is None:
        walk.ended = True
        return
    length = sizes.get(local.name) if local.deferred else local.size
    known = length is not None
    if length is None:
        length = _search(source, local.data)
    behind = None if length is None else _behind(source, local, length)
    if length is None or behind is None:
        walk.ended = True
        there = source.size - local.data
        if known and length is not None and there < length:
            walk.cut = local.record(length, 0, there)
        return
    crc, walk.at = behind
    walk.found.append(local.record(length, crc))


def local_at(source: Source, at: int) -> Local | None:
    """Return the local header at ``at``, of a record that is stored as it is, or None where there is none."""
    if at + structs.LOCAL.size > source.size:
        return None
    fields = structs.LOCAL.unpack(source.read(at, structs.LOCAL.size))
    signature, _, flags, method, _, _, crc, compressed, size, name_length, extra_length = fields
    data = at + structs.LOCAL.size + name_length + extra_length
    if signature != structs.LOCAL_SIGNATURE or data > source.size or method != structs.STORED or compressed != size:
        return None
    name = source.read(at + structs.LOCAL.size, name_length).decode("utf-8", "surrogateescape")
    return Local(name, flags, at, data, size, crc, bool(flags & structs.HAS_DESCRIPTOR) and not size)


def _search(source: Source, data: int) -> int | None:
    """Return the length of a record that only its descriptor has.

    That is the descriptor whose length is exactly its distance from the data.
    """
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


def _behind(source: Source, local: Local, size: int) -> tuple[int, int] | None:
    """Return the checksum, and the byte after a record's data and descriptor, or None when they are not all there."""
    end = local.data + size
    if not local.deferred or not size:
        return (local.crc, end) if end <= source.size else None
    for form in (structs.DESCRIPTOR, structs.DESCRIPTOR64):
        if end + form.size <= source.size:
            signature, crc, compressed, length = form.unpack(source.read(end, form.size))
            if (signature, compressed, length) == (structs.DESCRIPTOR_SIGNATURE, size, size):
                return crc, end + form.size
    return None
