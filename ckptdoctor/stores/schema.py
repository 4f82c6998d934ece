"""Defines the tables of an inventory: one SQLite file that holds what an audit found in one or more stores.

Ids are hashes of absolute paths and of contents, so that two audits give a checkpoint the same id, and the rows of
shards merge one for one. What many rows share is kept once: ``run`` and ``folder`` for paths, ``layout`` for the keys,
dtypes and shapes of a network, ``problem`` for the text of a finding, and ``..._shared`` for what many checkpoints, or
many of their members, have in common. So a checkpoint takes a few hundred bytes. Views put it together again:
``checkpoint``, ``member`` and ``finding`` are asked like tables.

The file is written in WAL mode by one process, and others may read it meanwhile; at its end it is one file again.
``docs/stores.md`` documents the columns. ``PRAGMA user_version`` is ``VERSION``; within a version, columns and views
are only ever added. Views are written in the SQL that DuckDB knows as well: it runs them itself, and lists no table
where it cannot.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b

from ckptdoctor.errors import UnreadableError
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.shell import quote

VERSION = 2
APPLICATION = 0x636B7064  # "ckpd", which file(1) and others may show

_PATIENCE = 30.0  # seconds that another process may write

# bits of checkpoint.levels, as runs.validity.Level names them
V0, V1, V2, V3 = 1, 2, 4, 8

SCHEMA = """
-- one call of audit, or one shard of it. It is a log: nothing refers to it
CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    started REAL NOT NULL,          -- seconds since 1970
    finished REAL,                  -- NULL: it was killed, or is still at work
    state TEXT NOT NULL,            -- running, complete, interrupted
    stores TEXT NOT NULL,           -- JSON list of the stores as absolute paths or addresses
    shard TEXT NOT NULL,            -- "3/8", "" for all
    engine TEXT NOT NULL,
    deep TEXT NOT NULL,             -- "", changed, sample, all
    version TEXT NOT NULL,          -- of ckptdoctor
    listed INTEGER NOT NULL,        -- checkpoints
    examined INTEGER NOT NULL,
    unchanged INTEGER NOT NULL,
    removed INTEGER NOT NULL,       -- rows of checkpoints that are no longer there
    unlisted TEXT NOT NULL          -- JSON list of [folder, why it could not be listed]
);

-- a training run: the folder that its checkpoints are in, or below
CREATE TABLE run (
    id INTEGER PRIMARY KEY,         -- hash of path
    path TEXT NOT NULL,
    store TEXT NOT NULL             -- the store that it was found in
);

-- keys, dtypes and shapes that one or more files have in common
CREATE TABLE layout (
    id INTEGER PRIMARY KEY,         -- hash of keys
    tensors INTEGER NOT NULL,
    parameters INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    keys BLOB NOT NULL              -- zlib of a JSON list of [key path, dtype, shape, role or ""]
);

-- one checkpoint: a file, or a folder that is one. Here is what is its own
CREATE TABLE checkpoint_own (
    id INTEGER PRIMARY KEY,         -- hash of path
    run INTEGER NOT NULL,
    name TEXT NOT NULL,             -- path is that of the run and this: "/step_1.pt"
    shared INTEGER NOT NULL,        -- the rest of its columns
    step INTEGER,
    epoch REAL,
    metric REAL,
    bytes INTEGER NOT NULL,         -- of all its files
    blocks INTEGER,                 -- bytes on disk of all its files; NULL where nobody says (object stores)
    content INTEGER,                -- hash of the contents of all its members; NULL where not all have checksums
    weights INTEGER,                -- the same of its weights alone, whatever they are called and in which order
    microseconds INTEGER NOT NULL,  -- that its examination took
    signature INTEGER NOT NULL,     -- hash of names, sizes, times, inodes and etags of its files; 0: ask again
    mtime_ns INTEGER NOT NULL       -- of its newest file; 0 where nobody knows
);
CREATE INDEX checkpoint_of_run ON checkpoint_own (run);
CREATE INDEX checkpoint_by_content ON checkpoint_own (content) WHERE content IS NOT NULL;

