"""A text is explained: its causes, the file that it is about, and what that file says to it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ckptdoctor.explaining import other_messages
from ckptdoctor.explaining.recognise import Hit, recognised
from ckptdoctor.explaining.text import PastedText, cleaned
from ckptdoctor.noun import noun, replace
from ckptdoctor.rules.registry import find_rule


@noun
class Confirmation:
    """What a file says to an explanation: confirmed (None: it cannot tell), and why in one sentence."""

    confirmed: bool | None
    why: str


@noun
class OneRepair:
    """The options of one repair after which a file is known to load, and a sentence, without a full stop, that says so.

    Several of its steps alone would each lead to another error.
    """

    options: tuple[str, ...]
    says: str


@noun
class Explanation:
    """The causes, the root first, of a text of so many lines. ``file`` is the checkpoint that it is about, if known.

    ``given`` says that the person named the file, not the text. ``verdict`` is about the root. ``source`` is the file
    that the text was read from, if it was one. ``repair`` does all that the file needs, where that is known.
    """

    hits: tuple[Hit, ...]
    lines: int
    left_out: int
    file: str | None = None
    given: bool = False
    verdict: Confirmation | None = None
    source: str | None = None
    repair: OneRepair | None = None


def explain(raw: str, file: str | None = None, source: str | None = None) -> Explanation:
    """Return what the text means.

    ``file`` is the checkpoint that it is about, ``source`` the text's own file, where known.
    """
    text = cleaned(raw)
    # where keys are missing and nothing else explains it, one shard may have been loaded as if it were the whole model
    hits = tuple([replace(hit, also=(*hit.also, "X816")) if hit.code == "R001" else hit for hit in recognised(text)])
    if file is not None or not hits:
        named = source_file(text) if file is None else file
        return Explanation(hits, len(text.lines), text.left_out, named, file is not None, None, source)
    # an output may hold several errors, each about a file of its own
    hits = tuple([replace(hit, file=_file_of(hit, text)) for hit in hits])
    return Explanation(hits, len(text.lines), text.left_out, hits[0].file, False, None, source)


def _file_of(hit: Hit, text: PastedText) -> str | None:
    """Return the file that a message is about.

    Where shards are missing, it is the folder, which has the others and their index: the one that is named is not
    there.
    """
    named = source_file(text, hit.offset)
    if named is not None and hit.code == "X801" and _SHARD.search(named):
        return os.path.dirname(named) or "."
    return named


def rule_name(code: str) -> str:
    """Return the name of the rule that a message speaks of, or of what no rule looks for."""
    rule = find_rule(code)
    return rule.name if rule is not None else other_messages.NAMES[code]


# ---- which file a traceback is about: as its messages name it, as its source lines do, or by its ending


_SHARD = re.compile(r"-\d{5}-of-\d{5}\.")
_ENDINGS = r"(?:safetensors|pth\.tar|ckpt|pth|pt|bin|pkl)"
_NAME = r"(?P<quote>[\"'])(?P<path>[^\"'\n]{1,1000})(?P=quote)"
_CALL = re.compile(
    r"(?:torch\.load|jit\.load|load_file|safe_open|load_from_checkpoint|load_checkpoint|torch_load|joblib\.load)"
    rf"\(\s{{0,20}}(?:\w{{1,20}}\s?=\s?)?(?:open\(\s?)?(?P<kind>[rRbBuUfF]{{0,2}}){_NAME}"
)
_SECOND = re.compile(rf"load_model\([^\"'()\n]{{1,60}},\s{{0,20}}(?P<kind>[rRbBuUfF]{{0,2}}){_NAME}")
_FROM = re.compile(rf"from_pretrained\(\s{{0,20}}(?P<kind>[rRbBuUfF]{{0,2}}){_NAME}")
_SAID = (
    re.compile(rf"(?:No such file or directory|Permission denied|Is a directory):\s{{0,4}}(?P<kind>){_NAME}"),
    re.compile(rf"No such file or directory:\s{{0,4}}(?P<path>[^\s\"'][^\n\"']{{0,1000}}?\.{_ENDINGS})(?![\w.])"),
    re.compile(rf"checkpoint file for ['\"][^'\"\n]{{1,1000}}['\"] at (?P<kind>){_NAME}"),
    re.compile(rf"checkpoint file for (?P<kind>){_NAME}(?! at )"),
)
_ENDING = re.compile(rf"\.{_ENDINGS}(?![\w.])|\.{_ENDINGS}(?=\.?$)")
_MEMBER = re.compile(r"(?:locating file|file not found:|getRecord\w*)\s{0,4}[\"']?$")  # of an archive, not the archive
_JOINED = re.compile(r"\+\s{0,4}[\"']$")  # the end of a name that an expression puts together
_DRIVE = re.compile(r"(?<!\w)[A-Za-z]:$")
_SAVES = re.compile(r"\b(?:save(?:_file|_model|_checkpoint|_pretrained)?|dump)\(")
_STOPS = re.compile(r"[\s\"'`=:,;(){}\[\]<>|]")


@noun
class _Candidate:
    trust: int  # higher is better
    line: int
    path: str


def source_file(text: PastedText, offset: int | None = None) -> str | None:
    """Return the path of the checkpoint that the text is about, or None when it names none, or more than one on a par.

    ``offset`` is where the message is (in the squeezed text): of several files the nearest above it is meant.
    """
    found = list(_candidates(text))
    if not found:
        return None
    best = [each for each in found if each.trust == max(each.trust for each in found)]
    if best[0].trust == 0:
        return best[0].path if len({each.path for each in best}) == 1 else None
    line = text.line_at(offset) if offset is not None else len(text.lines)
    above = [each for each in best if each.line <= line]
    return (above[-1] if above else best[0]).path


def _candidates(text: PastedText) -> Iterator[_Candidate]:
    top = 0
    saving = any(_SAVES.search(line) for line in text.lines)
    for number, line in enumerate(text.lines):
        for each in _in_line(number, line):
            if each.trust == 0 and saving and (_SAVES.search(line) or not os.path.exists(each.path)):
                continue  # the output of what failed to save it
            top = max(top, each.trust)
            if each.trust == top:
                yield each


def _in_line(number: int, line: str) -> Iterator[_Candidate]:
    if "load" in line or "safe_open" in line or "from_pretrained" in line:
        for pattern in (_CALL, _SECOND):
            for found in pattern.finditer(line):
                if _literal(found):
                    yield _Candidate(3, number, _path(found))
        for found in _FROM.finditer(line):
            if _literal(found) and found["path"].startswith((".", "/", "~")):
                yield _Candidate(2, number, _path(found))
    for pattern in _SAID:
        for found in pattern.finditer(line):
            if re.search(rf"\.{_ENDINGS}$", found["path"]) or "checkpoint file for" in found[0]:
                yield _Candidate(3, number, found["path"])
    yield from _by_ending(number, line)


def _by_ending(number: int, line: str) -> Iterator[_Candidate]:
    if "no file named" in line or "a file named" in line:  # names that were looked for, not found
        return
    for found in _ENDING.finditer(line):
        before = line[max(found.start() - 300, 0) : found.start()]
        stem = _STOPS.split(before)[-1]
        rest = before[: len(before) - len(stem)]
        if rest.endswith(("}", ")")) or _JOINED.search(rest) or _MEMBER.search(rest):
            continue
        drive = _DRIVE.search(rest) if stem.startswith("\\") else None
        stem = f"{drive[0]}{stem}" if drive is not None else stem
        if stem.strip("./-*") and not stem.startswith(("http", "//")):
            yield _Candidate(0, number, stem + found[0])


def _literal(found: re.Match[str]) -> bool:
    """Return whether the text is the path itself, not a format string or a web address."""
    return "f" not in found["kind"].lower() and "{" not in found["path"] and "://" not in found["path"]


def _path(found: re.Match[str]) -> str:
    path = found["path"]
    return path if "r" in found["kind"].lower() else path.replace("\\\\", "\\")
