"""Renders what an audit found in stores: what is broken and what helps, where the space is, what is there twice."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ckptdoctor.checkpoint.process import complete
from ckptdoctor.crash import here
from ckptdoctor.findings import Severity
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.json import SCHEMA, dump
from ckptdoctor.rendering.numbers import count, size
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.shell import quote, with_path, word
from ckptdoctor.stores.audit import Audited
from ckptdoctor.stores.summary import Space, Summary, Twice
from ckptdoctor.wording import first_few, plural

_HEALTH = {
    "clean": "without findings",
    "warning": "with warnings",
    "error": "that load only after a repair",
    "broken": "broken",
    "unreadable": "unreadable",
    "weightless": "without weights",
    "unfinished": "unfinished",
}
_NAMED = 5  # folders, errors and runs that are named


def told(audited: Audited, summary: Summary, paint: Paint) -> str:
    """All of it as text: the most urgent first."""
    parts = [
        list(_head(audited, summary)),
        list(_problems(summary, paint)),
        list(_space(summary)),
        list(_twice(summary)),
        list(_not_examined(audited)),
    ]
    return "\n\n".join("\n".join(each) for each in parts if each)


def near_here(path: str) -> str:
    """Return a path as it is typed here: below this folder without what leads to it."""
    current = here()
    folder = os.path.join(current, "") if current is not None else path
    return path[len(folder) :] if path.startswith(folder) and len(path) > len(folder) else path


def _near(path: str) -> str:
    return escape(near_here(path))


def _head(audited: Audited, summary: Summary) -> Iterator[str]:
    parts = [
        plural(summary.checkpoints, "checkpoint"),
        plural(summary.runs, "run"),
        _room(summary.bytes, summary.blocks),
    ]
    yield f"{escape(audited.output)}: {', '.join(parts)}"
    known = [f"{count(summary.health[each])} {words}" for each, words in _HEALTH.items() if each in summary.health]
    if known:
        yield f"  {', '.join(known)}; {count(summary.resumable)} that training can resume from"
    if summary.disagreements:
        yield f"  {plural(summary.disagreements, 'name')} with another step than the contents"
    if not audited.stores:  # databases were put together
        return
    depth = (
        "every byte"
        if audited.deep == "all"
        else f"headers and bytes ({audited.deep})"
        if audited.deep
        else "headers only"
    )
    examined = f"{count(audited.examined)} examined, {count(audited.unchanged)} unchanged"
    gone = f", {count(audited.removed)} no longer there" if audited.removed else ""
    yield f"  {examined}{gone}, {depth}, in {_seconds(audited.seconds)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:,.1f} min"


def _problems(summary: Summary, paint: Paint) -> Iterator[str]:
    for each in summary.problems:
        kind = paint.severity(Severity(each.severity), f"{each.code} {each.name}")
        yield f"{kind}: {plural(each.checkpoints, 'checkpoint')}, such as {_near(each.example)}"
        yield f"  {escape(each.message)}"
        fix = [f"ckptdoctor fix FILE {each.fix}"] if each.fix else []
        for command in [*fix, *each.commands][:2]:
            yield f"  {paint.accent(escape(complete(with_path(command, near_here(each.example)))))}"
        if each.advice and not fix and not each.commands:
            yield f"  {escape(with_path(each.advice, near_here(each.example)))}"
    broken = [f"  {_near(path)}: {escape(trouble)}" for path, trouble in summary.broken]
    if broken:
        yield f"{plural(len(broken), 'checkpoint is', 'checkpoints are')} broken:"
        yield from first_few(broken, _NAMED, before="  and ")
    errors = [f"  {_near(path)}: {escape(error)}" for path, error in summary.errors]
    if errors:
        yield f"{plural(len(errors), 'checkpoint')} could not be examined:"
        yield from first_few(errors, _NAMED, before="  and ")


def _space(summary: Summary) -> Iterator[str]:
    if summary.by_run:
        yield "Space by run:"
        yield from _table(summary.by_run)
    if len(summary.by_owner) > 1:
        yield "Space by owner:"
        yield from _table(summary.by_owner)
    if summary.optimizer_bytes:
        yield f"{size(summary.optimizer_bytes)} are only needed to resume training."
    number, nbytes = summary.wasted
    if nbytes:
        have = plural(number, "checkpoint has", "checkpoints have")
        yield f"{have} float32 weights that bfloat16 holds exactly: casting them frees {size(nbytes)}."


def _table(rows: tuple[Space, ...]) -> Iterator[str]:
    rooms = [_room(each.bytes, each.blocks) for each in rows]
    numbers = [plural(each.checkpoints, "checkpoint") for each in rows]
    for each, room, number in zip(rows, rooms, numbers, strict=True):
        yield f"  {number:>{max(map(len, numbers))}}  {room:<{max(map(len, rooms))}}  {_near(each.name) or 'unknown'}"


def _room(nbytes: int, blocks: int | None) -> str:
    """Return how much room something takes, and on disk where that is another amount."""
    if blocks is None or size(blocks) == size(nbytes):
        return size(nbytes)
    return f"{size(nbytes)} ({size(blocks)} on disk)"


def _twice(summary: Summary) -> Iterator[str]:
    if summary.duplicates.groups:
        number = plural(summary.duplicates.spare_checkpoints, "checkpoint holds", "checkpoints hold")
        yield f"{number} the same tensors as another, by their CRC32: {size(summary.duplicates.spare)}"
        yield from _example(summary.duplicates)
    if summary.same_weights.groups:
        number = plural(summary.same_weights.spare_checkpoints, "checkpoint has", "checkpoints have")
        yield f"{number} the weights of another with other contents"
        yield from _example(summary.same_weights)
    for each in summary.unchanged[:_NAMED]:
        same, of = count(len(each.keys)), count(each.of)
        yield f"{same} of {of} tensors never changed in {plural(each.checkpoints, 'checkpoint')} of {_near(each.run)}"


def _example(twice: Twice) -> Iterator[str]:
    if len(twice.example) == 2:
        one, other = twice.example
        yield f"  such as {_near(one)} and {_near(other)}"


def _not_examined(audited: Audited) -> Iterator[str]:
    unlisted = [f"  {_near(folder)}: {escape(why)}" for folder, why in audited.unlisted]
    if unlisted:
        yield f"{plural(len(unlisted), 'folder')} not looked into:"
        yield from first_few(unlisted, _NAMED, before="  and ")
    parts = plural(audited.others, "file") if audited.others else ""
    more = f", {parts} named as parts of checkpoints that are next to none" if parts else ""
    if not audited.deep and audited.stores:
        yield f"Not examined: checksums and values{more}."
    elif parts:
        yield f"Not examined: {more.removeprefix(', ')}."


def resume_command(audited: Audited) -> str:
    """The sentence after Ctrl-C: what is done, and what goes on with the rest."""
    names = " ".join(map(quote, map(near_here, audited.stores)))
    options = [f"--deep {audited.deep}"] if audited.deep else []
    options += [f"--shard {audited.shard}"] if audited.shard else []
    options += [f"--limit-rate {audited.limit_rate:.0f}"] if audited.limit_rate else []
    options += [f"--engine {word(audited.engine)}"] if audited.engine != "local" else []
    command = complete(" ".join(["ckptdoctor audit", names, f"-o {quote(audited.output)}", *options]))
    if audited.cut:  # nobody knows of how many
        done = f"{plural(audited.examined, 'checkpoint')} examined before all were listed"
    else:
        done = f"{count(audited.examined)} of {plural(audited.examined + audited.waiting, 'checkpoint')} examined"
    return f"Interrupted: {done}, and kept in {audited.output}. To go on: {command}"


def as_json(audited: Audited, summary: Summary, version: str) -> str:
    """The same, schema ``ckptdoctor/1``."""
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "output": audited.output,
            "stores": list(audited.stores),
            "listed": audited.listed,
            "examined": audited.examined,
            "unchanged": audited.unchanged,
            "removed": audited.removed,
            "waiting": audited.waiting,
            "interrupted": audited.interrupted,
            "unlisted": [{"path": path, "why": why} for path, why in audited.unlisted],
            "others": audited.others,
            "deep": audited.deep,
            "shard": audited.shard,
            "engine": audited.engine,
            "seconds": round(audited.seconds, 3),
            "checkpoints": summary.checkpoints,
            "runs": summary.runs,
            "bytes": summary.bytes,
            "blocks": summary.blocks,
            "resumable": summary.resumable,
            "optimizer_bytes": summary.optimizer_bytes,
            "wasted": {"checkpoints": summary.wasted[0], "bytes": summary.wasted[1]},
            "health": summary.health,
            "problems": [
                {
                    "code": each.code,
                    "name": each.name,
                    "severity": each.severity,
                    "checkpoints": each.checkpoints,
                    "example": each.example,
                    "message": each.message,
                    "advice": with_path(each.advice, each.example),
                    "commands": [with_path(command, each.example) for command in each.commands],
                    "fix": each.fix or None,
                }
                for each in summary.problems
            ],
            "errors": [{"path": path, "error": error} for path, error in summary.errors],
            "broken": [{"path": path, "trouble": trouble} for path, trouble in summary.broken],
            "by_run": [_room_json(each) for each in summary.by_run],
            "by_owner": [_room_json(each) for each in summary.by_owner],
            "duplicates": _twice_json(summary.duplicates),
            "same_weights": _twice_json(summary.same_weights),
            "unchanged_tensors": [
                {"run": each.run, "checkpoints": each.checkpoints, "keys": list(each.keys), "of": each.of}
                for each in summary.unchanged
            ],
            "disagreements": summary.disagreements,
            "exported": None if audited.exported is None else audited.exported.folder,
        }
    )


def _room_json(space: Space) -> dict[str, object]:
    return {
        "name": space.name,
        "checkpoints": space.checkpoints,
        "bytes": space.bytes,
        "blocks": space.blocks,
        "optimizer_bytes": space.optimizer_bytes,
    }


def _twice_json(twice: Twice) -> dict[str, object]:
    return {
        "groups": twice.groups,
        "spare_checkpoints": twice.spare_checkpoints,
        "spare_bytes": twice.spare,
        "example": list(twice.example),
    }
