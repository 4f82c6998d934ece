"""Asks an inventory for what a page about its stores shows: health over time, what is broken, space, duplicates, runs.

Every list has a limit, and says how much it leaves out: the inventory may hold a million checkpoints.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from datetime import datetime, timezone

from ckptdoctor.noun import noun, replace
from ckptdoctor.stores.schema import APPLICATION, open_inventory
from ckptdoctor.stores.summary import CODE

# how a checkpoint is, the best first
HEALTH = ("clean", "warning", "error", "weightless", "broken", "unreadable", "unfinished")
_BINS = 60  # of time, at most
_PROBLEMS = 200
_BROKEN = 1_000
_DUPLICATES = 200
_PATHS = 4  # of one duplicate
_RUNS = 4_000
_OWNERS = 30
_FOLDERS = 20_000


@noun
class Totals:
    """Sums over all checkpoints, in numbers and bytes.

    ``blocks`` is what they take on the disk, None if unknown; ``wasted_bytes`` what bfloat16 would save without loss.
    """

    checkpoints: int
    runs: int
    size: int
    blocks: int | None
    optimizer_bytes: int
    invalid: int
    spare_bytes: int
    wasted_bytes: int = 0


@noun
class Period:
    """The checkpoints that were changed last in a time from ``start`` on: how many there are of each health."""

    start: str
    counts: tuple[int, ...]


@noun
class Problem:
    """What several checkpoints have: a rule's finding, or why they could not be examined."""

    code: str
    name: str
    severity: str
    message: str
    checkpoints: int
    size: int


@noun
class Broken:
    """A checkpoint that is not valid, and why.

    ``advice`` and ``command`` are those of the finding that says so, or "": FILE in them is ``member``.
    """

    path: str
    health: str
    trouble: str
    size: int
    member: str
    advice: str
    command: str


@noun
class Duplicate:
    """Checkpoints with the same contents; ``paths`` are the first of them."""

    copies: int
    size: int
    spare_bytes: int
    paths: tuple[str, ...]


@noun
class RunRow:
    """One run, with its newest valid checkpoint and the newest that training can resume from, "" if none."""

    path: str
    checkpoints: int
    invalid: int
    size: int
    optimizer_bytes: int
    newest: str = ""
    step: int | None = None
    level: int | None = None
    resumable: str = ""


@noun
class Overview:
    """All of it. ``folders`` are the bytes directly in each run; ``left_out`` counts what lists do not show."""

    inventory: str
    stores: tuple[str, ...]
    when: str
    deep: str
    complete: bool
    unlisted: tuple[tuple[str, str], ...]
    totals: Totals
    periods: tuple[Period, ...]
    problems: tuple[Problem, ...]
    broken: tuple[Broken, ...]
    duplicates: tuple[Duplicate, ...]
    runs: tuple[RunRow, ...]
    owners: tuple[tuple[str, int, int], ...]
    folders: tuple[tuple[str, int], ...]
    left_out: tuple[tuple[str, int], ...]


def is_inventory(path: str) -> bool:
    """Return whether a file is what ``audit`` writes, by its first bytes: https://www.sqlite.org/fileformat2.html."""
    try:
        with open(path, "rb") as file:
            head = file.read(72)
    except OSError:  # whoever opens it as a checkpoint says why
        return False
    return head.startswith(b"SQLite format 3\0") and head[68:72] == APPLICATION.to_bytes(4, "big")


def overview(inventory: str) -> Overview:
    """Return what a page about an inventory shows. Raises UnreadableError for what is not one."""
    with closing(open_inventory(inventory)) as rows:
        audits = rows.execute("SELECT * FROM audit ORDER BY started DESC").fetchall()
        totals = _totals(rows)
        runs, broken = _runs(rows), _broken(rows)
        duplicates = _duplicates(rows)
        (groups,) = rows.execute("SELECT count(*) FROM duplicates").fetchone()
        problems = _problems(rows)
        return Overview(
            inventory,
            tuple(dict.fromkeys([store for each in audits for store in json.loads(each["stores"])])),
            _day(audits[0]["finished"] or audits[0]["started"], "%Y-%m-%d %H:%M UTC") if audits else "",
            audits[0]["deep"] if audits else "",
            bool(audits) and audits[0]["state"] == "complete",
            tuple([(folder, why) for folder, why in json.loads(audits[0]["unlisted"])]) if audits else (),
            totals,
            _periods(rows),
            problems,
            broken,
            duplicates,
            runs,
            tuple([tuple(each) for each in rows.execute(_BY_OWNER, (_OWNERS,))]),
            tuple([tuple(each) for each in rows.execute(_BY_FOLDER, (_FOLDERS,))]),
            (
                ("broken", totals.invalid - len(broken)),
                ("duplicates", groups - len(duplicates)),
                ("runs", totals.runs - len(runs)),
            ),
        )


_BY_OWNER = (
    "SELECT owner, count(*), sum(coalesce(blocks, bytes)) AS taken FROM checkpoint GROUP BY owner "
    "ORDER BY taken DESC LIMIT ?"
)
_BY_FOLDER = "SELECT path, coalesce(blocks, bytes) AS taken FROM runs ORDER BY taken DESC LIMIT ?"


