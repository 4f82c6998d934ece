"""Where the tensors lie: one after another, without holes, each as long as its dtype and shape say, up to the end."""

from __future__ import annotations

from math import prod

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.checkpoint.notes import IN_FRONT
from ckptdoctor.formats.safetensors.entries import MAX_NUMBER, Info
from ckptdoctor.formats.safetensors.remarks import Remarks, quoted
from ckptdoctor.wording import plural

# torch has no tensors of more dimensions
MAX_DIMENSIONS = 64

# shapes of up to this many sizes are multiplied in one go
_FEW = 16


def check_layout(entries: dict[str, Info | str], data: int, size: int, remarks: Remarks) -> int:
    """The byte of the file at which the values should end, for values from byte ``data`` on in ``size`` bytes.

    Remarks on whatever safetensors refuses. Holes are told only where every entry could be read: otherwise they are
    where the others lie. A tensor that torch cannot have (its size cannot be counted, or it has too many dimensions)
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
            entries[name] = what = f"has {len(info.shape):,} dimensions, and torch knows no more than {MAX_DIMENSIONS}"
            remarks.add(NoteKind.TENSOR_ODD, f"{quoted(name)} {what}", data + begin, keys=((name,),))
    _check_end([(name, data + info.end) for _, _, name, info in found], data + at, size, complete, remarks)
    return data + at


def _end_of_row(entries: dict[str, Info | str]) -> int | None:
    """Where the last tensor ends, when all are as every writer makes them: in order, and nothing odd about any."""
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
        message = f"{quoted(name)} begins {plural(at - begin, 'byte')} before the end of the tensor in front of it"
    elif complete:
        message = f"no tensor has the {plural(begin - at, 'byte')} in front of {quoted(name)}"
    else:
        return
    remarks.add(NoteKind.OFFSETS_INVALID, message, where)


def _nbits(info: Info) -> int | None:
    """Bits that the elements take; None where a partial product overflows, as in Rust: even if a later size is 0."""
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
    """What is wrong between shape, dtype and place of a tensor whose elements take ``bits``."""
    if bits is None:
        return "has a shape of more bytes than can be counted"
    if bits % 8:
        return f"has {bits:,} bits ({info.dtype.safetensors}), which fill no whole number of bytes"
    return f"needs {plural(bits // 8, 'byte')} for its shape and dtype, but its place has {info.end - info.begin:,}"


def _check_end(ends: list[tuple[str, int]], end: int, size: int, complete: bool, remarks: Remarks) -> None:
    """Remark on a file of ``size`` bytes that does not end where its tensors do, at ``end``."""
    if end > size:
        lost = [name for name, stop in ends if stop > size]
        message = (
            f"the file ends after {size:,} bytes, but its tensors end at {end:,}: {len(ends) - len(lost):,} of "
            f"{plural(len(ends), 'tensor is', 'tensors are')} whole, the first that is not is {quoted(lost[0])}"
        )
        remarks.add(NoteKind.TRUNCATED, message, size, IN_FRONT if len(lost) < len(ends) else "")
    elif end < size and complete:
        message = f"{plural(size - end, 'byte follows', 'bytes follow')} the end of the last tensor at byte {end:,}"
        remarks.add(NoteKind.TRAILING_BYTES, message, end)