-- what checkpoints have in common with others: those of one run, in most cases
CREATE TABLE checkpoint_shared (
    id INTEGER PRIMARY KEY,         -- hash of the other columns
    series TEXT NOT NULL,           -- its path below the run, with # for numbers: those of one series are called alike
    folder INTEGER NOT NULL,        -- 1: a folder
    kind TEXT NOT NULL,             -- who wrote it: file, folder, trainer, accelerate, deepspeed, megatron, ...
    format TEXT NOT NULL,           -- as check names it; "" where it is unknown
    family TEXT NOT NULL,           -- the class of its network where a config.json names it, or ""
    step_source TEXT NOT NULL,      -- where both were read: "global_step", "trainer_state.json", "its name", ""
    disagreement TEXT NOT NULL,     -- "" or how its contents contradict its name
    metric_name TEXT NOT NULL,      -- val_loss, eval_accuracy, ...
    metric_source TEXT NOT NULL,    -- its name, trainer_state.json, ModelCheckpoint
    metric_mode TEXT NOT NULL,      -- min, max, or "" where nothing says which is better
    unfinished TEXT NOT NULL,       -- "" or why it is still being written, or was never finished
    complete INTEGER NOT NULL,      -- 1: every member is there with all its bytes, as far as was read
    level INTEGER,                  -- the highest level that was proven, 0 to 3; NULL: not even V0
    levels INTEGER NOT NULL,        -- all levels that were proven, as bits: V0 1, V1 2, V2 4, V3 8
    trouble TEXT NOT NULL,          -- "" or the first reason for which it does not reach V0 (V1, V2 where read)
    resumable INTEGER,              -- 1 or 0: training can resume from it; NULL: nothing to ask, it is not valid
    lacks TEXT NOT NULL,            -- "" or why training cannot resume
    without TEXT NOT NULL,          -- what a resumed training starts again with: "a scheduler and a random state"
    health TEXT NOT NULL,           -- unfinished, unreadable, broken, weightless, error, warning or clean
    tensors INTEGER NOT NULL,
    parameters INTEGER NOT NULL,    -- elements of its weights, without optimizer states
    optimizer_bytes INTEGER NOT NULL, -- of tensors that only resuming needs
    dtype TEXT NOT NULL,            -- that most bytes of its weights have
    wasted_bytes INTEGER,           -- what bfloat16 would save of float32 weights that it holds exactly; NULL: not read
    deep INTEGER NOT NULL,          -- 1: every byte was read
    error TEXT,                     -- why it could not be examined at all
    rules_version TEXT NOT NULL,    -- of the ckptdoctor that examined it
    owner TEXT NOT NULL             -- who owns its files: a user's name, or ""
);

-- folders of files that are not below the path of their checkpoint
CREATE TABLE folder (
    id INTEGER PRIMARY KEY,         -- hash of path
    path TEXT NOT NULL              -- with the separator at its end
);

-- every file of every checkpoint
CREATE TABLE object (
    checkpoint INTEGER NOT NULL,
    name TEXT NOT NULL,             -- path is that of the checkpoint, or of folder, and this: "", "/config.json"
    folder INTEGER,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,      -- 0 where nobody knows
    device INTEGER,                 -- NULL for addresses
    inode INTEGER,
    etag TEXT,                      -- NULL for local files
    blocks INTEGER,                 -- bytes on disk
    PRIMARY KEY (checkpoint, name)
) WITHOUT ROWID;

-- what of a checkpoint was examined as one: a file, or a folder of shards. Here is what is its own
CREATE TABLE member_own (
    checkpoint INTEGER NOT NULL,
    number INTEGER NOT NULL,        -- from 0, in the order in which they were examined
    name TEXT NOT NULL,             -- path, as ckptdoctor check takes it, is made as in object
    folder INTEGER,
    shared INTEGER NOT NULL,
    contents BLOB,                  -- 4 bytes for each tensor of the weights: the CRC32 of its storage, little-endian
    PRIMARY KEY (checkpoint, number)
) WITHOUT ROWID;

-- what members have in common with others, with the findings below
CREATE TABLE member_shared (
    id INTEGER PRIMARY KEY,         -- hash of the other columns, and of the findings
    format TEXT NOT NULL,
    layout INTEGER,                 -- NULL where its contents could not be read
    error TEXT                      -- why it could not be examined
);

-- what check finds in a member
CREATE TABLE finding_shared (
    member INTEGER NOT NULL,        -- of member_shared
    number INTEGER NOT NULL,        -- its place in the report, worst first
    problem INTEGER NOT NULL,
    PRIMARY KEY (member, number)
) WITHOUT ROWID;

-- the text of findings, once for all that say the same
CREATE TABLE problem (
    id INTEGER PRIMARY KEY,         -- hash of the other columns
    code TEXT NOT NULL,
    name TEXT NOT NULL,
    severity TEXT NOT NULL,         -- info, warning, error
    message TEXT NOT NULL,
    cause TEXT NOT NULL,
    advice TEXT NOT NULL,           -- FILE stands for the path of the member, here and in commands
    commands TEXT NOT NULL,         -- lines
    fix TEXT NOT NULL               -- options of ckptdoctor fix that repair it, or ""
);