def _totals(rows: sqlite3.Connection) -> Totals:
    counted = rows.execute(
        "SELECT count(*), count(DISTINCT run), sum(bytes), CASE WHEN count(blocks) = count(*) THEN sum(blocks) END, "
        "sum(optimizer_bytes), sum(level IS NULL), sum(wasted_bytes) FROM checkpoint"
    ).fetchone()
    (spare,) = rows.execute("SELECT sum(spare_bytes) FROM duplicates").fetchone()
    checkpoints, runs, size, blocks, optimizer, invalid, wasted = counted
    return Totals(checkpoints, runs, size or 0, blocks, optimizer or 0, invalid or 0, spare or 0, wasted or 0)


def _periods(rows: sqlite3.Connection) -> tuple[Period, ...]:
    """Return days, weeks or months, whichever are at most ``_BINS``; nothing is there where no time is known."""
    first, last = rows.execute("SELECT min(mtime_ns), max(mtime_ns) FROM checkpoint WHERE mtime_ns > 0").fetchone()
    if first is None:
        return ()
    days = (last - first) / 86_400e9
    unit = next(unit for unit, length in (("day", 1), ("week", 7), ("month", 0)) if not length or days < _BINS * length)
    start = {
        "day": "date(mtime_ns / 1000000000, 'unixepoch')",
        "week": "date(mtime_ns / 1000000000, 'unixepoch', '-6 days', 'weekday 1')",
        "month": "strftime('%Y-%m', mtime_ns / 1000000000, 'unixepoch')",
    }[unit]
    found: dict[str, list[int]] = {}
    for period, health, number in rows.execute(
        f"SELECT {start}, health, count(*) FROM checkpoint WHERE mtime_ns > 0 GROUP BY 1, 2 ORDER BY 1"
    ):
        found.setdefault(period, [0] * len(HEALTH))[HEALTH.index(health)] += number
    return tuple([Period(start, tuple(counts)) for start, counts in found.items()][-_BINS:])


def _problems(rows: sqlite3.Connection) -> tuple[Problem, ...]:
    """Return what findings say, the worst first and in those what most checkpoints have, with one message of each."""
    found = rows.execute(
        "SELECT code, name, severity, min(message), count(*), sum(bytes) FROM ("
        "SELECT problem.code, problem.name, problem.severity, problem.message, checkpoint.id, checkpoint.bytes "
        "FROM finding JOIN problem ON problem.id = finding.problem "
        "JOIN checkpoint ON checkpoint.id = finding.checkpoint "
        "GROUP BY problem.code, checkpoint.id) GROUP BY code "
        "ORDER BY CASE severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, count(*) DESC LIMIT ?",
        (_PROBLEMS,),
    )
    return tuple([Problem(*each) for each in found])


def _broken(rows: sqlite3.Connection) -> tuple[Broken, ...]:
    """Return what is not valid, what was changed last first."""
    found = rows.execute(
        "SELECT id, path, health, coalesce(error, nullif(unfinished, ''), trouble), bytes FROM checkpoint "
        "WHERE level IS NULL ORDER BY mtime_ns DESC, path LIMIT ?",
        (_BROKEN,),
    ).fetchall()
    wrong = (
        "SELECT member.path, problem.advice, problem.commands "
        "FROM finding JOIN problem ON problem.id = finding.problem "
        "JOIN member ON member.checkpoint = finding.checkpoint AND member.number = finding.member "
        "WHERE finding.checkpoint = ? AND problem.code = ? "
        "ORDER BY finding.number LIMIT 1"
    )
    made = []
    for number, path, health, trouble, nbytes in found:
        code = CODE.search(trouble or "")
        said = rows.execute(wrong, (number, code[1])).fetchone() if code is not None else None
        member, advice, lines = said or ("", "", "")
        made.append(Broken(path, health, trouble or "", nbytes, member, advice, lines.partition("\n")[0]))
    return tuple(made)


def _duplicates(rows: sqlite3.Connection) -> tuple[Duplicate, ...]:
    found = rows.execute(
        "SELECT content, copies, bytes, spare_bytes FROM duplicates ORDER BY spare_bytes DESC LIMIT ?", (_DUPLICATES,)
    ).fetchall()
    paths = "SELECT path FROM checkpoint WHERE content = ? ORDER BY path LIMIT ?"
    return tuple(
        [
            Duplicate(copies, nbytes, spare, tuple([path for (path,) in rows.execute(paths, (content, _PATHS))]))
            for content, copies, nbytes, spare in found
        ]
    )


def _runs(rows: sqlite3.Connection) -> tuple[RunRow, ...]:
    """Return the runs that take most, with the newest valid checkpoint of each by the order of steps."""
    newest = (
        "SELECT path, step, level FROM checkpoint WHERE run = ? AND level IS NOT NULL {} "
        "ORDER BY step IS NULL, step DESC, epoch DESC, mtime_ns DESC LIMIT 1"
    )
    found = rows.execute(
        "SELECT id, path, checkpoints, invalid, bytes, optimizer_bytes FROM runs ORDER BY bytes DESC LIMIT ?", (_RUNS,)
    ).fetchall()
    made = []
    for number, path, checkpoints, invalid, nbytes, optimizer in found:
        valid = rows.execute(newest.format(""), (number,)).fetchone()
        resumes = rows.execute(newest.format("AND resumable = 1"), (number,)).fetchone()
        row = RunRow(path, checkpoints, invalid, nbytes, optimizer)
        if valid is not None:
            row = replace(row, newest=_below(valid[0], path), step=valid[1], level=valid[2])
        made.append(row if resumes is None else replace(row, resumable=_below(resumes[0], path)))
    return tuple(made)


def _below(path: str, run: str) -> str:
    return path.removeprefix(run.rstrip("/") + "/") if path != run else os.path.basename(path)


def _day(seconds: float, form: str) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime(form)
