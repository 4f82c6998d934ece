"""Reads a zip directory strictly: what torch would read, and everything on which readers could disagree."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from ckptdoctor.checkpoint import NoteKind, Source
from ckptdoctor.errors import DamagedError, HostileError, NotACheckpointError
from ckptdoctor.formats.torch.zip.central_directory import find_end, read_entries
from ckptdoctor.formats.torch.zip.local_headers import check_records, first_name
from ckptdoctor.formats.torch.zip.records import (
    Directory,
    Record,
    Remarks,
    all_ascii_lower,
    ascii_lower,
    raw_name,
    shown,
)
from ckptdoctor.wording import plural


def read_directory(source: Source) -> Directory:
    """Return the directory of a torch archive, checked against its records.

    Raises TruncatedError when the archive has no end, DamagedError when there is no directory where it should be or
    it leaves ``data.pkl`` out, HostileError when it is larger than any checkpoint's, and NotACheckpointError when no
    folder holds ``data.pkl`` or when it is a TorchScript archive (``constants.pkl``).
    """
    remarks = Remarks()
    end = find_end(source, remarks)
    entries = read_entries(source, end, remarks)
    records = check_records(source, entries, end.offset, remarks)
    prefix = choose_prefix(records)
    if prefix is None and _begins_with_a_pickle(source):
        raise DamagedError(
            "The zip directory does not list the data.pkl with which the file begins.", offset=end.offset
        )
    if prefix is None:
        raise NotACheckpointError(f"{source.path} is a zip archive without a data.pkl in a folder.")
    found = look_up(records, remarks)
    script = f"{prefix}/constants.pkl"  # its exact name alone makes the file TorchScript for torch.load
    if ascii_lower(script) in found and any(record.name == script for record in records):
        raise NotACheckpointError(f"{source.path} is a TorchScript archive: it holds constants.pkl.")
    check_names(records, prefix, remarks)
    _check_checksums(records, remarks)
    return Directory(tuple(records), prefix, found, end.stop, remarks.notes(), not remarks.trouble)


def _begins_with_a_pickle(source: Source) -> bool:
    name = first_name(source) or ""
    return name.lower().endswith("/data.pkl") and name.count("/") == 1


def _check_checksums(records: list[Record], remarks: Remarks) -> None:
    """Remark on checksums that were never computed: 0 for data that is not empty."""
    filled = [record for record in records if record.size]
    without = [record for record in filled if not record.crc]
    if not without:
        return
    if len(without) == len(filled):
        message = "no checksums were computed (torch.serialization.set_crc32_options(False)): damage cannot be detected"
    else:
        message = (
            f"{len(without):,} of {plural(len(filled), 'record')} {'has' if len(without) == 1 else 'have'} "
            "the checksum 0, so none was computed"
        )
    remarks.add(NoteKind.CRC_NOT_COMPUTED, message)


# ---- what the names in an archive do to its readers: duplicates, case, folders, paths that lead elsewhere


# torch copies names into a buffer of this many bytes, the last of them 0
_LONGEST_NAME = 511

# with duplicates, torch's own order must be found by its own sort; for more records than this it would take seconds
_MOST_SORTED = 1 << 16

# how many shared names get a note of their own
_MOST_TOLD = 8

# what a name must contain for any remark but that on its folder, its length, or on a second pickle
_SUSPICIOUS = ("\\", "\0", "..", ".pickle")


def choose_prefix(records: Sequence[Record]) -> str | None:
    """Return the folder that holds ``data.pkl``: torch's choice (that of the first record) where it does, else any.

    None when no folder at the top of the archive holds one.
    """
    holders = {
        name[: -len("/data.pkl")]
        for name in [record.name for record in records]
        if name[-1:] in "lL" and name[-9:].lower() == "/data.pkl" and name.count("/") == 1
    }
    first = first_folder(records)
    if first in holders:
        return first
    return min(holders, default=None)


def first_folder(records: Sequence[Record]) -> str | None:
    """Return the folder of the first record, which torch takes for the archive's name.

    It is None where it is in no folder.
    """
    folder, slash, _ = records[0].name.partition("/") if records else ("", "", "")
    return folder if slash else None


def look_up(records: Sequence[Record], remarks: Remarks) -> dict[str, Record]:
    """Return, by name in ASCII lower case, the record that torch finds; add notes on names of several records.

    Raises HostileError when that would take too long, which no real checkpoint makes it do.
    """
    found = dict(zip(all_ascii_lower([record.name for record in records]), records, strict=True))
    if len(found) == len(records):
        return found
    if len(records) > _MOST_SORTED:
        message = f"Some of the archive's {len(records):,} records have the same name, which no checkpoint needs."
        raise HostileError(message)
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(ascii_lower(record.name), []).append(record)
    order = _sorted_as_miniz(records)
    keys = [raw_name(record.name).lower() for record in order]
    shared = {name: rivals for name, rivals in groups.items() if len(rivals) > 1}
    for name in shared:
        found[name] = order[_search(keys, raw_name(name))]
    for name in list(shared)[:_MOST_TOLD]:
        _remark(shared[name], found[name], remarks)
    if len(shared) > _MOST_TOLD:
        message = f"{plural(len(shared) - _MOST_TOLD, 'more name is', 'more names are')} shared by several records"
        remarks.add(NoteKind.ZIP_AMBIGUOUS, message)
    return found


def _remark(rivals: list[Record], chosen: Record, remarks: Remarks) -> None:
    names = {record.name for record in rivals}
    place = rivals.index(chosen) + 1
    if len(names) == 1:
        message = f"{len(rivals)} records are called {shown(chosen.name)}: torch reads number {place}, zipfile the last"
    else:
        listed = ", ".join(shown(name) for name in sorted(names))
        message = (
            f"records differ only in the case of their names ({listed}): torch ignores case and reads "
            f"number {place} ({shown(chosen.name)}) for all of them"
        )
    remarks.add(NoteKind.ZIP_AMBIGUOUS, message, member=chosen.name)


def _sorted_as_miniz(records: Sequence[Record]) -> list[Record]:
    """Return the records by lower-case name in the order that miniz's heap sort leaves them in: it is not stable."""
    keys = [raw_name(record.name).lower() for record in records]
    order = list(range(len(records)))
    for root in range((len(order) - 2) // 2, -1, -1):
        _sift(order, keys, root, len(order))
    for end in range(len(order) - 1, 0, -1):
        order[0], order[end] = order[end], order[0]
        _sift(order, keys, 0, end)
    return [records[index] for index in order]


def _sift(order: list[int], keys: list[bytes], root: int, end: int) -> None:
    while (child := 2 * root + 1) < end:
        if child + 1 < end and keys[order[child]] < keys[order[child + 1]]:
            child += 1
        if not keys[order[root]] < keys[order[child]]:
            return
        order[root], order[child] = order[child], order[root]
        root = child


def _search(keys: list[bytes], wanted: bytes) -> int:
    """Return the position that miniz's binary search stops at: the first match it meets, not the first there is."""
    low, high = 0, len(keys) - 1
    while low <= high:
        middle = low + (high - low) // 2
        if keys[middle] == wanted:
            return middle
        if keys[middle] < wanted:
            low = middle + 1
        else:
            high = middle - 1
    raise KeyError(wanted)


def check_names(records: Sequence[Record], prefix: str, remarks: Remarks) -> None:
    """Remark on names that torch refuses, cuts, or does not read, and on those that lead out of a folder."""
    folder = f"{prefix}/"
    if first_folder(records) != prefix:
        message = (
            f"the first record is {shown(records[0].name)}, not in the folder {shown(prefix)}: torch rejects the file"
        )
        remarks.add(NoteKind.ZIP_UNUSUAL, message, member=records[0].name)
    pickle = f"{prefix}/data.pkl"
    names = [record.name for record in records]
    lowered = "\n".join(names).lower()
    dull = all(map(str.startswith, names, repeat(folder))) and len(max(names, key=len)) <= _LONGEST_NAME
    if dull and lowered.count(".pkl") <= 1 and not any(map(lowered.__contains__, _SUSPICIOUS)):
        return
    for name in names:
        if not name.startswith(folder):
            what = f"is outside the folder {shown(prefix)}: torch rejects the file"
            remarks.about(NoteKind.ZIP_UNUSUAL, name, what)
        if "\\" in name:
            what = "has a backslash in its name, which some readers take for a folder and torch does not"
            remarks.about(NoteKind.ZIP_UNUSUAL, name, what)
        if "\0" in name:
            what = "has a zero byte in its name, where zipfile and others cut it"
            remarks.about(NoteKind.ZIP_AMBIGUOUS, name, what)
        if ".." in name.split("/") or name.startswith("/"):
            what = "has a name that leads out of the folder it is unpacked in: harmless to torch, not to unpackers"
            remarks.about(NoteKind.ZIP_UNUSUAL, name, what)
        if len(name) > _LONGEST_NAME:
            remarks.about(NoteKind.ZIP_UNUSUAL, name, f"has a name of {len(name):,} characters, which torch cuts")
        if name.lower().endswith((".pkl", ".pickle")) and name != pickle:
            remarks.about(NoteKind.ZIP_UNUSUAL, name, "is a further pickle, which torch.load does not read")
