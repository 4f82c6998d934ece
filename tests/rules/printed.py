"""The commands that ``check`` and ``fix`` print: found in their text, and run as a shell would."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ckptdoctor.cli.main import run

# how a sentence goes on behind a command; what follows one that is quoted, or ends its line, is no part of it anyway
_GOES_ON = ("which", "says", "takes", "saves", "keeps", "makes", "reads", "tells", "first", "or", "and")
_COMMAND = re.compile(
    r"(?P<quote>[`(]?)(?P<line>ckptdoctor (?:check|fix|convert|salvage|graft|merge|diff|show|explain) .*)"
)
_CLOSING = {"`": "`", "(": ")"}
# what only the reader knows: another file, their own code
UNKNOWN = ("OTHER", "MODULE:CLASS", "alpha=N")
# what stands for nothing that the reader could know better than the tool
PLACEHOLDERS = re.compile(r"(?:^|[\s=/'\"(])(?:FILE|KEY|PATH|FOLDER|OUT|NAME|TEXT|N|NEW|\.\.\.|…)(?:$|[\s.,;'\")])")


@dataclass(frozen=True)
class Printed:
    """One command as it was printed: the words, the text in front of it on its line, and the line above."""

    words: tuple[str, ...]
    line: str
    before: str
    above: str


@dataclass(frozen=True)
class Said:
    """What a command came to."""

    status: int
    text: str


def commands(text: str) -> Iterator[Printed]:
    """Every command in a text, each where it begins."""
    above = ""
    for row in text.splitlines():
        rest, before = row, ""
        while found := _COMMAND.search(rest):
            before += rest[: found.start("line")]
            line = _whole(found["line"], found["quote"])
            yield Printed(tuple(shlex.split(line)), line, before, above)
            before += line
            rest = rest[found.start("line") + len(line) :]
        above = row


def _whole(line: str, quote: str) -> str:
    """The command without the sentence that it stands in."""
    if quote:
        return line.partition(_CLOSING[quote])[0]
    ends = [found.start() for word in _GOES_ON if (found := re.search(rf",? {word} ", line))]
    again = re.search(r".(?=ckptdoctor )", line)
    line = line[: min(ends + ([again.start()] if again else []), default=len(line))]
    sentence = re.search(r"[.;] (?=[A-Z])", line)
    return re.sub(r"(?<=\S)[.,;:]+$", "", line[: sentence.start()] if sentence else line)


def said(*arguments: str) -> Said:
    """What ``ckptdoctor`` says to these arguments, in the current folder."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = run(list(arguments))
    return Said(int(status), out.getvalue())


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    """While this lasts, the folder is the current one; what it did not hold before is gone again afterwards."""
    before, known = os.getcwd(), _files(folder)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        for path in _files(folder) - known:
            path.unlink()


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() or path.is_symlink()}
