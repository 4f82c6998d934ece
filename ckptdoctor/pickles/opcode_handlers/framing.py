"""PROTO, FRAME and STOP say where the stream begins, how it is cut into frames, and where it ends."""

from __future__ import annotations

from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.machine import PAUSE, Handler, Machine, exceeded
from ckptdoctor.wording import plural


def _proto(m: Machine, at: int) -> int:
    version = m.data[at]
    if at - 1 != m.start:
        m.ambiguous("protocol", f"PROTO {version} is within the pickle, not at its start", at - 1)
    if not 2 <= version <= 5:
        m.ambiguous("protocol", f"protocol {version} is not one that picklers announce (2 to 5)", at - 1)
    if at - 1 == m.start or m.protocol < 0:
        m.protocol = version
    return at + 1


def _frame(m: Machine, at: int) -> int:
    begin = m.need(8, at, "a frame length")
    length = int.from_bytes(m.data[at:begin], "little")
    end = m.need(length, begin, "a frame")
    if m.frame_end >= 0:
        m.ambiguous("frame", "a frame begins within another frame", at - 1)
    if len(m.frames) >= m.budgets.frames:
        raise exceeded("frames", m.budgets.frames, at - 1)
    m.frames.append((begin - m.start, length))
    m.frame_end = end
    m.limit = min(end, begin + PAUSE)
    return begin


def _stop(m: Machine, at: int) -> int:
    m.root = m.stack.pop()
    if m.stack or m.metastack:
        m.discarded = True
        m.ambiguous("leftover", "values are left on the stack at STOP", at - 1)
    if m.frame_end > at:
        m.ambiguous("frame", f"the last frame continues for {plural(m.frame_end - at, 'byte')} after STOP", at - 1)
    m.stopped = True
    m.limit = m.start
    return at


HANDLERS: dict[int, Handler] = {op.PROTO: _proto, op.FRAME: _frame, op.STOP: _stop}
