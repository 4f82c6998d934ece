"""Makes a directory for a broken archive out of the records that are still there, so that it can be read and copied.

Where the list at the end and all headers agree it is believed; otherwise the archive is walked from record to record,
and behind a damaged one on from the next that can be found. Checksums come from the descriptors behind the records. Of
records whose own header or descriptor is lost, the list has the place and the checksum, which then has to be right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

from ckptdoctor.checkpoint import Checkpoint, Container, Note, NoteKind, Source
from ckptdoctor.errors import CkptDoctorError, DamagedError
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.central_directory import MAX_RECORDS
from ckptdoctor.formats.torch.zip.layout import DEFAULT_ALIGNMENT, MAX_ALIGNMENT, local_header
from ckptdoctor.formats.torch.zip.local_headers import first_name
from ckptdoctor.formats.torch.zip.read import (
    SERIALIZATION_ID,
    bytes_in_front,
    directory_of,
    is_garbled,
    read,
    remember,
)
from ckptdoctor.formats.torch.zip.records import Directory, Record, ascii_lower, raw_name
from ckptdoctor.formats.torch.zip.truncated import (
    OLDER,
    Walk,
    alignment,
    declared_sizes,
    later_pickle_is_cut,
    sizes_in,
    step,
)
from ckptdoctor.noun import replace
from ckptdoctor.wording import plural
from ckptdoctor.writing.checksums import Bytes
from ckptdoctor.writing.recipe import Copy

_PICKLE = "/data.pkl"
_CHUNK = 1 << 20

# what torch insists on, and writes behind the storages, where a cut file has lost it; 3 is the version since torch 1.6
_WORDS = (("version", b"3\n"),)

# the other records that torch.save writes in the folder
_KNOWN = ("data.pkl", ".format_version", ".storage_alignment", "byteorder", "version", SERIALIZATION_ID)


def salvage(source: Source, container: Container) -> Checkpoint:
    """Return the contents with whatever is left of them; afterwards ``write`` copies what is whole.

    Storages of which nothing is left have no extent, those that are cut off a shorter one. Raises DamagedError where
    ``data.pkl``, which says what the storages are, is itself not there or damaged.
    """
    listed = _listed(source)
    directory = listed if listed is not None and listed.repairable else _found(source, listed)
    garbled = is_garbled(source, directory)
    if garbled:
        directory = _without(directory, SERIALIZATION_ID)
    missing = tuple([(name, word) for name, word in _WORDS if directory.find(name) is None])
    remember(source, replace(directory, salvaged=True, repairable=True, words=missing))
    checkpoint = read(source, container)
    older = [note for note in directory.notes if note.kind is NoteKind.TRUNCATED]
    if garbled:
        message = "the damaged serialization_id record, which torch can do without, is left out"
        older.append(Note(NoteKind.ZIP_UNUSUAL, message, offset=0))
    if lost := bytes_in_front(source, directory):
        message = plural(lost, "byte before the archive is left out", "bytes before the archive are left out")
        older.append(Note(NoteKind.ZIP_UNUSUAL, message, offset=0))
    return replace(checkpoint, notes=(*checkpoint.notes, *older))


def _without(directory: Directory, name: str) -> Directory:
    gone = directory.find(name)
    found = {key: record for key, record in directory.found.items() if record != gone}
    return replace(directory, records=tuple([each for each in directory.records if each != gone]), found=found)


def _listed(source: Source) -> Directory | None:
    """Return the directory of the archive itself, where it can be read."""
    try:
        return directory_of(source)
    except CkptDoctorError:  # it is missing or damaged: the records are looked for one by one
        return None


def _found(source: Source, listed: Directory | None) -> Directory:
    """Return the records that the archive itself shows, and those of the list whose checksums are right.

    Raises DamagedError as ``_walked`` does, where the list does not help.
    """
    known = {} if listed is None else _placed(source, listed)
    try:
        walked = _walked(source)
    except DamagedError:
        if listed is None or not known:
            raise
        walked = None
    pickle = None if walked is None else known.get(ascii_lower(f"{walked.prefix}/data.pkl"))
    if listed is not None and known and pickle is None:  # the records themselves are unreadable, or have another name
        return replace(listed, records=tuple(known.values()), found=known, notes=(), repairable=True)
    assert walked is not None
    if pickle is None or pickle != walked.find("data.pkl"):
        return walked
    found = dict(walked.found)
    for name, record in known.items():
        other = found.get(name)
        if other is None or (record != other and _is_right(source, record)):
            found[name] = record
    return replace(walked, records=tuple(found.values()), found=found)


def _placed(source: Source, listed: Directory) -> dict[str, Record]:
    """Return the records of the list by name, where its pickle is what its checksum says and names these storages.

    A record without a header of its own is where torch would have begun its data.
    """
    records = sorted(listed.records, key=lambda record: record.header_offset)
    if any(record.method != structs.STORED or record.size != record.compressed for record in records):
        return {}
    aligned = _alignment(source, records)
    placed = [record if _has_header(source, record) else _laid_out(record, aligned) for record in records]
    starts = [*[record.header_offset for record in placed[1:]], source.size]
    inside = [record for record, following in zip(placed, starts, strict=True) if record.end <= following]
    pickle = next((each for each in inside if ascii_lower(each.name) == ascii_lower(f"{listed.prefix}{_PICKLE}")), None)
    if pickle is None or not _is_right(source, pickle):
        return {}
    try:
        sizes = sizes_in(source, pickle)
    except CkptDoctorError:  # it is not a pickle of torch
        return {}
    kept = sound_records([Found(record, True) for record in inside], list(sizes))
    whole = [each for each in kept if each.size == sizes.get(each.name, each.size) and (each.crc or not each.size)]
    found = {ascii_lower(each.name): each for each in whole if _is_ours(each, listed.prefix, sizes)}
    return found if ascii_lower(pickle.name) in found else {}


def _has_header(source: Source, record: Record) -> bool:
    at = record.header_offset
    return source.read(at, min(4, source.size - at)) == structs.LOCAL_SIGNATURE


def _laid_out(record: Record, aligned: int) -> Record:
    """Return the record with its data where torch begins it."""
    header = local_header(record.name, record.size, record.header_offset, aligned)
    return record._replace(data_offset=record.header_offset + len(header))


def _alignment(source: Source, records: Sequence[Record]) -> int:
    """Return the alignment that the archive states; where that record has no header it is where it itself says."""
    stated = next((each for each in records if each.name.endswith("/.storage_alignment")), None)
    if stated is None or _has_header(source, stated):
        return alignment(source, records)
    others = [1 << power for power in range(MAX_ALIGNMENT.bit_length()) if 1 << power != DEFAULT_ALIGNMENT]
    return next((each for each in others if alignment(source, [_laid_out(stated, each)]) == each), DEFAULT_ALIGNMENT)


def _is_right(source: Source, record: Record) -> bool:
    """Return whether the bytes of a record are what its checksum says."""
    with Bytes(source.file) as files:
        return files.checksum((Copy(record.data_offset, record.size),)) == record.crc


def _walked(source: Source) -> Directory:
    """Return the records that can be found by going through the file.

    Raises DamagedError where the first is not a pickle.
    """
    name = first_name(source)
    if name is None or not name.lower().endswith(_PICKLE) or name.count("/") != 1:
        raise DamagedError(
            f"{source.path} does not begin with a data.pkl, and nothing else describes its bytes.", offset=0
        )
    walk = Walk()
    try:
        sizes = declared_sizes(source, walk, name)
    except CkptDoctorError as error:
        message = f"{source.path}: {error.message} Without it nothing describes the storages."
        raise DamagedError(message, offset=error.offset) from error
    prefix = name[: -len(_PICKLE)]
    records = sound_records(_with_last_pickle(source, _all(source, walk, sizes, prefix), sizes), list(sizes))
    found = {ascii_lower(record.name): record for record in records if _is_ours(record, prefix, sizes)}
    cut = later_pickle_is_cut(source, walk, name)
    notes = (Note(NoteKind.TRUNCATED, OLDER, name, walk.at),) if cut else ()
    return Directory(tuple(found.values()), prefix, found, source.size, notes, True)


def _with_last_pickle(source: Source, found: list[Found], sizes: dict[str, int]) -> list[Found]:
    """Return the records without the pickles that a change in place left behind: of several the last one counts.

    It must be what its checksum says, and name the same storages. Otherwise all stay, and none is believed.
    """
    pickles = [each.record for each in found if each.record.name == found[0].record.name]
    last = pickles[-1]
    if len(pickles) < 2 or crc32(source.read(last.data_offset, last.size)) != last.crc:
        return found
    try:
        same = sizes_in(source, last) == sizes
    except CkptDoctorError:  # it is not a pickle of torch
        return found
    return [each for each in found if each.record.name != last.name or each.record is last] if same else found


def _is_ours(record: Record, prefix: str, sizes: dict[str, int]) -> bool:
    folder, _, rest = record.name.partition("/")
    return record.name in sizes or (folder == prefix and rest in _KNOWN)


def _all(source: Source, walk: Walk, sizes: dict[str, int], prefix: str) -> list[Found]:
    """Return the records in file order, and where the file is damaged in front of them.

    Those that are cut off come last.
    """
    found = [Found(walk.found[0], True)]
    cut = []
    resumed = False
    while len(found) < MAX_RECORDS:
        step(source, walk, sizes)
        if not walk.ended:
            found.append(Found(walk.found[-1], not resumed))
            resumed = False
            continue
        if walk.cut is not None:
            cut.append(walk.cut)
        following = _next_header(source, walk.at + 1, prefix)
        if following is None:
            break
        walk.at, walk.ended, walk.cut, resumed = following, False, None, True
    whole = {each.record.name for each in found}
    return [*found, *[Found(record, False) for record in cut if record.name not in whole]]


def _next_header(source: Source, start: int, prefix: str) -> int | None:
    """Return where the next local header of a record in the folder ``prefix`` begins, or None when there is none.

    Weights may hold the four bytes of a header by chance; that the folder's name is behind them settles it.
    """
    name = raw_name(f"{prefix}/")
    reach = structs.LOCAL.size + len(name)
    for at in range(start, source.size, _CHUNK):
        window = source.read(at, min(_CHUNK + reach, source.size - at))
        place = window.find(structs.LOCAL_SIGNATURE)
        while 0 <= place < _CHUNK:
            if window.startswith(name, place + structs.LOCAL.size):
                return at + place
            place = window.find(structs.LOCAL_SIGNATURE, place + 1)
    return None


# ---- which records of a broken archive are what their names say
#
# A checksum vouches for the bytes of a record, not for its name: one flipped bit makes "data/5" of "data/4". But torch
# writes storages in an order that is known, so that a name out of its turn gives itself away.


class Found(NamedTuple):
    """A record, and whether it comes directly after the one before it."""

    record: Record
    adjoins: bool


def sound_records(found: Sequence[Found], used: Sequence[str]) -> list[Record]:
    """Return the records whose names are not in doubt.

    ``used`` are the names of the storages in the order of their first use.

    A name that is there twice is in doubt wherever it is. Where the others follow an order, so is one that does not:
    directly after a record its successor must follow, and after a damaged place some later one.
    """
    counts = Counter(each.record.name for each in found)
    places = {name: place for place, name in enumerate(_order([each.record.name for each in found], used))}
    kept = []
    last = -1
    follows = False  # whether the record before is a storage whose name is right
    for each in found:
        place = places.get(each.record.name)
        in_turn = place is not None and (place == last + 1 if follows and each.adjoins else place > last)
        if place is not None and in_turn:
            last = place
        follows = in_turn
        if counts[each.record.name] == 1 and (in_turn or place is None):
            kept.append(each.record)
    return kept


def _order(names: Sequence[str], used: Sequence[str]) -> Sequence[str]:
    """Return the order in which the storages were written.

    It is that of first use, or by name as torch did once; () where neither.
    """
    storages = set(used)
    there = [name for name in names if name in storages]
    best = max((used, sorted(used)), key=lambda order: _in_turn(there, order))
    return best if _in_turn(there, best) * 2 >= len(there) - 1 else ()


def _in_turn(names: Sequence[str], order: Sequence[str]) -> int:
    """Return how many of the names are followed by the one that follows in the order."""
    places = {name: place for place, name in enumerate(order)}
    return sum(places[other] == places[one] + 1 for one, other in pairwise(names))
