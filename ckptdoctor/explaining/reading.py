"""Reads a text of any length in bounded memory, in the encodings that shells write."""

from __future__ import annotations

import codecs
import os
import re
import sys
from collections import deque
from functools import cache
from typing import BinaryIO

from ckptdoctor.checkpoint.missing import offer
from ckptdoctor.errors import UnreadableError
from ckptdoctor.explaining.text import LongText

_CHUNK = 1 << 20
_HEAD = 8  # chunks kept of the beginning
_TAIL = 8  # chunks kept of the end

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16-le",  # > and | of Windows PowerShell
    codecs.BOM_UTF16_BE: "utf-16-be",
}


# what files with the output of a program are called; no checkpoint is
_OUTPUT = (".txt", ".log", ".out", ".err")
_SENTENCE = 4  # words from which what was typed is a text: names of files with more blanks are there to be opened
_NAME = re.compile(r"\.\w{1,12}$|[/\\]")  # fewer words that may well be a file's name: it has an ending, or a folder


def is_text(typed: str) -> bool:
    """Return whether what was typed in place of a file's name is the text itself.

    There is no such file then, and there are several words.
    """
    if "\n" in typed.strip():
        return True
    words = len(typed.split())
    return words > 1 and not os.path.exists(typed) and (words >= _SENTENCE or not _NAME.search(typed))


def is_output(path: str) -> bool:
    """Return whether a file is there that is called as those are into which programs are told to write."""
    return path.lower().endswith(_OUTPUT) and os.path.isfile(path)


def read_text(source: str) -> str:
    """Return the text in a file, of standard input for "-", or ``source`` itself where it is one.

    Raises UnreadableError.
    """
    if source == "-":
        return standard_input()
    if is_text(source):
        return source
    try:
        with open(source, "rb") as file:
            return read_pasted(file)
    except OSError as error:
        raise UnreadableError(f"{source} cannot be read: {error.strerror}.{offer(source)}") from error


def standard_input() -> str:
    """Return what comes from standard input, which can be read only once."""
    return _all_of(sys.stdin.buffer)


@cache
def _all_of(stream: BinaryIO) -> str:
    return read_pasted(stream)


def read_pasted(stream: BinaryIO) -> str:
    """Return the text; of more than 16 MB its beginning and its end."""
    head: list[bytes] = []
    tail: deque[bytes] = deque(maxlen=_TAIL)
    read = 0
    while chunk := stream.read(_CHUNK):
        read += len(chunk)
        (head if len(head) < _HEAD else tail).append(chunk)
    data = b"".join((*head, *tail))
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8")
    text = LongText(data.decode(encoding, "replace").removeprefix("\ufeff"))
    text.left_out = (read - len(data)) // (2 if encoding.startswith("utf-16") else 1)
    return text
