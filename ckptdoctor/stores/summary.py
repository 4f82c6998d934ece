"""Sums up an inventory: what is broken and what helps, where the space is, what is there twice."""

from __future__ import annotations

from collections import Counter
from sqlite3 import Connection

from ckptdoctor.noun import noun
from ckptdoctor.regex import regex
from ckptdoctor.stores.contents import Unchanged, unchanged

CODE = regex(r"\(([A-Z]\d{3}) [\w-]+\)$")  # of a rule, at the end of why a checkpoint is not valid
_RUNS = 10  # runs and owners that are named
_COMPARED = 100  # runs whose layers are compared


@noun
class Problems:
    """One kind of finding: in how many checkpoints, and one of them with the commands that help it.

    FILE stands for ``example`` in ``advice`` and the commands; ``fix`` are options of ``ckptdoctor fix``, or "".
    """

    code: str
    name: str
    severity: str
    checkpoints: int
    example: str
    message: str
    advice: str
    commands: tuple[str, ...]
    fix: str


@noun
class Space:
    """How much room the checkpoints of a run, or of an owner, take.

    ``blocks`` is what they take on disk, where two names of one file count once; None where nobody says.
    """

    name: str
    checkpoints: int
    bytes: int
    blocks: int | None
    optimizer_bytes: int


@noun
class Twice:
    """Checkpoints that hold the same tensors as another: ``spare`` bytes would be free without them."""

    groups: int
    spare_checkpoints: int
    spare: int
    example: tuple[str, ...]


@noun
class Summary:
    """What an inventory holds. ``health`` counts the checkpoints by their column of this name.

    ``same_weights`` are checkpoints of different contents with the same weights, such as a fine-tune that is its base.
    ``wasted`` are how many checkpoints have float32 weights that bfloat16 holds exactly, and the bytes that would save.
    ``broken`` are those that no finding explains, each with what is wrong.
    ``unchanged`` are runs in which some tensors, but not all, are the same in every checkpoint.
    """

    checkpoints: int
    runs: int
    bytes: int
    blocks: int | None
    resumable: int
    optimizer_bytes: int
    wasted: tuple[int, int]
    health: dict[str, int]
    problems: tuple[Problems, ...]
    errors: tuple[tuple[str, str], ...]
    broken: tuple[tuple[str, str], ...]
    by_run: tuple[Space, ...]
    by_owner: tuple[Space, ...]
    duplicates: Twice
    same_weights: Twice
    unchanged: tuple[Unchanged, ...]
    disagreements: int


def summary_of(connection: Connection) -> Summary:
    """Return what an inventory holds, all of it at one moment, whoever writes into it meanwhile."""
    connection.execute("BEGIN")
    try:
        return _summary_of(connection)
    finally:
        connection.rollback()  # the table of what is alike goes with it


def _summary_of(connection: Connection) -> Summary:
    _count_alike(connection)
    row = connection.execute(_TOTALS).fetchone()
    checkpoints, runs, size, resumable, optimizer, wasted, wasted_bytes, disagreements = row
    return Summary(
        checkpoints=checkpoints,
        runs=runs,
        bytes=size,
        blocks=_on_disk(connection),
        resumable=resumable,
        optimizer_bytes=optimizer,
        wasted=(wasted, wasted_bytes),
        health=dict(map(tuple, connection.execute(f"SELECT health, sum(checkpoints) FROM {_ALIKE} GROUP BY health"))),
        problems=tuple(_problems(connection)),
        errors=tuple(map(tuple, connection.execute(_ERRORS))),
        broken=tuple([row for row in map(tuple, connection.execute(_BROKEN)) if not CODE.search(row[1])]),
        by_run=tuple(_space(connection, "run.path", "JOIN run ON run.id = alike.run")),
        by_owner=tuple(_space(connection, "owner", "")),
        duplicates=_twice(connection, "content", "content"),
        same_weights=_twice(connection, "weights", "coalesce(content, id)"),
        unchanged=tuple(_unchanged(connection)),
        disagreements=disagreements,
    )


def _count_alike(connection: Connection) -> None:
    """Count the checkpoints of each run that have all of checkpoint_shared in common.

    There are few of these, and most of what is asked of a million checkpoints is asked of them.
    """
    connection.execute(
        "CREATE TEMP TABLE alike AS SELECT run, shared, count(*) AS checkpoints, sum(bytes) AS bytes, "
        # "+" keeps it from the index, which would look up each row
        "sum(blocks) AS blocks, count(content) AS known FROM checkpoint_own GROUP BY +run, shared"
    )


_ALIKE = "alike LEFT JOIN checkpoint_shared AS shared ON shared.id = alike.shared"

_TOTALS = f"""
    SELECT coalesce(sum(checkpoints), 0), count(DISTINCT alike.run), coalesce(sum(alike.bytes), 0),
        coalesce(sum(checkpoints * resumable), 0), coalesce(sum(checkpoints * optimizer_bytes), 0),
        coalesce(sum(checkpoints * (wasted_bytes > 0)), 0), coalesce(sum(checkpoints * max(wasted_bytes, 0)), 0),
        coalesce(sum(checkpoints * (disagreement != '')), 0)
    FROM {_ALIKE}
"""

