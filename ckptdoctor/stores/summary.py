"""Sums up an inventory: what is broken and what helps, where the space is, what is there twice."""

from __future__ import annotations

from sqlite3 import Connection

from ckptdoctor.noun import noun
from ckptdoctor.stores.contents import Unchanged, unchanged

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
    by_run: tuple[Space, ...]
    by_owner: tuple[Space, ...]
    duplicates: Twice
    same_weights: Twice
    unchanged: tuple[Unchanged, ...]
    disagreements: int


def summary_of(connection: Connection) -> Summary:
    """Return what an inventory holds."""
    totals = "count(*), coalesce(sum(bytes), 0), coalesce(sum(resumable), 0), coalesce(sum(optimizer_bytes), 0)"
    checkpoints, size, resumable, optimizer = connection.execute(f"SELECT {totals} FROM checkpoint").fetchone()
    return Summary(
        checkpoints=checkpoints,
        runs=connection.execute("SELECT count(*) FROM (SELECT DISTINCT run FROM checkpoint)").fetchone()[0],
        bytes=size,
        blocks=_on_disk(connection),
        resumable=resumable,
        optimizer_bytes=optimizer,
        wasted=tuple(connection.execute(_WASTED).fetchone()),
        health=dict(map(tuple, connection.execute("SELECT health, count(*) FROM checkpoint GROUP BY health"))),
        problems=tuple(_problems(connection)),
        errors=tuple(
            map(tuple, connection.execute("SELECT path, error FROM checkpoint WHERE error IS NOT NULL ORDER BY path"))
        ),
        by_run=tuple(_space(connection, "run.path", "JOIN run ON run.id = checkpoint.run")),
        by_owner=tuple(_space(connection, "owner", "")),
        duplicates=_twice(connection, "content", "content"),
        same_weights=_twice(connection, "weights", "coalesce(content, id)"),
        unchanged=tuple(_unchanged(connection)),
        disagreements=connection.execute("SELECT count(*) FROM checkpoint WHERE disagreement != ''").fetchone()[0],
    )


_WASTED = "SELECT count(*), coalesce(sum(wasted_bytes), 0) FROM checkpoint WHERE wasted_bytes > 0"


def _on_disk(connection: Connection) -> int | None:
    """Return the bytes on disk of all files: of several names of one file those of one."""
    found: int | None = connection.execute(
        "SELECT sum(blocks) FROM (SELECT max(blocks) AS blocks FROM object WHERE inode IS NOT NULL "
        "GROUP BY device, inode)"
    ).fetchone()[0]
    return found


def _problems(connection: Connection) -> list[Problems]:
    """Return the kinds of findings from warnings on, errors first, then what most checkpoints have."""
    found = []
    query = """
        SELECT problem.code, problem.name, count(DISTINCT finding.checkpoint) AS number
        FROM finding JOIN problem ON problem.id = finding.problem WHERE problem.severity != 'info'
        GROUP BY problem.code ORDER BY min(problem.severity != 'error'), number DESC, problem.code
    """
    for code, name, number in connection.execute(query).fetchall():
        said = connection.execute(
            "SELECT path, severity, message, advice, commands, fix FROM findings "
            "WHERE code = ? AND severity != 'info' ORDER BY severity, path LIMIT 1",
            (code,),
        ).fetchone()
        path, severity, message, advice, commands, fix = said
        lines = tuple(commands.splitlines())
        found.append(Problems(code, name, severity, number, path, message, advice, lines, fix))
    return found


def _space(connection: Connection, name: str, join: str) -> list[Space]:
    query = f"""
        SELECT {name}, count(*), sum(bytes), sum(blocks), sum(optimizer_bytes) FROM checkpoint {join}
        GROUP BY {name} ORDER BY sum(bytes) DESC, {name} LIMIT {_RUNS}
    """
    return [Space(*each) for each in connection.execute(query)]


def _twice(connection: Connection, column: str, different: str) -> Twice:
    """Return what is known of checkpoints with one value of a column, and several of another, or several rows."""
    having = "count(*) > 1" if column == different else f"count(DISTINCT {different}) > 1"
    groups = f"FROM checkpoint WHERE {column} IS NOT NULL GROUP BY {column} HAVING {having}"
    number, spare_checkpoints, spare = connection.execute(
        "SELECT count(*), coalesce(sum(copies - 1), 0), coalesce(sum(spare), 0) "
        f"FROM (SELECT count(*) AS copies, sum(bytes) - max(bytes) AS spare {groups})"
    ).fetchone()
    largest = connection.execute(
        f"SELECT {column} {groups} ORDER BY sum(bytes) - max(bytes) DESC, {column} LIMIT 1"
    ).fetchone()
    rows = connection.execute(
        f"SELECT path FROM checkpoint WHERE {column} = ? ORDER BY path LIMIT 2", (largest[0] if largest else None,)
    )
    return Twice(number, spare_checkpoints, spare, tuple([path for (path,) in rows]))


def _unchanged(connection: Connection) -> list[Unchanged]:
    runs = connection.execute(
        "SELECT run FROM checkpoint WHERE content IS NOT NULL AND level IS NOT NULL GROUP BY run "
        f"HAVING count(*) > 1 ORDER BY sum(bytes) DESC LIMIT {_COMPARED}"
    ).fetchall()
    found = [unchanged(connection, run) for (run,) in runs]
    return [each for each in found if each is not None and 0 < len(each.keys) < each.of]
