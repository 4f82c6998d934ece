"""Examines units in a process of its own: units come through its standard input, rows go through its standard output.

A frame is its length and tuples, texts and numbers as ``marshal`` writes them: nothing else can be in it, and both ends
are the same Python.
"""

from __future__ import annotations

import marshal
import os
import signal
import sys
from time import monotonic
from typing import IO, Any

_LENGTH = 8  # bytes
_EVERY = 0.1  # seconds for which rows are held back, so that those of many small checkpoints go together


def write_frame(stream: IO[bytes], said: Any) -> None:
    """Write something plain, and send it."""
    data = marshal.dumps(said)
    stream.write(len(data).to_bytes(_LENGTH, "little") + data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Any:
    """Return what was written; None at the end, also where a frame is cut off."""
    length = stream.read(_LENGTH)
    if len(length) < _LENGTH:
        return None
    expected = int.from_bytes(length, "little")
    data = stream.read(expected)
    return marshal.loads(data) if len(data) == expected else None


def main() -> None:
    """Examine what comes until nothing more does. Ctrl-C is for the process that gave it out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not come between frames
    from ckptdoctor.checkpoint import process
    from ckptdoctor.checkpoint.source import limit_rate
    from ckptdoctor.facts.siblings import listed_once
    from ckptdoctor.remote.connected import connections_kept
    from ckptdoctor.stores.listing import unit_of
    from ckptdoctor.stores.parts import result_of

    process.collect_seldom()
    known: set[int] = set()  # layouts that were sent already
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        number, units, how, rate = frame
        deep = how[0]  # then whoever waits has to know which checkpoint this is at
        limit_rate(rate)
        done, sent = [], monotonic()
        with listed_once(), connections_kept():
            for each in units:
                done.append(result_of(unit_of(each), known, how))
                if deep or monotonic() - sent > _EVERY:
                    write_frame(output, (number, tuple(done), False))
                    done, sent = [], monotonic()
        write_frame(output, (number, tuple(done), True))
