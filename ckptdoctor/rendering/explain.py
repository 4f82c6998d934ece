"""Explains a message to people, with its rule, its cause and what to do; and the same as JSON."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from ckptdoctor.edits import Safety
from ckptdoctor.explaining.explanation import Explanation, rule_name
from ckptdoctor.explaining.recognise import Hit
from ckptdoctor.findings import FileReport, Severity
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.json import SCHEMA, dump
from ckptdoctor.rendering.numbers import plural
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.shell import fix_command, fix_with, quote, with_path
from ckptdoctor.rendering.wrapping import abridged, wrapped
from ckptdoctor.rules.messages import CHECK, Way

_WORDS = 240  # characters of a message that are quoted


def as_text(
    explained: Explanation, documented: Collection[str], paint: Paint | None = None, width: int | None = None
) -> str:
    """Return the root first, the others as notes. ``documented`` are the codes that have a page of their own."""
    return "\n".join(_lines(explained, documented, paint or Paint(), width))


def _lines(explained: Explanation, documented: Collection[str], paint: Paint, width: int | None) -> Iterator[str]:
    root, *others = explained.hits
    yield from _hit(root, explained, documented, paint, width)
    yield from _verdict(explained, paint, width)
    whole = _all_at_once("all at once", explained)
    if explained.repair is not None and whole is not None:
        yield from wrapped(escape(explained.repair.says), width, "  ", "    ")
        yield from _ways((whole,), explained, root, paint, width)
    for number, other in enumerate(others):
        yield ""
        if number == 0:
            yield "The text also says:"
        yield from _hit(other, explained, documented, paint, width, same_words=other.words == root.words)
    if explained.source is None and any("TEXT" in way.command for hit in explained.hits for way in hit.ways):
        yield paint.dim(f"{SAVED} stands for your text: save it under this name first.")
    if explained.left_out:
        yield paint.dim(_left_out(explained))


def brief(explained: Explanation, report: FileReport | None, width: int, lines: int) -> list[str]:
    """Return the first cause in at most so many lines, and below it one thing to do, which is never cut.

    ``report`` is that of the file, where one was examined.
    """
    root = explained.hits[0]
    rule = f"{root.code} {rule_name(root.code)} · " if root.code else ""
    told = wrapped(f"ckptdoctor: {rule}{escape(root.meaning)}", width, "", "  ")
    if explained.verdict is not None and explained.verdict.confirmed:
        told += wrapped(escape(explained.verdict.why), width, "  ", "  ")
    if explained.repair is not None:
        told += wrapped(escape(explained.repair.says), width, "  ", "  ")
    if len(told) > lines:
        told = [*told[: lines - 1], f"  … more: ckptdoctor explain {root.code}" if root.code else "  …"]
    todo = _all_at_once("repair it", explained) or _to_do(root, explained, report)
    return [*told, f"  {todo.label}:   {escape(todo.command)}"] if todo is not None else told


def _all_at_once(label: str, explained: Explanation) -> Way | None:
    """Return the command that does all that the file needs, where it is known."""
    if explained.repair is None or explained.file is None:
        return None
    return Way(label, fix_with(explained.file, *explained.repair.options))


def _to_do(root: Hit, explained: Explanation, report: FileReport | None) -> Way | None:
    """Return one thing to do: the repair that the examination found, or what the message asks for.

    A command that needs the text as a file, or to be told of a model, comes after any other.
    """
    findings = report.findings if report is not None else ()
    finding = next((each for each in findings if each.code in (root.code, *root.also)), None)
    if report is not None and finding is not None:
        if finding.fix is not None and finding.fix.safety is Safety.SAFE:
            return Way("repair it", fix_command(report.path, finding.fix))
        found = re.search(r"ckptdoctor (?:salvage|merge|convert|graft|fix) FILE(?! --from)", finding.advice)
        commands = (*finding.commands, *([found[0]] if found is not None else ()))
        if commands:
            salvages = commands[0].startswith("ckptdoctor salvage")
            label = "copy or download it again, or recover what is intact" if salvages else "what helps"
            return Way(label, with_path(commands[0], report.path))
    ways = sorted(root.ways, key=lambda way: "TEXT" in way.command or "MODULE:CLASS" in way.command)
    if not ways:
        return None
    way = CHECK if "TEXT" in ways[0].command else ways[0]
    return Way(way.label, filled(way.command, explained, root))


def nothing(explained: Explanation, text_name: str) -> str:
    """Return the sentence for a text in which no message is known."""
    read = f"Read {plural(explained.lines, 'line')} from {text_name}, but recognised no message about a checkpoint."
    target = quote(explained.file) if explained.file is not None else "FILE"
    lines = [escape(read), f"The file itself may show it:   ckptdoctor check {target}"]
    if explained.left_out:
        lines.insert(1, f"{_left_out(explained)} Keep the part of it with the error.")
    return "\n".join(lines)


def _left_out(explained: Explanation) -> str:
    many = explained.left_out != 1
    return (
        f"The {plural(explained.left_out, 'character')} in the middle of the text {'were' if many else 'was'} not read."
    )


def filled(command: str, explained: Explanation, hit: Hit) -> str:
    """Return a command of a message with the checkpoint and the text for FILE and TEXT, as a shell takes it."""
    named = {"FILE": quote(_file(explained, hit) or "FILE"), "TEXT": quote(explained.source or SAVED)}
    return _PLACES.sub(lambda place: named[place[0]], command)


def _file(explained: Explanation, hit: Hit) -> str | None:
    """Return the file that the person named, else the one that the text names for this message."""
    return explained.file if explained.given else hit.file


SAVED = "error.txt"  # what the text is called in commands when it did not come from a file
_PLACES = re.compile(r"\b(?:FILE|TEXT)\b")


def _hit(
    hit: Hit,
    explained: Explanation,
    documented: Collection[str],
    paint: Paint,
    width: int | None,
    same_words: bool = False,
) -> Iterator[str]:
    if not same_words:
        yield from (paint.dim(line) for line in wrapped(abridged(escape(hit.words), _WORDS), width, "", "  "))
    rule = f"{hit.code} {rule_name(hit.code)}" if hit.code else "no rule of its own"
    first, *more = wrapped(f"{rule} · {escape(hit.meaning)}", width, "", "  ")
    yield first.replace(rule, paint.severity(Severity.ERROR, rule), 1) if hit.code else first
    yield from more
    page = (Way("more about it", f"ckptdoctor explain {hit.code}"),) if hit.code in documented else ()
    yield from _ways((*hit.ways, *page), explained, hit, paint, width)


def _ways(ways: tuple[Way, ...], explained: Explanation, hit: Hit, paint: Paint, width: int | None) -> Iterator[str]:
    room = max([len(way.label) for way in ways], default=0)
    named = False
    for way in ways:
        command = filled(way.command, explained, hit)
        file = _file(explained, hit)
        from_text = "FILE" in way.command and file is not None and not explained.given
        told = f"        ({escape(file or '')}: the file named in your text)" if from_text and not named else ""
        named = named or bool(told)
        label = f"  {way.label:<{room}}   "
        if width is not None and len(label) + len(command) + len(told) > width:
            yield label.rstrip() if len(label) + len(command) > width else f"{label}{paint.accent(escape(command))}"
            if len(label) + len(command) > width:
                yield f"    {paint.accent(escape(command))}"
            if told:
                yield from (paint.dim(line) for line in wrapped(told.strip(), width, "    "))
        else:
            yield f"{label}{paint.accent(escape(command))}{paint.dim(told)}"


def _verdict(explained: Explanation, paint: Paint, width: int | None) -> Iterator[str]:
    if explained.verdict is None:
        return
    word = {True: "confirmed: ", False: "not confirmed: ", None: "open: "}[explained.verdict.confirmed]
    for line in wrapped(word + escape(explained.verdict.why), width, "  ", "    "):
        yield paint.strong(line)


def as_json(explained: Explanation, documented: Collection[str]) -> str:
    """Return the document: what was read, the file that the text is about, and the causes, the root first."""
    verdict = explained.verdict
    return dump(
        {
            "schema": SCHEMA,
            "lines": explained.lines,
            "characters_left_out": explained.left_out,
            "file": explained.file,
            "explanations": [_hit_as_json(hit, explained, documented) for hit in explained.hits],
            "repair": whole.command if (whole := _all_at_once("", explained)) is not None else None,
            "verdict": {"confirmed": verdict.confirmed, "why": verdict.why} if verdict is not None else None,
        }
    )


def _hit_as_json(hit: Hit, explained: Explanation, documented: Collection[str]) -> dict[str, object]:
    return {
        "code": hit.code or None,
        "name": rule_name(hit.code) if hit.code else None,
        "words": hit.words,
        "meaning": hit.meaning,
        "ways": [{"label": way.label, "command": filled(way.command, explained, hit)} for way in hit.ways],
        "may_also_be": list(hit.also),
        "documented": hit.code in documented,
    }
