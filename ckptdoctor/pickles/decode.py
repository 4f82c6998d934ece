"""Read one pickle into a graph of inert nodes: nothing is imported, called, looked up, hashed or compared."""

from __future__ import annotations

from struct import error as StructError

from ckptdoctor.checkpoint.process import collector_paused
from ckptdoctor.errors import DamagedError, TruncatedError
from ckptdoctor.noun import noun
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import (
    NO_MEMO,
    Global,
    GlobalUse,
    Made,
    PersistentId,
    Pickle,
    PickleNode,
    Popped,
    Tuple,
    Value,
)
from ckptdoctor.pickles.lookups import with_lookups
from ckptdoctor.pickles.machine import PAUSE, Budgets, Handler, Machine, damaged, exceeded
from ckptdoctor.pickles.opcode_handlers import HANDLERS
from ckptdoctor.pickles.references import with_references

_DEFAULT_BUDGETS = Budgets()


def decode(
    data: bytes, start: int = 0, *, budgets: Budgets = _DEFAULT_BUDGETS, handlers: tuple[Handler, ...] = HANDLERS
) -> Pickle:
    """Decode the pickle that begins at byte ``start``; what follows its STOP is not looked at.

    ``data`` may be a map of a file as well; ``handlers`` then leave long bytes where they are.

    Raises TruncatedError when the data end within it, DamagedError when no unpickler could follow it, HostileError when
    it exceeds a budget; all with the offset of the opcode in ``data``.
    """
    machine = Machine(data, start, budgets)
    with collector_paused():
        end, opcodes = _run(machine, handlers)
        return _finished(machine, end, opcodes)


@noun
class Followed:
    """How far a pickle could be followed: what it names up to there, and ``error`` where that is not its STOP.

    ``calls`` counts the calls that an unpickler has made by then.
    """

    names: tuple[GlobalUse, ...]
    calls: int
    end: int = 0
    opcodes: int = 0
    error: DamagedError | None = None


def follow(
    data: bytes, start: int = 0, *, budgets: Budgets = _DEFAULT_BUDGETS, handlers: tuple[Handler, ...] = HANDLERS
) -> Followed:
    """Return the same for a pickle that may break off: an unpickler makes every call in front of the break.

    Raises nothing.

    A frame that the file ends within is followed as far as it goes.
    """
    table = list(handlers)
    table[op.FRAME] = _cut_frame
    handlers = tuple(table)
    machine = Machine(data, start, budgets)
    with collector_paused():
        try:
            end, opcodes = _run(machine, handlers)
        except DamagedError as error:
            return Followed(tuple(machine.globals.values()), machine.calls, error=error)
    return Followed(tuple(_named(machine)), machine.calls, end, opcodes)


def _cut_frame(m: Machine, at: int) -> int:
    begin = m.need(8, at, "a frame length")
    whole = begin + int.from_bytes(m.data[at:begin], "little") <= m.size
    return HANDLERS[op.FRAME](m, at) if whole else begin


def _run(machine: Machine, handlers: tuple[Handler, ...]) -> tuple[int, int]:
    """Carry out the stream; returns its end and the number of opcodes."""
    data, at, opcodes = machine.data, machine.start, 0
    try:
        while not machine.stopped:
            while at < machine.limit:
                opcodes += 1
                at = handlers[data[at]](machine, at + 1)
            if not machine.stopped:
                _look_around(machine, at, opcodes + machine.extra_opcodes)
    except (LookupError, StructError, UnicodeDecodeError) as error:
        raise _explained(machine, at, error) from None
    return at, opcodes + machine.extra_opcodes


def _look_around(m: Machine, at: int, opcodes: int) -> None:
    """Check frames and budgets at the end of a frame, of the data, or of 64 KiB, and set the next limit."""
    if m.frame_end >= 0 and at >= m.frame_end:
        if at > m.frame_end:
            m.ambiguous("frame", f"a frame ends at byte {m.frame_end}, within an opcode", at)
        m.frame_end = -1
    if at >= m.size:
        raise TruncatedError(
            f"the pickle has no end: {m.size - m.start:,} bytes were read without a STOP; the file is cut off or "
            "damaged; get a complete copy",
            offset=m.size,
        )
    used = {
        "opcodes": opcodes,
        "nodes": m.nodes,
        "stack": len(m.stack),
        "marks": len(m.metastack),
        "memo": len(m.memo) + len(m.sparse),
    }
    for name, count in used.items():
        limit: int = getattr(m.budgets, name)
        if count > limit:
            raise exceeded(name, limit, at)
    m.limit = min(at + PAUSE, m.size if m.frame_end < 0 else m.frame_end)


def _explained(m: Machine, at: int, error: Exception) -> DamagedError:
    """Return the error for an opcode at ``at`` that its handler could not carry out."""
    code = m.data[at]
    name = op.opcode_name(code)
    if at + 1 + op.ARGUMENT_SIZE.get(code, 0) > m.size or isinstance(error, StructError):
        return TruncatedError(
            f"the pickle ends within the opcode {name} at byte {at}: the file is cut off; get a complete copy",
            offset=at,
        )
    if isinstance(error, UnicodeDecodeError):
        return damaged(at, name, f"holds a text that is not valid {error.encoding}")
    if isinstance(error, KeyError):
        return damaged(at, name, f"fetches the memo entry {error.args[0]}, which was never stored")
    return damaged(at, name, "takes more values from the stack than there are")


def _finished(m: Machine, end: int, opcodes: int) -> Pickle:
    next_memo = max(len(m.memo), max(m.sparse, default=-1) + 1)
    for node in m.duplicated:  # a value used twice can only be written again through the memo
        if isinstance(node, PickleNode) and node.memo == NO_MEMO:
            node.memo = next_memo
            next_memo += 1
    return Pickle(
        root=m.root,
        protocol=m.protocol if m.protocol >= 0 else 1,
        start=m.start,
        end=end,
        globals=_named(m),
        ambiguities=m.ambiguities,
        frames=m.frames,
        opcodes=opcodes,
        discards=m.discarded,
        discards_calls=m.discarded and discards_calls(m.root, m.calls),
        memoize=m.memoize,
        next_memo=next_memo,
        entries=m.entries,
    )


def _named(m: Machine) -> list[GlobalUse]:
    uses = with_references(list(m.globals.values()), m.root, m.discarded, m.inner)
    return with_lookups(uses, m.root, m.discarded, m.inner)


# ---- whether a pickle makes calls whose results do not reach what it returns


def discards_calls(root: Value, calls: int) -> bool:
    """Return whether fewer than ``calls`` calls are found in the graph under ``root``, discarded values left out."""
    seen: set[PickleNode] = set()  # nodes are compared by identity
    waiting: list[Value] = [root]
    found = 0
    while waiting:
        node = waiting.pop()
        if not isinstance(node, (Tuple, Made, PersistentId, Popped, Global)) or node in seen:
            continue
        seen.add(node)
        if isinstance(node, Made):
            found += node.op in op.CALLS
            for step in node.steps or ():
                waiting += step.payload
        waiting += parts(node)
    return found < calls


def parts(node: Tuple | Made | PersistentId | Popped | Global) -> list[Value]:
    """Return the values that a node was made of."""
    if isinstance(node, (Tuple, Made)):
        return node.items
    if isinstance(node, PersistentId):
        return [node.id]
    if isinstance(node, Popped):
        return [node.result]
    return node.parts or []
