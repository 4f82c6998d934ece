"""Reads the header: its length, its JSON, and what it says of metadata and of each tensor."""

from __future__ import annotations

from collections import Counter
from math import prod

from ckptdoctor.checkpoint import KeyPath, Note, NoteKind, Source
from ckptdoctor.checkpoint.notes import IN_FRONT
from ckptdoctor.errors import DamagedError, TruncatedError
from ckptdoctor.formats.safetensors.entries import MAX_NUMBER, Info, info_from, make_object
from ckptdoctor.formats.safetensors.signature import LENGTH_BYTES, MAX_HEADER_BYTES
from ckptdoctor.formats.safetensors.strict_json import parse
from ckptdoctor.noun import noun
from ckptdoctor.wording import plural

METADATA = "__metadata__"


@noun
class Header:
    """What a header says. ``entries`` maps each name, in header order, to its tensor or to why it has none.

    ``data`` is the byte of the file at which the values begin, ``end`` the one at which they should end.
    ``metadata`` is None where there is none (or null). Where a name occurs twice the last one counts, as in Rust.
    """

    data: int
    end: int
    entries: dict[str, Info | str]
    metadata: dict[str, str] | None
    notes: tuple[Note, ...]


def read_header(source: Source) -> Header:
    """Return the header of a safetensors file, with notes on everything for which safetensors would refuse it.

    Raises TruncatedError when the file ends within the header, and DamagedError when it is not a JSON object.
    """
    text = header_bytes(source)
    data = LENGTH_BYTES + len(text)
    remarks = Remarks()
    root = parse(text, LENGTH_BYTES, make_object)
    if not isinstance(root, tuple):
        raise DamagedError("the header is JSON, but not an object of names", offset=LENGTH_BYTES)
    pairs = _pairs(root)
    del root
    metadata = _metadata([value for name, value in pairs if name == METADATA], remarks)
    entries = _entries(pairs, remarks)
    end = check_layout(entries, data, source.size, remarks)
    return Header(data, end, entries, metadata, remarks.notes())


def header_bytes(source: Source) -> bytes:
    """Return the header's JSON with its padding.

    Raises TruncatedError or DamagedError when it is not whole or too long.
    """
    length = int.from_bytes(source.read(0, LENGTH_BYTES), "little")
    have = source.size - LENGTH_BYTES
    if length > MAX_HEADER_BYTES:
        message = f"the header claims to be {length:,} bytes long; safetensors allows {MAX_HEADER_BYTES:,}"
        raise DamagedError(message, offset=0)
    if length > have:
        message = (
            f"the file ends within its header, which should have {plural(length, 'byte')}, but only "
            f"{plural(have, 'is', 'are')} there"
        )
        raise TruncatedError(message, offset=source.size)
    return source.read(LENGTH_BYTES, length)


def _pairs(root: tuple[object, ...]) -> list[tuple[str, object]]:
    if isinstance(root, Info):  # three names that read like the fields of one tensor
        fields = {"dtype": root.dtype.safetensors, "shape": list(root.shape), "data_offsets": [root.begin, root.end]}
        return list(fields.items())
    return list(root)  # type: ignore[arg-type]  # what make_object gives: (key, value) pairs


def _metadata(values: list[object], remarks: Remarks) -> dict[str, str] | None:
    """Return the text entries of ``__metadata__``, and add a note for everything in it that is not text."""
    if len(values) > 1:
        remarks.add(NoteKind.HEADER_INVALID, f"{METADATA} is there {len(values)} times", LENGTH_BYTES)
    value = values[-1] if values else None
    if value is None:
        return None
    if not isinstance(value, tuple) or isinstance(value, Info):
        remarks.add(NoteKind.HEADER_INVALID, f"{METADATA} is not an object of strings", LENGTH_BYTES)
        return None
    wrong = [pair for pair in value if type(pair[1]) is not str]
    for name, text in wrong[:MOST]:
        message = f"the {METADATA} entry {quoted(name)} is {_kind(text)}, but only text is allowed"
        remarks.add(NoteKind.HEADER_INVALID, message, LENGTH_BYTES)
    remarks.count(NoteKind.HEADER_INVALID, len(wrong[MOST:]))
    if len({name for name, _ in value}) != len(value):
        twice = [name for name, number in Counter(name for name, _ in value).items() if number > 1]
        for name in twice[:MOST]:
            message = f"the {METADATA} entry {quoted(name)} is there more than once: the last one counts"
            remarks.add(NoteKind.DUPLICATE_KEY, message, LENGTH_BYTES)
        remarks.count(NoteKind.DUPLICATE_KEY, len(twice[MOST:]))
    return {name: text for name, text in value if type(text) is str}


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, tuple) else "a number"


