"""What a recogniser finds, before it becomes a container."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from ckptdoctor.checkpoint import Container, Note, Source


class Found(NamedTuple):
    """The name of what the file is ("HDF5 file"), one sentence on what opens it, and notes."""

    name: str
    guidance: str
    notes: tuple[Note, ...] = ()


def container(source: Source, head: bytes, found: Found) -> Container:
    """The container of something that is recognised but not read."""
    guidance = re.sub(r"\bFILE\b", lambda _: shlex.quote(source.path), found.guidance)
    return Container(source.path, source.size, found.name, head, False, guidance, found.notes, source.identity)


def shortened(text: str, most: int = 120) -> str:
    """Text from a file on one line, for a message."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