-- what names a checkpoint, so that it is needed: an adapter its base, a link its target, a file of the run the last one
CREATE TABLE reference (
    id INTEGER PRIMARY KEY,         -- hash of source, kind and target
    run INTEGER NOT NULL,
    source TEXT NOT NULL,           -- the path of what names it
    checkpoint INTEGER,             -- that source belongs to; NULL for a link or a file of the run
    kind TEXT NOT NULL,             -- base, link, latest, best
    target TEXT NOT NULL,           -- an absolute path or an address, or org/name where nothing local was named
    target_id INTEGER NOT NULL      -- hash of target: the id of the checkpoint, where it is in the inventory
);
CREATE INDEX reference_to ON reference (target_id);
CREATE INDEX reference_of_checkpoint ON reference (checkpoint);

-- what became of a folder: one that lists as it did is not grouped again. Only audit reads this
CREATE TABLE listing (
    id INTEGER PRIMARY KEY,         -- hash of its path
    store INTEGER NOT NULL,         -- hash of the store that was audited
    listed INTEGER NOT NULL,        -- hash of names, sizes, times, inodes and etags of what is in it
    nested INTEGER NOT NULL,        -- the same of files in folders that are parts of its checkpoints
    signatures INTEGER NOT NULL,    -- sum of the signatures of its checkpoints
    checkpoints BLOB NOT NULL,      -- their ids, 8 bytes each, in the byte order of the machine
    said TEXT NOT NULL              -- JSON: places of parts of checkpoints, of folders to look into, links, other files
);

-- what is asked like a table
CREATE VIEW checkpoint AS
    SELECT own.id, own.run, run.path || own.name AS path, shared.series, shared.folder, shared.kind, shared.format,
        shared.family, own.step, own.epoch, shared.step_source, shared.disagreement, own.metric, shared.metric_name,
        shared.metric_source, shared.metric_mode, shared.unfinished, shared.complete, shared.level, shared.levels,
        shared.trouble, shared.resumable, shared.lacks, shared.without, shared.health, shared.tensors,
        shared.parameters, own.bytes, own.blocks, shared.optimizer_bytes, shared.dtype, own.content, own.weights,
        shared.wasted_bytes, shared.deep, shared.error, own.microseconds / 1e6 AS seconds, shared.rules_version,
        own.signature, own.mtime_ns, shared.owner
    FROM checkpoint_own AS own LEFT JOIN run ON run.id = own.run
        LEFT JOIN checkpoint_shared AS shared ON shared.id = own.shared;
CREATE VIEW member AS
    SELECT own.checkpoint, own.number, coalesce(folder.path, run.path || checkpoint_own.name) || own.name AS path,
        shared.format, shared.layout, own.contents, shared.error
    FROM member_own AS own LEFT JOIN member_shared AS shared ON shared.id = own.shared
        LEFT JOIN folder ON folder.id = own.folder
        LEFT JOIN checkpoint_own ON checkpoint_own.id = own.checkpoint LEFT JOIN run ON run.id = checkpoint_own.run;
CREATE VIEW finding AS
    SELECT own.checkpoint, own.number AS member, shared.number, shared.problem
    FROM member_own AS own JOIN finding_shared AS shared ON shared.member = own.shared;
CREATE VIEW files AS
    SELECT coalesce(folder.path, run.path || checkpoint_own.name) || object.name AS path, object.checkpoint,
        object.size, object.mtime_ns, object.device, object.inode, object.etag, object.blocks
    FROM object LEFT JOIN folder ON folder.id = object.folder
        LEFT JOIN checkpoint_own ON checkpoint_own.id = object.checkpoint LEFT JOIN run ON run.id = checkpoint_own.run;

-- what people ask for
CREATE VIEW checkpoints AS
    SELECT run.path AS run_path, run.store, checkpoint.* FROM checkpoint LEFT JOIN run ON run.id = checkpoint.run;
CREATE VIEW findings AS
    SELECT checkpoint.path AS checkpoint_path, member.path AS path, problem.code, problem.name, problem.severity,
        problem.message, problem.cause, problem.advice, problem.commands, problem.fix, finding.number,
        finding.checkpoint, finding.member, checkpoint.run
    FROM finding JOIN problem ON problem.id = finding.problem
        JOIN member ON member.checkpoint = finding.checkpoint AND member.number = finding.member
        JOIN checkpoint ON checkpoint.id = finding.checkpoint;
CREATE VIEW runs AS
    SELECT run.id, min(run.path) AS path, min(run.store) AS store, count(*) AS checkpoints, sum(complete) AS complete,
        sum(CASE WHEN level IS NULL THEN 1 ELSE 0 END) AS invalid, sum(resumable) AS resumable, max(step) AS last_step,
        max(CASE WHEN level IS NOT NULL THEN step END) AS last_valid_step, sum(bytes) AS bytes, sum(blocks) AS blocks,
        sum(optimizer_bytes) AS optimizer_bytes, max(mtime_ns) AS mtime_ns
    FROM run JOIN checkpoint ON checkpoint.run = run.id GROUP BY run.id;