def _entries(pairs: list[tuple[str, object]], remarks: Remarks) -> dict[str, Info | str]:
    found: dict[str, Info | str] = {
        name: value if type(value) is Info else info_from(value) for name, value in pairs if name != METADATA
    }
    if len(found) != len(pairs) - sum(name == METADATA for name, _ in pairs):
        _remark_on_duplicates(pairs, remarks)
    for name, info in found.items():
        if type(info) is str:
            remarks.add(NoteKind.HEADER_INVALID, f"the entry {quoted(name)} {info}", LENGTH_BYTES)
    return found


def _remark_on_duplicates(pairs: list[tuple[str, object]], remarks: Remarks) -> None:
    seen: dict[str, object] = {}
    for name, value in pairs:
        if name == METADATA:
            continue
        if name in seen:
            message = f"two tensors are called {quoted(name)}: safetensors takes the last, other readers may not"
            remarks.add(NoteKind.DUPLICATE_KEY, message, LENGTH_BYTES)
            earlier = info_from(seen[name])
            if isinstance(earlier, str):
                remarks.add(NoteKind.HEADER_INVALID, f"the first entry {quoted(name)} {earlier}", LENGTH_BYTES)
        seen[name] = value


# ---- where the tensors lie: one after another, without holes, each as long as its dtype and shape say, up to the end


# torch has no tensors of more dimensions
MAX_DIMENSIONS = 64

# shapes of up to this many sizes are multiplied in one go
_FEW = 16


def check_layout(entries: dict[str, Info | str], data: int, size: int, remarks: Remarks) -> int:
    """Return the byte of the file at which the values should end, for values from byte ``data`` on in ``size`` bytes.

    Remarks on whatever safetensors refuses. Holes are told only where every entry could be read: otherwise they are
    where the others are. A tensor that torch cannot have (its size cannot be counted, or it has too many dimensions)
    becomes its own reason in ``entries``: nobody who shows or counts it should be kept busy by it.
    """
    end = _end_of_row(entries)
    if end is not None and data + end == size:
        return size
    found = [(info.begin, info.end, name, info) for name, info in entries.items() if isinstance(info, Info)]
    complete = len(found) == len(entries)
    found.sort(key=lambda row: row[:2])
    at = 0
    for begin, end, name, info in found:
        if begin != at or end < begin:
            _misplaced(name, begin, end, at, data, complete, remarks)
        at = max(at, end)
        bits = _nbits(info)
        if bits != 8 * (end - begin) and (end >= begin or bits is None):
            fault = _fault(info, bits)
            remarks.add(NoteKind.OFFSETS_INVALID, f"{quoted(name)} {fault}", data + begin)
            if bits is None:
                entries[name] = fault
        if len(info.shape) > MAX_DIMENSIONS:
            entries[name] = what = f"has {len(info.shape):,} dimensions, and torch supports only {MAX_DIMENSIONS}"
            remarks.add(NoteKind.TENSOR_ODD, f"{quoted(name)} {what}", data + begin, keys=((name,),))
    _check_end([(name, data + info.end) for _, _, name, info in found], data + at, size, complete, remarks)
    return data + at


def _end_of_row(entries: dict[str, Info | str]) -> int | None:
    """Return where the last tensor ends, when all are in order as every writer makes them."""
    at = 0
    for info in entries.values():
        if isinstance(info, str):
            return None
        dtype, shape, begin, end = info
        if begin != at or len(shape) > _FEW or not (count := prod(shape)) or count * dtype.bits != 8 * (end - begin):
            return None
        at = end
    return at