_ERRORS = f"""
    SELECT run.path || own.name AS path, error
    FROM {_ALIKE} CROSS JOIN checkpoint_own AS own ON own.run = alike.run AND own.shared = alike.shared
        LEFT JOIN run ON run.id = own.run
    WHERE error IS NOT NULL ORDER BY path
"""

# such as one that is not as it was sealed: what a finding is about has its code in it
_BROKEN = f"""
    SELECT run.path || own.name AS path, trouble
    FROM {_ALIKE} CROSS JOIN checkpoint_own AS own ON own.run = alike.run AND own.shared = alike.shared
        LEFT JOIN run ON run.id = own.run
    WHERE health = 'broken' AND trouble != '' ORDER BY path
"""


def _on_disk(connection: Connection) -> int | None:
    """Return the bytes on disk of all files: of several names of one file those of one."""
    found: int | None = connection.execute(
        "SELECT sum(blocks) FROM (SELECT max(blocks) AS blocks FROM object WHERE inode IS NOT NULL "
        "GROUP BY device, inode)"
    ).fetchone()[0]
    return found


# the worst that a code says of members that are alike, and of which members that is
_SAID = """
    SELECT finding.member, problem.code, min(problem.severity) AS severity
    FROM finding_shared AS finding JOIN problem ON problem.id = finding.problem
    WHERE problem.severity != 'info' GROUP BY finding.member, problem.code
"""
_HAVE = f"""
    SELECT own.checkpoint, own.shared, coalesce(folder.path, run.path || checkpoint_own.name) || own.name
    FROM member_own AS own LEFT JOIN folder ON folder.id = own.folder
        LEFT JOIN checkpoint_own ON checkpoint_own.id = own.checkpoint LEFT JOIN run ON run.id = checkpoint_own.run
    WHERE own.shared IN (SELECT member FROM ({_SAID})) ORDER BY own.checkpoint
"""
_TEXT = """
    SELECT name, message, advice, commands, fix FROM finding_shared AS finding
        JOIN problem ON problem.id = finding.problem
    WHERE member = ? AND code = ? AND severity = ? ORDER BY finding.number LIMIT 1
"""


def _problems(connection: Connection) -> list[Problems]:
    """Return the kinds of findings from warnings on, errors first, then what most checkpoints have.

    The example of each is the worst, and of several the first by its path. Members are gone through once, whatever
    number of kinds there is: a join for each kind took twelve seconds of a million.
    """
    said: dict[int, list[tuple[str, str]]] = {}
    for member, code, severity in connection.execute(_SAID):
        said.setdefault(member, []).append((code, severity))
    counts: Counter[str] = Counter()
    counted: dict[str, int] = {}  # the checkpoint that each code was counted for last
    worst: dict[str, tuple[str, str, int]] = {}
    for checkpoint, member, path in connection.execute(_HAVE):
        for code, severity in said[member]:
            if counted.get(code) != checkpoint:
                counted[code] = checkpoint
                counts[code] += 1
            if code not in worst or (severity, path) < worst[code][:2]:
                worst[code] = severity, path, member
    found = []
    for code in sorted(counts, key=lambda each: (worst[each][0] != "error", -counts[each], each)):
        severity, path, member = worst[code]
        name, message, advice, commands, fix = connection.execute(_TEXT, (member, code, severity)).fetchone()
        lines = tuple(commands.splitlines())
        found.append(Problems(code, name, severity, counts[code], path, message, advice, lines, fix))
    return found


def _space(connection: Connection, name: str, join: str) -> list[Space]:
    query = f"""
        SELECT {name}, sum(checkpoints), sum(alike.bytes), sum(blocks), sum(checkpoints * optimizer_bytes)
        FROM {_ALIKE} {join} GROUP BY {name} ORDER BY sum(alike.bytes) DESC, {name} LIMIT {_RUNS}
    """
    return [Space(*each) for each in connection.execute(query)]


def _twice(connection: Connection, column: str, different: str) -> Twice:
    """Return what is known of checkpoints with one value of a column, and several of another, or several rows."""
    having = "count(*) > 1" if column == different else f"count(DISTINCT {different}) > 1"
    groups = spare_checkpoints = spare = most = 0
    largest = None
    for value, copies, more in connection.execute(
        f"SELECT {column}, count(*), sum(bytes) - max(bytes) FROM checkpoint_own "
        f"WHERE {column} IS NOT NULL GROUP BY {column} HAVING {having} ORDER BY {column}"
    ):
        groups += 1
        spare_checkpoints += copies - 1
        spare += more
        if largest is None or more > most:  # of several the first
            largest, most = value, more
    rows = connection.execute(f"SELECT path FROM checkpoint WHERE {column} = ? ORDER BY path LIMIT 2", (largest,))
    return Twice(groups, spare_checkpoints, spare, tuple([path for (path,) in rows]))


def _unchanged(connection: Connection) -> list[Unchanged]:
    runs = connection.execute(
        f"SELECT run FROM {_ALIKE} WHERE known > 0 AND level IS NOT NULL GROUP BY run "
        f"HAVING sum(known) > 1 ORDER BY sum(alike.bytes) DESC, run LIMIT {_COMPARED}"
    ).fetchall()
    found = [unchanged(connection, run) for (run,) in runs]
    return [each for each in found if each is not None and 0 < len(each.keys) < each.of]
