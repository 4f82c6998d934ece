"""The text of a failure is made comparable: it loses its colours, the prefixes of loggers and ranks, and its blanks."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate

from ckptdoctor.noun import noun

_PART = 8_000_000  # characters kept of the beginning and of the end of a longer text
_LINES = 100_000  # lines kept of the beginning and of the end
_PREFIXES = 4  # a line may carry several: "2024-05-01 12:00:00 ERROR [rank0]: "

_ANSI = re.compile(r"\x1b\[[0-?]{0,50}[ -/]{0,5}[@-~]|\x1b\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
_BARE_ANSI = re.compile(r"(?:\^\[)?\[\d{1,3}(?:;\d{1,3}){0,4}m")  # colours whose escape character a log has lost
_PREFIX = re.compile(
    r"""\s*(?:
        \[(?:default|rank|Rank\ |GPU)?\d{1,5}\]:?           # torchrun: [rank0]:
      | \d{1,5}:(?=\s)                                      # srun --label
      | \[\d{1,5},\d{1,5}\]<std(?:err|out)>:                # mpirun
      | \[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?\]?(?=\W)
      | \[?\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\]?(?=\s)
      | \[?(?:ERROR|WARNING|WARN|INFO|DEBUG|CRITICAL|FATAL|stderr|stdout)\]?\s{0,4}[:|\]-]\s
      | \[?(?:ERROR|WARNING|WARN|INFO|DEBUG|CRITICAL|FATAL)\]?(?=\s\s|\s\[)
      | \([\w ]{0,40}pid=\d{1,9}[^()]{0,80}\)               # ray
      | [\w.-]{1,60}[-_]\d{1,4}\s{0,20}\|                   # docker compose
      | [>|│┃]                                              # quoted mail, boxes
    )\s?""",
    re.VERBOSE,
)


@noun(eq=False)
class PastedText:
    """A text as ``lines`` without decoration, and ``squeezed``: all of them without any white space.

    Terminals, loggers and copying break messages anywhere, so messages are looked for in ``squeezed``.
    ``left_out`` counts the characters in the middle of a very long text that were not read.
    """

    lines: tuple[str, ...]
    squeezed: str
    starts: tuple[int, ...]  # where each line begins in ``squeezed``
    left_out: int = 0

    def line_at(self, offset: int) -> int:
        """Return the number of the line that holds this offset of ``squeezed``."""
        return max(bisect_right(self.starts, offset) - 1, 0)

    def original(self, start: int, end: int) -> str:
        """Return the text between two offsets of ``squeezed``, with its blanks, on one line."""
        if end <= start:
            return ""
        first, last = self.line_at(start), self.line_at(end - 1)
        pieces = [self._piece(number, start, end) for number in range(first, last + 1)]
        return " ".join(pieces)

    def part(self, start: int, end: int) -> PastedText:
        """Return the lines that hold what is between two offsets of ``squeezed``, and of that no more."""
        if end <= start:
            return PastedText((), "", ())
        first, last = self.line_at(start), self.line_at(end - 1)
        starts = tuple([at - start for at in self.starts[first : last + 1]])
        return PastedText(self.lines[first : last + 1], self.squeezed[start:end], starts, self.left_out)

    def _piece(self, number: int, start: int, end: int) -> str:
        """Return the part of one line between the two offsets, with each run of blanks as one."""
        at = self.starts[number]
        words = []
        for word in self.lines[number].split():
            if at >= end:
                break
            words.append(word[max(start - at, 0) : end - at])
            at += len(word)
        return " ".join([word for word in words if word])


# what word processors, chats and web pages make of quotes, colons and brackets
_QUOTES = {
    **dict.fromkeys(map(ord, "“”„‟«»″＂❝❞〝〞"), '"'),
    **dict.fromkeys(map(ord, "‘’‚‛‹›′＇❛❜"), "'"),
    **{ord(wide): narrow for wide, narrow in zip("：；，．。（）［］｛｝＜＞＝／＿", ":;,..()[]{}<>=/_", strict=True)},
    **dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"), None),
}
_ENTITIES = {
    "&quot;": '"',
    "&#34;": '"',
    "&#39;": "'",
    "&apos;": "'",
    "&#x27;": "'",
    "&lt;": "<",
    "&gt;": ">",
    "&nbsp;": " ",
}


def _typed(raw: str) -> str:
    """Return the text as it was before it was pasted through something that sets type."""
    if "&" in raw:
        for entity, character in (*_ENTITIES.items(), ("&amp;", "&")):
            raw = raw.replace(entity, character)
    return raw if raw.isascii() else raw.translate(_QUOTES)


class LongText(str):
    """A text from the middle of which so many characters are missing already."""

    left_out: int = 0


def squeeze(text: str) -> str:
    """Return ``text`` without white space."""
    return "".join(text.split())


def cleaned(raw: str) -> PastedText:
    """Return the text as people mean it. Of more than 16 million characters the middle is left out."""
    beyond = max(len(raw) - 2 * _PART, 0)
    left_out = beyond + (raw.left_out if isinstance(raw, LongText) else 0)
    if beyond:
        raw = f"{raw[:_PART]}\n{raw[-_PART:]}"
    raw = _typed(_BARE_ANSI.sub("", _ANSI.sub("", raw))).replace('\\"', '"').replace("\\'", "'")
    lines = tuple(_kept(raw.splitlines()))
    parts = [squeeze(line) for line in lines]
    starts = tuple(accumulate(map(len, parts), initial=0))[: len(parts)]
    return PastedText(lines, "".join(parts), starts, left_out)


def _kept(lines: list[str]) -> Iterator[str]:
    chosen: Iterable[str] = lines if len(lines) <= 2 * _LINES else [*lines[:_LINES], *lines[-_LINES:]]
    for line in chosen:
        if line and not line.isspace():
            yield _bare(line)


def _bare(line: str) -> str:
    for _ in range(_PREFIXES):
        found = _PREFIX.match(line)
        if found is None:
            break
        line = line[found.end() :]
    return line.rstrip(" │┃|") if line.endswith(("│", "┃")) else line