def _misplaced(name: str, begin: int, end: int, at: int, data: int, complete: bool, remarks: Remarks) -> None:
    where = data + begin
    if end < begin:
        message = f"{quoted(name)} ends (at {end:,}) before it begins (at {begin:,})"
    elif begin < at:
        message = f"{quoted(name)} begins {plural(at - begin, 'byte')} before the end of the previous tensor"
    elif complete:
        message = f"no tensor has the {plural(begin - at, 'byte')} before {quoted(name)}"
    else:
        return
    remarks.add(NoteKind.OFFSETS_INVALID, message, where)


def _nbits(info: Info) -> int | None:
    """Return how many bits the elements take.

    It is None where a partial product overflows, as in Rust: even if a later size is 0.
    """
    count = prod(info.shape) if len(info.shape) <= _FEW else 0
    if not count:
        count = 1
        for length in info.shape:
            count *= length
            if count > MAX_NUMBER:
                return None
    bits = count * info.dtype.bits
    return bits if bits <= MAX_NUMBER else None


def _fault(info: Info, bits: int | None) -> str:
    """Return what is wrong between shape, dtype and place of a tensor whose elements take ``bits``."""
    if bits is None:
        return "has a shape of more bytes than can be counted"
    if bits % 8:
        return f"has {bits:,} bits ({info.dtype.safetensors}), which are not a whole number of bytes"
    return (
        f"needs {plural(bits // 8, 'byte')} for its shape and dtype, but its offsets give it {info.end - info.begin:,}"
    )


def _check_end(ends: list[tuple[str, int]], end: int, size: int, complete: bool, remarks: Remarks) -> None:
    """Remark on a file of ``size`` bytes that does not end where its tensors do, at ``end``."""
    if end > size:
        lost = [name for name, stop in ends if stop > size]
        message = (
            f"the file ends after {size:,} bytes, but its tensors end at {end:,}: {len(ends) - len(lost):,} "
            f"of {plural(len(ends), 'tensor is', 'tensors are')} complete, the first that is not is "
            f"{quoted(lost[0])}"
        )
        remarks.add(NoteKind.TRUNCATED, message, size, IN_FRONT if len(lost) < len(ends) else "")
    elif end < size and complete:
        message = f"{plural(size - end, 'byte follows', 'bytes follow')} the end of the last tensor at byte {end:,}"
        remarks.add(NoteKind.TRAILING_BYTES, message, end)


# ---- notes, so that a header with a million faults does not make a million notes


# notes of one kind that are told; the others are counted
MOST = 20

_LONGEST_NAME = 200


class Remarks:
    """Notes in the making."""

    def __init__(self) -> None:
        self._notes: list[Note] = []
        self._counts: Counter[NoteKind] = Counter()

    def add(
        self,
        kind: NoteKind,
        message: str,
        offset: int | None = None,
        guidance: str = "",
        keys: tuple[KeyPath, ...] = (),
    ) -> None:
        """Add one note; beyond ``MOST`` of its kind it is only counted."""
        self._counts[kind] += 1
        if self._counts[kind] <= MOST:
            self._notes.append(Note(kind, message, offset=offset, keys=keys, guidance=guidance))

    def count(self, kind: NoteKind, number: int) -> None:
        """Count more notes of a kind, beyond those that were added."""
        self._counts[kind] += number

    def notes(self) -> tuple[Note, ...]:
        """Return all notes, in the order in which they were made; the number of those left out comes last."""
        more = [
            Note(
                kind,
                f"{plural(count - MOST, 'more place of this kind is', 'more places of this kind are')} not listed",
            )
            for kind, count in self._counts.items()
            if count > MOST
        ]
        return (*self._notes, *more)


def quoted(name: str) -> str:
    """Return a tensor's name in a message, at a length that can be read."""
    return f'"{name}"' if len(name) <= _LONGEST_NAME else f'"{name[:_LONGEST_NAME]}…" ({len(name):,} characters)'
