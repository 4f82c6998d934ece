"""The pickle machine keeps its state here while it reads a stream, and its opcodes share what they need."""

from __future__ import annotations

from collections.abc import Callable

from ckptdoctor.errors import DamagedError, HostileError, TruncatedError
from ckptdoctor.noun import noun
from ckptdoctor.pickles.entries import Entries, Pattern
from ckptdoctor.pickles.graph import Ambiguity, FoldedTensor, Form, GlobalUse, Made, PickleNode, Value
from ckptdoctor.wording import plural


@noun
class Budgets:
    """Upper bounds for one pickle, several times what the 100 MB ``data.pkl`` of 750,000 tensors needs.

    Memory stays within about 20 times the bytes read. ``opcodes`` executed; ``nodes`` of the graph; ``stack`` values
    between two MARKs; ``marks`` open at once; ``memo`` entries; distinct ``globals``; ``digits`` of a number written as
    text (CPython's own limit, since its conversion takes quadratic time); ``integer_bytes`` of a binary integer;
    ``frames`` of protocol 4; ``line`` bytes of a text argument that is a name or number.
    """

    opcodes: int = 50_000_000
    nodes: int = 12_000_000
    stack: int = 10_000_000
    marks: int = 2_000_000
    memo: int = 12_000_000
    globals: int = 50_000
    digits: int = 4_300
    integer_bytes: int = 65_536
    frames: int = 100_000
    line: int = 65_536


def exceeded(budget: str, limit: int, offset: int) -> HostileError:
    """Return the error for a pickle that asks for more than ``limit`` of what ``budget`` bounds."""
    return HostileError(
        f"the pickle exceeds the budget of {limit:,} for {budget.replace('_', ' ')} at byte {offset}: it "
        "looks built to exhaust its reader; do not load it, and download the file again from its source",
        offset=offset,
    )


# Bytes after which the budgets are looked at again: an opcode is at least a byte, so no count can run away in between.
PAUSE = 65_536

# Ambiguities that are remembered. The first ones say what there is to say; a hostile stream could hold millions.
_MOST_AMBIGUITIES = 100


class Machine:
    """Stack, memo and notes. The stack is a list per open MARK, so that nothing can reach below its MARK.

    ``limit`` is where the main loop must stop and look around: the end of the frame or of the data, or the next look at
    the budgets. ``memo`` holds the entries 0, 1, 2 … that came in order, ``sparse`` all others. ``borrowed`` says at
    which place of the stack (open MARKs, depth) an object is that was fetched from the memo rather than made there.
    ``protocol`` is -1 until the stream shows it. ``discarded`` says that some value does not reach the result;
    ``calls`` counts the calls, so that it can be told in the end whether one of them is missing from it. ``forms`` are
    those of tensors by the bytes that say them and by what is called, as long as no memo entry is given another value.
    """

    __slots__ = (
        "ambiguities",
        "borrowed",
        "budgets",
        "calls",
        "data",
        "discarded",
        "duplicated",
        "entries",
        "extra_opcodes",
        "forms",
        "frame_end",
        "frames",
        "globals",
        "inner",
        "limit",
        "memo",
        "memoize",
        "metastack",
        "nodes",
        "patterns",
        "protocol",
        "root",
        "size",
        "sparse",
        "stack",
        "start",
        "stopped",
    )

    def __init__(self, data: bytes, start: int, budgets: Budgets) -> None:
        self.data = data
        self.start = start
        self.size = len(data)
        self.budgets = budgets
        self.limit = min(start + PAUSE, self.size)
        self.frame_end = -1
        self.frames: list[tuple[int, int]] = []
        self.protocol = -1
        self.stack: list[Value] = []
        self.metastack: list[list[Value]] = []
        self.memo: list[Value | FoldedTensor] = []
        self.sparse: dict[int, Value] = {}
        self.forms: dict[tuple[tuple[bytes, ...], PickleNode], Form] = {}
        self.entries: Entries | None = None
        self.patterns: dict[Pattern, Form] = {}
        self.memoize = False
        self.borrowed: dict[tuple[int, int], Made] = {}
        self.duplicated: list[Value] = []
        self.globals: dict[tuple[str, str], GlobalUse] = {}
        self.inner: list[GlobalUse] = []  # getattr, as pickles inside the stream use it
        self.ambiguities: list[Ambiguity] = []
        self.discarded = False
        self.stopped = False
        self.root: Value = None
        self.nodes = 0
        self.calls = 0
        self.extra_opcodes = 0

    def entry(self, index: int) -> Value:
        """Return what the dense part of the memo holds at ``index``. Raises IndexError beyond it."""
        value = self.memo[index]
        return value.node(index) if isinstance(value, FoldedTensor) else value

    def ambiguous(self, kind: str, message: str, offset: int) -> None:
        """Note something on which unpicklers disagree, or that no pickler writes."""
        if len(self.ambiguities) < _MOST_AMBIGUITIES:
            self.ambiguities.append(Ambiguity(kind, f"{message} (byte {offset})", offset))

    def need(self, count: int, at: int, what: str) -> int:
        """Return the end of ``count`` bytes from ``at``. Raises TruncatedError when fewer remain."""
        end = at + count
        if end > self.size:
            raise TruncatedError(
                f"the pickle announces {what} of {plural(count, 'byte')} at byte {at}, but only "
                f"{plural(self.size - at, 'remains', 'remain')}: the file is cut off or damaged; get a "
                "complete copy",
                offset=at,
            )
        return end

    def line(self, at: int, limit: int | None, offset: int) -> tuple[bytes, int]:
        """Return the text up to the next newline and the position behind it.

        ``limit`` bounds its length, None does not.
        """
        most = self.size if limit is None else min(self.size, at + limit + 1)
        end = self.data.find(b"\n", at, most)
        if end < 0:
            if most < self.size and limit is not None:
                raise exceeded("digits" if limit == self.budgets.digits else "line", limit, offset)
            raise TruncatedError(
                f"the pickle ends within the text argument that begins at byte {at}: the file is cut off; get a "
                "complete copy",
                offset=at,
            )
        return self.data[at:end], end + 1

    def pop_mark(self) -> list[Value]:
        """Return the values above the last MARK, which is taken away."""
        values = self.stack
        if not self.metastack:
            raise LookupError
        self.stack = self.metastack.pop()
        return values

    def name(self, module: str, name: str, offset: int) -> None:
        """Note a class or function by name. Raises HostileError when there are too many different ones."""
        key = (module, name)
        if key not in self.globals:
            if len(self.globals) >= self.budgets.globals:
                raise exceeded("globals", self.budgets.globals, offset)
            self.globals[key] = GlobalUse(module, name, offset)

    def _place(self) -> tuple[int, int]:
        return len(self.metastack), len(self.stack) - 1

    def is_borrowed(self, value: Value) -> bool:
        """Return whether the top of the stack is an object that was made elsewhere and fetched from the memo."""
        return self.borrowed.get(self._place()) is value

    def borrow(self, value: Made) -> None:
        """Remember that the object about to be pushed was made elsewhere."""
        self.borrowed[len(self.metastack), len(self.stack)] = value


Handler = Callable[[Machine, int], int]


def damaged(offset: int, code: str, why: str) -> DamagedError:
    """Return the error for a stream that no unpickler can follow."""
    return DamagedError(
        f"the pickle is damaged at byte {offset}: {code} {why}; get a new copy of the file", offset=offset
    )
