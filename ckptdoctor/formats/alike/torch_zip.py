"""Knows archives of torch again that are laid out as one before, with other values, checksums, and some other numbers.

What is compared is all that reading one looks at: the end and the directory, every local header and descriptor, the
small records, and ``data.pkl`` up to numbers that were seen to differ, which are in the tree and nowhere else.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from struct import Struct, unpack_from
from typing import Any

from ckptdoctor.checkpoint import Checkpoint, Source
from ckptdoctor.checkpoint.blind import blind
from ckptdoctor.formats.alike.renewing import Again, Pattern
from ckptdoctor.formats.torch.read import interpret
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.central_directory import REACH
from ckptdoctor.formats.torch.zip.local_headers import TORCH_FLAGS
from ckptdoctor.formats.torch.zip.read import ZipStorages, directory_of, pickle_record, remember
from ckptdoctor.formats.torch.zip.records import Directory, Record, ascii_lower, shown
from ckptdoctor.noun import replace
from ckptdoctor.pickles import canonical, decode
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.machine import Handler, Machine
from ckptdoctor.pickles.opcode_handlers import HANDLERS
from ckptdoctor.regex import regex

_NEAR, _WINDOW = 8 << 10, 1 << 20  # bytes between what is read by one read, and of it
_MOST_RECORDS, _MOST_PICKLE, _MOST_HOLES = 5_000, 4 << 20, 256
_BEFORE_CRC, _BEFORE_LENGTHS = 16, 28  # bytes of an entry of the directory before its checksum, and before its lengths
_BLOCK = 256  # bytes of two pickles that are compared at once
_PROTOCOL = 2  # from which on numbers are written alike
_WORDS = ("byteorder", "version", ".data/version")  # records that reading looks into
# how the argument of each number is packed; others are of a length of their own
_PACKED = {op.BININT1: "<B", op.BININT2: "<H", op.BININT: "<i", op.BINFLOAT: ">d"}
# folders of which no reader thinks anything: torch.save calls them as the file, without its suffix
_PLAIN = regex(r"[\w=+-]+(?:\.\d[\w=+-]*)*", re.ASCII)

_record = partial(tuple.__new__, Record)


class Bytes:
    """Bytes of a file from ``start`` on that are the same in all that are alike, except for parts: from, to, and what.

    Parts are checksums ("I"), names of the folder ("s"), and what nobody asks for ("x"). Raises ValueError where they
    overlap.
    """

    def __init__(self, start: int, data: bytes, parts: Iterable[tuple[int, int, str]]) -> None:
        self.start, self.length = start, len(data)
        constant, at = ["<"], 0
        varying = {"I": ["<"], "s": ["<"]}
        for begin, end, what in sorted(parts):
            if begin < at:
                raise ValueError("parts overlap")
            constant.append(f"{begin - at}s{end - begin}x")
            for kind, said in varying.items():
                taken = "I" if kind == what == "I" else f"{end - begin}{kind if kind == what else 'x'}"
                said.append(f"{begin - at}x{taken}")
            at = end
        constant.append(f"{len(data) - at}s")
        self._constant, self._checksums, self._names = [Struct("".join(each)) for each in (constant, *varying.values())]
        self._wanted = self._constant.unpack(data)

    def read(self, data: bytes, folder: bytes) -> tuple[int, ...] | None:
        """Return the checksums in these bytes, where all else is as it was, and the folder is called so."""
        if len(data) != self.length or self._constant.unpack(data) != self._wanted:
            return None
        if not {folder}.issuperset(self._names.unpack_from(data)):
            return None
        return self._checksums.unpack_from(data)

    def first_name(self, data: bytes) -> bytes:
        """Return the first name of the folder in these bytes; b"" where they are too few."""
        return self._names.unpack_from(data)[0] if len(data) == self.length else b""


class Outline:
    """How an archive is laid out. Raises ValueError for one that torch.save would not have written so."""

    def __init__(self, source: Source, directory: Directory) -> None:
        records = self.records = directory.records
        if directory.notes or not directory.repairable or not 0 < len(records) <= _MOST_RECORDS:
            raise ValueError("something is odd about it")
        if any(each.flags != TORCH_FLAGS or each.method != structs.STORED or each.directory for each in records):
            raise ValueError("torch.save does not write such records")
        if list(records) != sorted(records, key=attrgetter("header_offset")):
            raise ValueError("its records are in another order than its directory")
        if records[0].header_offset or directory.end != source.size or not _PLAIN.fullmatch(directory.prefix):
            raise ValueError("there is something before or behind it, or its folder is called in an odd way")
        self.size, self.distant = source.size, source.distant
        self.directory = directory
        self.pickle = records.index(pickle_record(directory))
        self._folder = len(directory.prefix)
        self._filled = tuple([bool(each.size) for each in records])
        words = [each for each in map(directory.find, _WORDS) if each is not None]
        self._words = [(each, source.read(each.data_offset, each.size)) for each in words]
        self._windows: list[tuple[Bytes, int]] = []
        self._end(source)
        if not source.distant:
            self._headers(source)
        if self.read(source) != (directory.prefix, tuple([each.crc for each in records])):
            raise ValueError("its checksums are not where they should be")

    def _end(self, source: Source) -> None:
        self._tail = max(0, source.size - REACH)
        tail = source.read(self._tail, source.size - self._tail)
        self._found = tail.find(structs.END_SIGNATURE)
        if self._found < 0 or self._found != tail.rfind(structs.END_SIGNATURE):
            raise ValueError("there are several ends")
        size, self.offset = structs.END.unpack_from(tail, self._found)[5:7]
        if self.offset + size > self._tail + self._found:
            raise ValueError("its end is that of a longer archive")
        data = source.read(self.offset, source.size - self.offset)
        at = 0
        parts = []
        for _ in self.records:
            if data[at : at + 4] != structs.CENTRAL_SIGNATURE:
                raise ValueError("its directory is not in order")
            name = at + structs.CENTRAL.size
            parts += [(at + _BEFORE_CRC, at + _BEFORE_CRC + 4, "I"), (name, name + self._folder, "s")]
            at = name + sum(unpack_from("<HHH", data, at + _BEFORE_LENGTHS))
        if at != size:
            raise ValueError("its directory is not in order")
        self._central = Bytes(self.offset, data, parts)

    def _headers(self, source: Source) -> None:
        """Note what is between the data of records: of those near each other as one, with the first record of each."""
        names = [each.header_offset + structs.LOCAL.size for each in self.records]
        begins = [0, *[each.end for each in self.records]]
        ends = [*[each.data_offset for each in self.records], self.offset]
        waiting: list[int] = []
        for number, begin in enumerate(begins):
            if waiting and (begin - ends[number - 1] > _NEAR or ends[number] - begins[waiting[0]] > _WINDOW):
                self._window(source, waiting, begins, ends, names)
                waiting = []
            waiting.append(number)
        self._window(source, waiting, begins, ends, names)

    def _window(self, source: Source, numbers: list[int], begins: list[int], ends: list[int], names: list[int]) -> None:
        start, stop = begins[numbers[0]], ends[numbers[-1]]
        data = source.read(start, stop - start)
        parts: list[tuple[int, int, str]] = []
        for each in numbers:
            begin = begins[each] - start
            if each:
                if data[begin : begin + 4] != structs.DESCRIPTOR_SIGNATURE:
                    raise ValueError("a record has no descriptor")
                parts.append((begin + 4, begin + 8, "I"))
            if each < len(names):
                parts.append((names[each] - start, names[each] - start + self._folder, "s"))
            if each != numbers[-1]:
                parts.append((ends[each] - start, begins[each + 1] - start, "x"))
        self._windows.append((Bytes(start, data, parts), max(0, numbers[0] - 1)))

    def read(self, source: Source) -> tuple[str, tuple[int, ...]] | None:
        """Return the name of the folder, and the checksums, of an archive that is laid out so; None of any other."""
        tail = source.read(self._tail, self.size - self._tail)
        if tail.find(structs.END_SIGNATURE) != self._found or tail.find(structs.END_SIGNATURE, self._found + 4) >= 0:
            return None
        here = self.offset - self._tail
        data = tail[here:] if here >= 0 else source.read(self.offset, self.size - self.offset)
        folder = self._central.first_name(data)
        prefix = folder.decode("ascii", "replace")
        found = self._central.read(data, folder) if _PLAIN.fullmatch(prefix) else None
        if found is None or tuple(map(bool, found)) != self._filled:
            return None
        for each, first in self._windows:
            crcs = each.read(source.read(each.start, each.length), folder)
            if crcs is None or crcs != found[first : first + len(crcs)]:
                return None
        for word, known in self._words:
            if source.read(word.data_offset, word.size) != known:
                return None
        return prefix, found

    def directory_with(self, prefix: str, crcs: Sequence[int]) -> Directory:
        """Return the directory of an archive with this folder and these checksums."""
        old, cut = self.directory, self._folder
        records = [
            _record((prefix + name[cut:], *said, crc, *rest))
            for (name, *said, _, size, packed, at, begin, folder), crc in zip(old.records, crcs, strict=True)
            for rest in [(size, packed, at, begin, folder)]
        ]
        found = dict(zip([ascii_lower(each.name) for each in records], records, strict=True))
        return Directory(tuple(records), prefix, found, old.end, (), True)


class Likeness:
    """An archive, with what differs in those that are like it. ``kept`` is for what others work out about all of them.

    Numbers of its pickle in which it differs from ``before``, or that one from others, are its own. Raises
    ValueError, or DamagedError, where it is nothing that others could be like.
    """

    def __init__(self, source: Source, contents: Checkpoint, before: Likeness | None = None) -> None:
        if contents.notes or contents.asides:
            raise ValueError("something is odd about it")
        self.kept: dict[str, Any] = {}
        self.outline = outline = Outline(source, directory_of(source))
        record = outline.records[outline.pickle]
        if record.size > _MOST_PICKLE:
            raise ValueError("its pickle is long")
        self.data = source.read(record.data_offset, record.size)
        self.holes = _holes(self.data, before) if before is not None else {}
        self.contents = contents = replace(contents, container=None, identity=None, bytes_read=0)
        pattern, places = contents, {at: blind(_kind(code)) for at, code in self.holes.items()}
        if self.holes:
            table = ZipStorages(contents.path, directory_of(source))
            read = interpret(decode(self.data, handlers=_putting(places)), table, shown(record.name))
            pattern = replace(
                contents,
                tree=read.tree,
                tensors=read.tensors,
                storages=read.storages,
                state_dicts=read.state_dicts,
                globals=read.globals,
                notes=(*read.notes, *table.notes),
            )
        self._pattern = Pattern(pattern, tuple(places.values()))
        names = {each.name: number for number, each in enumerate(outline.records)}
        folder = f"{outline.directory.prefix}/data/"
        self._stored = [names.get(f"{folder}{each.key}", -1) for each in contents.storages]
        if self._pattern.offsets != tuple([outline.records[each].data_offset for each in self._stored]):
            raise ValueError("its storages are not where they are called")
        numbers = self._numbers(self.data)
        crcs = [each.crc for each in outline.records]
        if numbers is None or self._made(contents.path, outline.directory.prefix, crcs, numbers) != contents:
            raise ValueError("it cannot be made again")
        self.blind = self._pattern.blind([_kind(code) for code in self.holes.values()])

    def again(self, source: Source) -> Again | None:
        """Return what is known of a file; None where it is laid out in another way."""
        said = self.outline.read(source)
        if said is None:
            return None
        prefix, crcs = said
        record = self.outline.records[self.outline.pickle]
        data = source.read(record.data_offset, record.size)
        if zlib.crc32(data) != crcs[self.outline.pickle]:
            return None
        numbers = self._numbers(data)
        if numbers is None:
            return Again(None)
        remember(source, self.outline.directory_with(prefix, crcs))
        return Again(self._made(source.file, prefix, crcs, numbers))

    def _numbers(self, data: bytes) -> list[int | float] | None:
        """Return the numbers of a pickle that is the same except for them."""
        mine = bytearray(data) if self.holes else data
        numbers: list[int | float] = []
        for at, code in self.holes.items():
            (number,) = unpack_from(_PACKED[code], data, at)
            end = at + op.ARGUMENT_SIZE[code]
            # what the decoder keeps as it is written: a NaN, or an integer with a longer opcode than it needs
            if number != number or canonical.constant(number, _PROTOCOL) != data[at - 1 : end]:
                return None
            numbers.append(number)
            mine[at:end] = self.data[at:end]  # type: ignore[index]  # with holes it is a bytearray
        return numbers if mine == self.data else None

    def _made(self, path: str, prefix: str, crcs: Sequence[int], numbers: Sequence[int | float]) -> Checkpoint:
        name = self.outline.records[self.outline.pickle].name
        member = shown(prefix + name[len(prefix) :])
        return self._pattern.renewed(path, [crcs[each] for each in self._stored], numbers, member)


def _kind(code: int) -> type:
    return float if code == op.BINFLOAT else int


def _holes(data: bytes, before: Likeness) -> dict[int, int]:
    """Return which numbers differ between two pickles, or did before: where the argument of each is, and its opcode.

    Raises ValueError where anything else differs, or too much.
    """
    if len(data) != len(before.data):
        raise ValueError("their pickles are not of one length")
    operands: list[tuple[int, int]] = []
    decode(data, handlers=_noting(operands))
    begins = [at for at, _ in operands]
    found = dict(before.holes)
    for block in range(0, len(data), _BLOCK):
        one, other = data[block : block + _BLOCK], before.data[block : block + _BLOCK]
        if one == other:
            continue
        for place in [block + at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]:
            at, code = operands[max(0, bisect_right(begins, place) - 1)] if operands else (0, 0)
            if not at <= place < at + op.ARGUMENT_SIZE.get(code, 0):
                raise ValueError("more than numbers differs")
            found[at] = code
    if len(found) > _MOST_HOLES:
        raise ValueError("too many numbers differ")
    return dict(sorted(found.items()))


def _noting(operands: list[tuple[int, int]]) -> tuple[Handler, ...]:
    """Return handlers that note where the argument of each number is, and its opcode."""

    def of(code: int) -> Handler:
        usual = HANDLERS[code]

        def handler(m: Machine, at: int) -> int:
            operands.append((at, code))
            return usual(m, at)

        return handler

    return tuple([of(code) if code in _PACKED else usual for code, usual in enumerate(HANDLERS)])


def _putting(places: Mapping[int, Any]) -> tuple[Handler, ...]:
    """Return handlers with which numbers at these places become what is given for them."""

    def of(usual: Handler) -> Handler:
        def handler(m: Machine, at: int) -> int:
            end = usual(m, at)
            if at in places:
                m.stack[-1] = places[at]
            return end

        return handler

    return tuple([of(usual) if code in _PACKED else usual for code, usual in enumerate(HANDLERS)])
