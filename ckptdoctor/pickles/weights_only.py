"""Judges what ``torch.load(weights_only=True)`` accepts of a pickle, without making anything that it holds.

It does what ``torch._weights_only_unpickler.Unpickler`` of torch 2.13 does, on the kinds of values instead of the
values. Where that one would call into torch or Python with arguments that it has not looked at, nothing is said of
them: the readers of formats say what is wrong with tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from ckptdoctor.noun import noun
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.entries import EARLY, TENSOR, Entries, Pattern, Run, puts_in_sequence
from ckptdoctor.pickles.tensor_opcodes import get_index

# what stands on the stack: the name of a kind, a class or function, or a tuple of such
_TEXT, _STORAGE_TEXT, _BYTES, _INT, _OTHER = "str", "the text storage", "bytes", "int", "plain"
_LIST, _DICT, _SET = "list", "dict", "set"
_ORDERED, _COUNTER = "collections.OrderedDict", "collections.Counter"
_TENSOR, _PARAMETER, _STORAGE = "torch.Tensor", "torch.nn.parameter.Parameter", "storage"
_UNTYPED = "torch.storage.UntypedStorage"

_FILLED = frozenset({_DICT, _ORDERED, _COUNTER})  # what SETITEM may fill
_UNHASHABLE = frozenset({_LIST, _DICT, _SET, _ORDERED, _COUNTER, "builtins.bytearray"})
_BUILT = frozenset({_TENSOR, _PARAMETER, _ORDERED, _COUNTER})  # what BUILD may give a state to
_NESTED = 8  # tuples in a tuple that is a key
_UTILS, _PARAMETERS = "torch._utils._rebuild_", ("parameter", "parameter_with_state")

# what the allowed names that can be called make; the functions of torch that rebuild tensors come on top
_MADE = {
    _ORDERED: _ORDERED,
    _COUNTER: _COUNTER,
    "builtins.set": _SET,
    "builtins.bytearray": "builtins.bytearray",
    "builtins.complex": _OTHER,
    "_codecs.encode": _BYTES,
    "torch.Size": _OTHER,
    "torch.device": _OTHER,
    "torch.serialization._get_layout": _OTHER,
    "torch._tensor._rebuild_from_type_v2": _TENSOR,
    _PARAMETER: _PARAMETER,
    _TENSOR: _TENSOR,
}
# constants that each push one value
_PUSHED: dict[int, Any] = {
    op.NONE: _OTHER,
    op.NEWTRUE: _OTHER,
    op.NEWFALSE: _OTHER,
    op.EMPTY_TUPLE: (),
    op.EMPTY_LIST: _LIST,
    op.EMPTY_DICT: _DICT,
    op.EMPTY_SET: _SET,
}
_SIZED = {op.BININT: (4, _INT), op.BININT1: (1, _INT), op.BININT2: (2, _INT), op.BINFLOAT: (8, _OTHER)}


@noun
class NamedGlobal:
    """A class or function that the stream names, and may name."""

    path: str


# the bytes that say what a tensor is: those of its GETs, its place, size and stride, and whether the last two are kept
# in the memo
_Said = tuple[bytes, bytes, bytes, bytes, bytes, bool, bytes, bool, bytes]


class WeightsOnlyError(Exception):
    """torch refuses the stream; the text says why."""


@noun
class WeightsOnlyVerdict:
    """Why torch refuses a pickle ("": it does not), and where it ends."""

    refusal: str
    end: int


def judged(
    data: bytes,
    start: int,
    allowed: Callable[[str, str], str | None],
    typed: bool = False,
    entries: Entries | None = None,
) -> WeightsOnlyVerdict:
    """Return whether torch accepts the pickle at ``start``.

    ``allowed`` gives the full name in Python 3 of a class or function that torch allows, and None for any other.
    ``typed``: a storage must have a type, as in the format from before torch 1.6, where it may be a view.
    ``entries`` has read these bytes before.
    """
    machine = _Machine(data, start, allowed, typed, entries)
    try:
        machine.run()
    except WeightsOnlyError as error:
        return WeightsOnlyVerdict(str(error), machine.at)
    except (IndexError, KeyError):
        return WeightsOnlyVerdict(f"the stream takes a missing value, at byte {machine.at:,}", machine.at)
    return WeightsOnlyVerdict("", machine.at)


class _Machine:
    """Stack, marks and memo of torch's unpickler.

    ``memo`` has the entries 0, 1, 2 … that came in order, ``sparse`` those beyond. ``patterns`` has what entries
    store there, until a memo entry is given another value.
    """

    def __init__(
        self,
        data: bytes,
        start: int,
        allowed: Callable[[str, str], str | None],
        typed: bool,
        entries: Entries | None,
    ) -> None:
        self.at = start
        self._typed = typed
        self._data = data
        self._allowed = allowed
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: list[Any] = []
        self._sparse: dict[int, Any] = {}
        self._reader = Entries(data) if entries is None else entries
        self._patterns: dict[Pattern, tuple[Any, ...]] = {}

    def run(self) -> None:
        """Read to STOP. Raises WeightsOnlyError, and IndexError or KeyError for what is taken and not there."""
        data = self._data
        while True:
            code = data[self.at]
            self.at += 1
            if code == op.BINPUT:  # the most frequent first
                self._put(data[self.at])
                self.at += 1
            elif code == op.LONG_BINPUT:
                self._put(self._number(4))
            elif code == op.BINGET:
                self._get(data[self.at])
                self.at += 1
            elif code == op.LONG_BINGET:
                self._get(self._number(4))
            elif code in _SIZED:
                width, kind = _SIZED[code]
                self._take(width)
                self._stack.append(kind)
            elif code in _PUSHED:
                self._stack.append(_PUSHED[code])
            elif code == op.BINUNICODE:
                self._text(self._take(self._number(4)), "surrogatepass")
            elif code == op.MARK and not (data.startswith(b"((", self.at - 1) and self._tensor()):
                self._marks.append(self._stack)
                self._stack = []
            elif code == op.STOP:
                self._stack.pop()
                return
            elif code != op.MARK:
                step = _STEPS.get(code)
                if step is None:
                    raise WeightsOnlyError(f"it uses the pickle operation {code}, which torch does not support")
                step(self)

    def _tensor(self) -> bool:
        """Read the arguments and the call of a usual tensor in one step; False, with nothing done, for anything else.

        What the single operations would leave on the stack and in the memo is the same. Entries of a state dict that
        follow are read as well.
        """
        match = TENSOR.match(self._data, self.at - 1)
        if match is None or self._typed or not self._stack:
            return False
        made = self._made_tensor(self._stack[-1], len(self._memo), match.groups(b""))
        if made is None:
            return False
        self._stack[-1] = made
        self.at = match.end()
        if len(self._memo) > EARLY:
            self._entries()
        return True

    def _entries(self) -> None:
        """Read keys with their tensors, one after another, as long as each looks as usual."""
        memo, stack, limit, runs = self._memo, self._stack, len(self._data), self._reader.runs
        while True:
            run = runs.get(self.at)
            if run is not None and run.patterns and self._skip(run):
                continue
            found = self._reader.read(self.at, len(memo), limit)
            if found is None:
                return
            pattern, name, _, end = found
            stored = self._patterns.get(pattern) or self._stored_by_entry(pattern)
            if stored is None or not name.isascii() or name == b"storage":
                return
            memo += stored
            stack.append(_TEXT)
            stack.append(stored[-1])
            self.at = end

    def _skip(self, run: Run) -> bool:
        """Leave of entries that were read before what reading them again would; False, with nothing done, if unsure."""
        if run.first != len(self._memo):
            return False
        stored: dict[Pattern, tuple[Any, ...]] = {}
        for each in set(run.patterns):
            found = self._patterns.get(each) or self._stored_by_entry(each)
            if found is None:
                return False
            stored[each] = found
        left = [stored[each] for each in run.patterns]
        self._memo.extend(chain.from_iterable(left))
        self._stack.extend(chain.from_iterable([(_TEXT, each[-1]) for each in left]))
        self.at = run.end
        return True

    def _stored_by_entry(self, each: Pattern) -> tuple[Any, ...] | None:
        """Return what entries of this pattern store in the memo, or None for those that are not as usual."""
        callee = get_index(each.function)
        function = self._memo[callee] if callee < len(self._memo) else None
        if type(function) is not NamedGlobal:
            return None
        kept = each.size_kept, each.stride_kept
        stored = self._stored_by(
            (each.tag, each.kind, each.where, each.place, each.size, kept[0], each.stride, kept[1], each.hooks),
            function.path,
        )
        if stored is None:
            return None
        self._patterns[each] = _TEXT, *stored
        return self._patterns[each]

    def _made_tensor(self, function: Any, index: int, groups: Sequence[bytes]) -> str | None:
        """Return what the call in a match of TENSOR makes, once its parts are in the memo, from ``index`` on."""
        (tag, kind, key_size, key, key_put, where, place_size, place, place_put, _, id_put, _, size, size_put,
         stride, stride_put, _, hooks, hooks_put, arguments_put, tensor_put) = groups  # fmt: skip
        puts = (key_put, place_put, id_put, size_put, stride_put, hooks_put, arguments_put, tensor_put)
        if not puts_in_sequence(puts, index) or key_size[0] != len(key) or (place and place_size[0] != len(place)):
            return None
        if type(function) is not NamedGlobal:
            return None
        said = tag, kind, where, place, size, bool(size_put), stride, bool(stride_put), hooks
        stored = self._stored_by(said, function.path)
        if stored is None:
            return None
        self._memo += stored
        made: str = stored[-1]
        return made

    def _stored_by(self, said: _Said, path: str) -> tuple[Any, ...] | None:
        """Return what tensors of this kind store in the memo, the tensor last.

        It is None for those that are not as usual.
        """
        tag, kind, where, place, size, size_kept, stride, stride_kept, hooks = said
        if max(map(get_index, (tag, kind, where, hooks))) >= len(self._memo):
            return None
        texts, named, held = (self._memo[get_index(get)] for get in (tag, kind, hooks))
        there = self._memo[get_index(where)] if where else _TEXT
        if not (
            texts == _STORAGE_TEXT
            and type(named) is type(held) is NamedGlobal
            and named.path.endswith("Storage")
            and held.path == _ORDERED
            and path.startswith(_UTILS)
            and place != b"storage"
        ):
            return None
        made = _PARAMETER if path[len(_UTILS) :] in _PARAMETERS else _TENSOR
        sizes, strides = _integers(size), _integers(stride)
        return (
            *([_TEXT] if where else [_TEXT, _TEXT]),
            (texts, named, _TEXT, there, _INT),
            *([sizes] if size_kept else []),
            *([strides] if stride_kept else []),
            _ORDERED,
            (_STORAGE, _INT, sizes, strides, _OTHER, _ORDERED),
            made,
        )

    # ---- the memo

    def _put(self, index: int) -> None:
        value = self._stack[-1]
        if index == len(self._memo):
            self._memo.append(value)
            return
        self._patterns.clear()  # their values may be fetched from here
        if index < len(self._memo):
            self._memo[index] = value
        else:
            self._sparse[index] = value

    def _get(self, index: int) -> None:
        self._stack.append(self._memo[index] if index < len(self._memo) else self._sparse[index])

    # ---- bytes

    def _take(self, count: int) -> bytes:
        found = self._data[self.at : self.at + count]
        if len(found) < count:
            raise WeightsOnlyError("the stream ends too early")
        self.at += count
        return found

    def _number(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def _line(self) -> str:
        end = self._data.index(b"\n", self.at) if b"\n" in self._data[self.at : self.at + 4096] else -1
        if end < 0:
            raise WeightsOnlyError("a name has no end")
        line, self.at = self._data[self.at : end], end + 1
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise WeightsOnlyError("a name is not a string") from error

    def _text(self, data: bytes, errors: str) -> None:
        try:
            text = data.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise WeightsOnlyError("a string is not UTF-8") from error
        self._stack.append(_STORAGE_TEXT if text == "storage" else _TEXT)

    # ---- steps

    def short_string(self) -> None:
        """Push a string of Python 2, which torch takes for UTF-8."""
        self._text(self._take(self._number(1)), "strict")

    def long(self) -> None:
        """Push an integer of up to 255 bytes."""
        self._take(self._number(1))
        self._stack.append(_INT)

    def proto(self) -> None:
        """Read the protocol: torch warns of any but 2, and goes on."""
        self._take(1)

    def named(self) -> None:
        """Push a class or function."""
        module, name = self._line(), self._line()
        path = self._allowed(module, name)
        if path is None:
            raise WeightsOnlyError(f"it names {module}.{name}")
        self._stack.append(NamedGlobal(path))

    def tuple(self) -> None:
        """Make a tuple of what follows the mark."""
        items = self._marked()
        self._stack.append(tuple(items))

    def tuple1(self) -> None:
        """Make a tuple of the last value."""
        self._stack[-1] = (self._stack[-1],)

    def tuple2(self) -> None:
        """Make a tuple of the last two."""
        self._stack[-2:] = [(self._stack[-2], self._stack[-1])]

    def tuple3(self) -> None:
        """Make a tuple of the last three."""
        self._stack[-3:] = [(self._stack[-3], self._stack[-2], self._stack[-1])]

    def _marked(self) -> list[Any]:
        found, self._stack = self._stack, self._marks.pop()
        return found

    def append(self) -> None:
        """Append one item to a list."""
        self._stack.pop()
        self._require(self._stack[-1] == _LIST, "fills as a list an object that is not one")

    def appends(self) -> None:
        """Append items to a list."""
        self._marked()
        self._require(self._stack[-1] == _LIST, "fills as a list an object that is not one")

    def setitem(self) -> None:
        """Set one entry of a dict."""
        self._stack.pop()
        self._set([self._stack.pop()])

    def setitems(self) -> None:
        """Set entries of a dict."""
        items = self._marked()
        self._require(len(items) % 2 == 0, "has a key without a value")
        self._set(items[::2])

    def _set(self, keys: list[Any]) -> None:
        target = self._stack[-1]
        self._require(isinstance(target, str) and target in _FILLED, "fills as a dict an object that is not one")
        if not all((type(key) is str and key not in _UNHASHABLE) or _is_key(key) for key in keys):
            raise WeightsOnlyError("a dict has an impossible key")

    def call(self) -> None:
        """Call ``function(*arguments)``, by name only."""
        arguments = self._stack.pop()
        self._stack[-1] = self._made(self._stack[-1], arguments)

    def _made(self, function: Any, arguments: Any) -> str:
        self._require(isinstance(function, NamedGlobal), "calls an object that is not a function")
        self._require(isinstance(arguments, tuple), "calls a function without a tuple of arguments")
        path: str = function.path
        if path.startswith(_UTILS):
            return _PARAMETER if path[len(_UTILS) :] in _PARAMETERS else _TENSOR
        if path in _MADE:
            return _MADE[path]
        self._require(path.endswith("Tensor"), f"calls {path}")
        return _OTHER

    def build(self) -> None:
        """Give an object its state."""
        state = self._stack.pop()
        target = self._stack[-1]
        self._require(isinstance(target, str) and target in _BUILT, "gives a state to an object that cannot have one")
        wanted = isinstance(state, tuple) if target in (_TENSOR, _PARAMETER) else state in (_DICT, _ORDERED)
        self._require(wanted, "gives an object the wrong kind of state")

    def stored(self) -> None:
        """Push a storage, by what torch calls it in the file."""
        identity = self._stack.pop()
        parts = identity if isinstance(identity, tuple) else ()
        wanted = 6 if self._typed else 5
        self._require(len(parts) == wanted and parts[0] == _STORAGE_TEXT, "refers to an object that is not a storage")
        path = parts[1].path if isinstance(parts[1], NamedGlobal) else ""
        self._require(
            path.endswith("Storage") and not (self._typed and path == _UNTYPED), "has a storage without a type"
        )
        self._stack.append(_STORAGE)

    def _require(self, fine: bool, trouble: str) -> None:
        if not fine:
            raise WeightsOnlyError(f"it {trouble}, before byte {self.at:,}")


@lru_cache(maxsize=1024)
def _integers(raw: bytes) -> tuple[str, ...]:
    """Return the kinds in a tuple of integers, of which these bytes are the opcodes."""
    at, kinds = int(raw[0] == op.MARK), 0
    while at < len(raw) - 1:
        at += 1 + _SIZED[raw[at]][0]
        kinds += 1
    return (_INT,) * kinds


def _is_key(value: Any, depth: int = 0) -> bool:
    """Return whether a value can be the key of a dict."""
    if isinstance(value, tuple):
        return depth < _NESTED and all(_is_key(each, depth + 1) for each in value)
    return not isinstance(value, str) or value not in _UNHASHABLE


_STEPS: dict[int, Callable[[_Machine], None]] = {
    op.SHORT_BINSTRING: _Machine.short_string,
    op.LONG1: _Machine.long,
    op.PROTO: _Machine.proto,
    op.GLOBAL: _Machine.named,
    op.TUPLE: _Machine.tuple,
    op.TUPLE1: _Machine.tuple1,
    op.TUPLE2: _Machine.tuple2,
    op.TUPLE3: _Machine.tuple3,
    op.APPEND: _Machine.append,
    op.APPENDS: _Machine.appends,
    op.SETITEM: _Machine.setitem,
    op.SETITEMS: _Machine.setitems,
    op.REDUCE: _Machine.call,
    op.NEWOBJ: _Machine.call,
    op.BUILD: _Machine.build,
    op.BINPERSID: _Machine.stored,
}