CREATE VIEW duplicates AS
    SELECT content, count(*) AS copies, min(path) AS first, max(bytes) AS bytes, sum(bytes) - max(bytes) AS spare_bytes
    FROM checkpoint WHERE content IS NOT NULL GROUP BY content HAVING count(*) > 1;
CREATE VIEW references_to AS
    SELECT reference.*, checkpoint.path AS target_path FROM reference JOIN checkpoint
        ON checkpoint.id = reference.target_id;
"""


# the columns of each table, in their order
COLUMNS = {
    name: tuple(re.findall(r"^    ([a-z_]+) ", body, re.MULTILINE))
    for name, body in re.findall(r"^CREATE TABLE (\w+) \((.*?)^\)", SCHEMA, re.MULTILINE | re.DOTALL)
}


@lru_cache(512)  # each checkpoint asks for its own several times, and its run and its findings are those of others
def identity(text: str) -> int:
    """Return the id of a path, or of what else is hashed: 63 bits, so that SQLite takes it for a rowid."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1


def absolute(path: str) -> str:
    """Return the path of which ids are hashes: absolute and without a slash at its end; links stay as they are."""
    return path.rstrip("/") if is_address(path) else os.path.abspath(path)


def audit_command(stores: Iterable[str], inventory: str, *options: str) -> str:
    """Return the command that audits stores into an inventory, to be copied into a shell."""
    output = inventory if not inventory.startswith("-") else f"./{inventory}"
    return " ".join(["ckptdoctor audit", *map(quote, stores), f"-o {quote(output)}", *options])


def create(path: str) -> sqlite3.Connection:
    """Open an inventory for writing, a new one where there is none.

    Raises UnreadableError for a file that is not one, or of a later version.
    """
    new = not os.path.lexists(path)
    connection = _connected(path, "rwc")
    try:
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            _create_tables(connection)
        _require_inventory(connection, path)
        with suppress(sqlite3.OperationalError):  # somebody reads it: without, one waits for the other
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.DatabaseError as error:
        connection.close()
        if new and os.path.isfile(path) and not os.path.getsize(path):  # a disk that is full holds no more of it
            os.unlink(path)
        raise _unreadable(path, error) from error
    except UnreadableError:
        connection.close()
        raise
    return connection


def close(connection: sqlite3.Connection) -> None:
    """Close an inventory that was open for writing, so that it is one file, which can be read wherever it is copied.

    Who reads one with a log of writing makes two files next to it, and can only read it where that is allowed.
    """
    with suppress(sqlite3.OperationalError):  # somebody has it open: the next who writes does it
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


def _create_tables(connection: sqlite3.Connection) -> None:
    mark = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
    try:
        connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} {mark} COMMIT;")
    except sqlite3.OperationalError:
        connection.rollback()
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise  # else another process has made them meanwhile


def open_inventory(path: str) -> sqlite3.Connection:
    """Open an inventory for reading; rows can be asked by column (``row["path"]``).

    Raises UnreadableError where there is none, or it is not one.
    """
    if os.path.isdir(path):
        raise UnreadableError(f"{path} is a folder. Name the database that this writes: ckptdoctor audit {quote(path)}")
    if not os.path.isfile(path):
        from ckptdoctor.checkpoint.missing import missing

        raise missing(path)
    connection = _connected(path, "ro")
    try:
        _require_inventory(connection, path)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise _unreadable(path, error) from error
    except UnreadableError:
        connection.close()
        raise
    connection.row_factory = sqlite3.Row
    return connection


def _connected(path: str, mode: str) -> sqlite3.Connection:
    from urllib.parse import quote as escaped

    try:
        return sqlite3.connect(f"file:{escaped(os.path.abspath(path))}?mode={mode}", uri=True, timeout=_PATIENCE)
    except sqlite3.Error as error:
        raise _unreadable(path, error) from error


def _require_inventory(connection: sqlite3.Connection, path: str) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION:
        raise UnreadableError(
            f"{path} is a database that ckptdoctor audit did not write. Name another file: -o store.db"
        )
    if version > VERSION:
        raise UnreadableError(f"{path} was written by a later version of ckptdoctor. Upgrade ckptdoctor to read it.")
    if version < VERSION:
        raise UnreadableError(
            f"{path} was written by an earlier version of ckptdoctor, and its tables are others now. Run ckptdoctor "
            "audit into a new file, which examines everything once more."
        )


def _unreadable(path: str, error: sqlite3.Error) -> UnreadableError:
    return UnreadableError(f"{path} cannot be opened as an inventory: {error}.")
