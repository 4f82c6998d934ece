"""Keeps what is needed of a file that passes by to read its headers: of a tar archive, of safetensors, of torch.

Whatever is kept too little is found missing, and then all is unpacked (``thin``): what is said never depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError

from ckptdoctor.checkpoint.process import collector_paused
from ckptdoctor.errors import CkptDoctorError, TruncatedError
from ckptdoctor.formats.arrays.pickled.joblib import is_wrapper, wrapped
from ckptdoctor.formats.arrays.pickled.stream import mark
from ckptdoctor.formats.packed.passing import Passing
from ckptdoctor.formats.recognise.tars import BLOCK, MOST, TORCH_MEMBERS, Entry, Member, entry_of, is_tar
from ckptdoctor.formats.safetensors.signature import LENGTH_BYTES, MAX_HEADER_BYTES
from ckptdoctor.formats.torch.legacy.read import LegacyStorages, is_legacy, read_stream
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, String
from ckptdoctor.pickles.machine import Budgets, Handler, Machine, exceeded
from ckptdoctor.pickles.nested import LONGEST_BYTES, MOST_KEPT, is_looked_at, may_be_kept
from ckptdoctor.pickles.opcode_handlers import HANDLERS

# by which files are recognised (``formats.HEAD_BYTES``)
_HEAD = 4096

# what lies in an archive of torch but for storages
_BESIDE = (TORCH_MEMBERS - {"storages"}) | {"sys_info"}
_MOST_BESIDE = 64 << 20

_PROTOCOLS = range(2, 6)

# keeps what it wants and settles nothing behind that; whether the rest is wanted, too
Sieve = Callable[[Passing], bool]


def sieve_of(head: bytes, headers: bool) -> Sieve | None:
    """Return what a file that begins so is reduced to, or None where all of it is wanted.

    An archive that holds others is always reduced to its list; ``headers``: so is what has headers that stand alone.
    """
    if is_tar(head):
        return _tar
    if not headers:
        return None
    if head[LENGTH_BYTES : LENGTH_BYTES + 1] == b"{":
        return _safetensors
    if is_legacy(head):
        return _legacy
    return _pickle if len(head) > 2 and head[0] == 0x80 and head[1] in _PROTOCOLS else None


def _tar(passing: Passing) -> bool:
    """Keep the headers of the members; of an archive of torch all but the values."""
    passing.want(_HEAD)
    at = 0
    for _ in range(MOST):
        block = passing.peek(at, BLOCK)
        passing.want(at + len(block))  # also of what is none, by which the list ends
        entry = entry_of(block, at) if len(block) == BLOCK else None
        if entry is None:
            break
        _member(passing, entry)
        at = entry.next
    return False


def _member(passing: Passing, entry: Entry) -> None:
    name = entry.name.removeprefix("./")
    if not entry.regular:
        return
    if name in _BESIDE and entry.size <= _MOST_BESIDE:
        passing.keep(entry.offset + entry.size)
    elif name == "storages":
        from ckptdoctor.formats.torch.tar.tables import Cursor, Tables

        try:
            Tables(passing).take(Cursor(passing, name, Member(entry.offset, entry.size)))
        except CkptDoctorError:  # who reads the archive says so
            passing.keep(min(entry.offset + entry.size, passing.at + _MOST_BESIDE))


def _safetensors(passing: Passing) -> bool:
    """Keep the header. What is behind it is not even passed over where the size is known."""
    length = int.from_bytes(passing.read(0, LENGTH_BYTES), "little")
    if length > MAX_HEADER_BYTES:
        return True
    passing.keep(max(_HEAD, LENGTH_BYTES + length))
    return False


def _legacy(passing: Passing) -> bool:
    """Keep the pickles and the counts of the storages, and what follows the last one."""
    stream = read_stream(passing)
    passing.drop(LegacyStorages(passing, stream).end)
    return True


# ---- of a pickle all but long bytes that nobody looks into: the values of arrays
#
# Those that begin as a pickle does are looked into, up to 16 MiB each and 64 MiB together (``pickles.nested``): a
# tensor of torch among them. Texts are kept, for they are read, and so is everything of protocols 0 and 1, from an
# array of objects of joblib on, and behind the end of the first pickle.


_STEP = 1 << 20  # bytes that are looked at at a time, and right behind what was passed over
_FIRST_STEP = 1 << 16
_AHEAD = 1 << 18  # that are there in front of the machine: the arguments of any opcode that it does not pass over
_MARGIN = 1 << 14  # of bytes that are left out, so many are kept: by these, files in them are recognised and read

_BYTES = {op.BINBYTES: 4, op.BINBYTES8: 8, op.BYTEARRAY8: 8, op.BINSTRING: 4}
_TEXTS = {op.BINUNICODE: 4, op.BINUNICODE8: 8}
_NEGATIVE = 1 << 31
_SHORT = 255  # what tells the shape and type of an array is no longer


def _pickle(passing: Passing) -> bool:
    """Keep all but the values of arrays, as far as the first pickle can be followed."""
    try:
        with collector_paused():
            _Thinning(passing).run()
    except (CkptDoctorError, LookupError, StructError, UnicodeDecodeError):
        pass  # who reads it says what is wrong with it; all the rest is kept
    return True


class _Thinning:
    """The machine, and the bytes around the place where it is: they begin at byte ``base`` of the stream."""

    def __init__(self, passing: Passing) -> None:
        self._passing = passing
        self._machine = Machine(b"", 0, Budgets())
        self._base = 0
        self._limit = 0
        self._room = MOST_KEPT

    def run(self) -> None:
        """Follow the pickle up to STOP. Raises what the machine raises."""
        m, handlers = self._machine, self._handlers()
        at = opcodes = 0
        while not m.stopped:
            if at >= self._limit:
                self._check(opcodes, self._base + at)
                at = self._load(self._base + at, _STEP)
            opcodes += 1
            at = handlers[m.data[at]](m, at + 1)
        self._passing.keep(self._base + at)

    def _load(self, offset: int, step: int = _FIRST_STEP) -> int:
        """Go on at byte ``offset`` of the stream, everything before being settled or to be kept; where that is now."""
        self._passing.keep(offset)
        data = self._passing.peek(offset, step + _AHEAD)
        if not data:
            raise TruncatedError("The pickle has no end.", offset=offset)
        m = self._machine
        m.data, m.size, self._base = data, len(data), offset
        self._limit = step if len(data) == step + _AHEAD else len(data)
        return 0

    def _check(self, opcodes: int, offset: int) -> None:
        """Check the budgets that no handler looks at: whatever exceeds them is followed no further."""
        m = self._machine
        memo = len(m.memo) + len(m.sparse)
        used = {"opcodes": opcodes, "nodes": m.nodes, "memo": memo, "stack": len(m.stack), "marks": len(m.metastack)}
        for name, count in used.items():
            if count > getattr(m.budgets, name):
                raise exceeded(name, getattr(m.budgets, name), offset)

    def _handlers(self) -> tuple[Handler, ...]:
        table = list(HANDLERS)
        table[op.MARK] = mark
        for code, width in (_BYTES | _TEXTS).items():
            table[code] = self._long(code, width)
        table[op.BUILD] = self._build
        table[op.FRAME] = lambda m, at: at + 8  # a frame may be longer than what is here
        return tuple(table)

    def _long(self, code: int, width: int) -> Handler:
        usual = HANDLERS[code]

        def handler(m: Machine, at: int) -> int:
            begin = at + width
            length = int.from_bytes(m.data[at:begin], "little")
            if length <= (LONGEST_BYTES if code in _TEXTS else _SHORT) or begin >= m.size:
                return usual(m, at)
            if code == op.BINSTRING and length >= _NEGATIVE:
                return usual(m, at)
            m.nodes += 1
            m.stack.append(String(code, b""))  # which bytes these are makes no difference
            if begin + length <= m.size and length <= LONGEST_BYTES:
                return begin + length
            if code in _TEXTS or self._is_wanted(m.data[begin], self._base + begin, length):
                self._passing.keep(self._base + begin + length)
                return self._load(self._base + begin + length)
            return self._pass_over(begin, length)

        return handler

    def _is_wanted(self, first: int, begin: int, length: int) -> bool:
        """Return whether these bytes are looked into for pickles, and may be one."""
        if not is_looked_at(length, first):
            return False
        self._passing.keep(begin)
        raw = self._passing.peek(begin, length)
        wanted, self._room = may_be_kept(raw, self._room)
        return wanted or len(raw) < length

    def _pass_over(self, begin: int, length: int) -> int:
        start, stop = self._base + begin, self._base + begin + length
        self._passing.keep(min(start + _MARGIN, stop))
        self._passing.drop(stop)
        return self._load(stop)

    def _build(self, m: Machine, at: int) -> int:
        """Handle BUILD, and the array that joblib writes behind it."""
        at = HANDLERS[op.BUILD](m, at)
        top = m.stack[-1]
        if type(top) is not Made or not is_wrapper(top):
            return at
        array = wrapped(top, at)
        if array.kind.objects:
            raise TruncatedError("Another pickle follows.", offset=self._base + at)
        start = at + 1 + m.data[at] if array.aligned else at
        return self._pass_over(start, array.nbytes)
