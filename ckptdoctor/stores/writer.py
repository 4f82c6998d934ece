"""Writes rows into an inventory. There is one writer, and it is the only one that knows of SQLite."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import time
from typing import Any

from ckptdoctor import __version__
from ckptdoctor.errors import WriteError
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.stores import schema
from ckptdoctor.stores.examine import Rows, text
from ckptdoctor.stores.listing import Unit
from ckptdoctor.stores.recall import Grouped, grouped, sum_of

_CHILDREN = ("object", "member_own", "reference")  # tables whose rows belong to one checkpoint
# tables whose rows belong to whoever refers to them, and by which columns that is: those that refer to others first
_SHARED = {
    "checkpoint_shared": ("SELECT shared FROM checkpoint_own",),
    "member_shared": ("SELECT shared FROM member_own",),
    "run": ("SELECT run FROM checkpoint_own", "SELECT run FROM reference"),
    "folder": (
        "SELECT folder FROM object WHERE folder IS NOT NULL",
        "SELECT folder FROM member_own WHERE folder IS NOT NULL",
    ),
    "layout": ("SELECT layout FROM member_shared WHERE layout IS NOT NULL",),
    "finding_shared": ("SELECT id FROM member_shared",),
    "problem": ("SELECT problem FROM finding_shared",),
}
_KEYS = {"finding_shared": "member"}  # the columns that others name, where that is not id
_REPLACE = frozenset({"listing", "checkpoint_own", "object", "member_own", "reference"})
_ASKED = 500  # ids in a query
_TOGETHER = 64  # checkpoints whose rows are inserted at once


@contextmanager
def writing_into(path: str) -> Iterator[None]:
    """Raise WriteError, with what to do, where SQLite cannot write into this inventory."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise WriteError(
                f"{path} is being written by another process. Wait until that is done, or audit into another database "
                "(-o) and put both together later (--merge)."
            ) from error
        raise WriteError(f"{path} cannot be written: {error}. What was committed before stays.") from error


class Writer:
    """Writes into the inventory at ``path``, which is made where there is none.

    What was written is there to stay, and for others to read, from the next ``commit`` on.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.connection = schema.create(path)
        self._statements = {
            table: f"INSERT OR {'REPLACE' if table in _REPLACE else 'IGNORE'} INTO {table} VALUES "
            f"({', '.join('?' * len(columns))})"
            for table, columns in schema.COLUMNS.items()
        }
        self.connection.execute("PRAGMA cache_size = -65536")  # 64 MiB
        self.connection.execute("PRAGMA temp_store = FILE")
        self.connection.execute("PRAGMA temp.cache_size = -32768")  # 32 MiB: ids of a million, which come in no order
        # ids come in no order, so that most pages of a large inventory are written again and again: 64 MB of changes
        # wait in the log until then
        self.connection.execute("PRAGMA wal_autocheckpoint = 16384")
        self.connection.execute("CREATE TEMP TABLE seen (id INTEGER PRIMARY KEY)")
        self.connection.execute("CREATE TEMP TABLE visited (id INTEGER PRIMARY KEY)")  # folders
        self._has_rows = bool(self._one("SELECT EXISTS (SELECT 1 FROM checkpoint_own)"))
        self._waiting: dict[str, list[Sequence[Any]]] = {}
        self._written = 0  # checkpoints of which rows wait
        self.replaced = False  # whether rows that others may have shared are gone

    def _one(self, query: str, values: Sequence[Any] = ()) -> Any:
        return self.connection.execute(query, values).fetchone()[0]

    @property
    def checkpoints(self) -> int:
        """How many there are."""
        found: int = self._one("SELECT count(*) FROM checkpoint_own")
        return found

    # ---- the log

    def begin(self, stores: Sequence[str], *, shard: str = "", engine: str = "local", deep: str = "") -> int:
        """Write down that an audit has begun, and return its id."""
        started = time()
        key = schema.identity(f"{started} {os.getpid()} {stores}")
        row = (key, started, None, "running", json.dumps([text(each) for each in stores]), shard, engine, deep)
        self._insert("audit", [(*row, __version__, 0, 0, 0, 0, "[]")])
        self.commit()
        return key

    def end(self, audit: int, state: str, unlisted: Iterable[tuple[str, str]] = (), **counts: int) -> None:
        """Write down how an audit ended."""
        said = json.dumps([[text(folder), text(why)] for folder, why in unlisted])
        values = {"finished": time(), "state": state, "unlisted": said, **counts}
        names = ", ".join(f"{name} = ?" for name in values)
        self.connection.execute(f"UPDATE audit SET {names} WHERE id = ?", (*values.values(), audit))
        self.commit()

    # ---- checkpoints

    def changed(self, units: Sequence[Unit], deep: Container[str] = (), *, again: bool = False) -> Iterator[Unit]:
        """Note that these are there, and yield those that are not in the inventory as they are now.

        What another version examined is examined again: its rules may be others. So is what is to be read ``deep``, by
        its path, where it was not yet, or is to be read ``again``.
        """
        ids = [schema.identity(each.candidate.path) for each in units]
        self._note_seen(ids)
        if not self._has_rows:
            yield from units
            return
        known = {key: said for key, *said in self._known(ids)}
        for key, each in zip(ids, units, strict=True):
            signature, version, read = known.get(key, (None, "", 0))
            wanted = each.candidate.path in deep and (again or not read)
            if signature != each.signature or version != __version__ or wanted:
                yield each

    def _note_seen(self, ids: Iterable[int]) -> None:
        self.connection.executemany("INSERT OR IGNORE INTO seen VALUES (?)", [(each,) for each in ids])

    def _known(self, ids: Sequence[int]) -> Iterator[tuple[int, int, str, int]]:
        """Yield the id, signature, version and depth of those that are in the inventory."""
        for at in range(0, len(ids), _ASKED):
            some = ids[at : at + _ASKED]
            marks = ", ".join("?" * len(some))
            yield from self.connection.execute(
                "SELECT own.id, own.signature, shared.rules_version, shared.deep FROM checkpoint_own AS own JOIN "
                f"checkpoint_shared AS shared ON shared.id = own.shared WHERE own.id IN ({marks})",
                some,
            )

    def recall(self, folder: str) -> Grouped | None:
        """Return what became of a folder the last time, None where that is not known."""
        key = schema.identity(folder)
        self.connection.execute("INSERT OR IGNORE INTO visited VALUES (?)", (key,))
        if not self._has_rows:
            return None
        columns = ", ".join(schema.COLUMNS["listing"][2:])
        row = self.connection.execute(f"SELECT {columns} FROM listing WHERE id = ?", (key,)).fetchone()
        return grouped(row) if row is not None else None

    def holds(self, known: Grouped, is_read: Callable[[int], bool] | None = None, *, again: bool = False) -> bool:
        """Return whether checkpoints of a folder are all in the inventory as they were then, and note that they are.

        Those for which ``is_read`` is true are to be read deep, as in ``changed``; None: none are.
        """
        found = 0
        signatures = 0
        for key, signature, version, read in self._known(known.checkpoints):
            if version != __version__ or (is_read is not None and (again or not read) and is_read(key)):
                return False
            found += 1
            signatures += signature
        if found != len(known.checkpoints) or sum_of((signatures,)) != known.signatures:
            return False
        self._note_seen(known.checkpoints)
        return True

    def keep(self, store: str, folder: str, found: Grouped) -> None:
        """Keep what became of a folder."""
        self._insert("listing", [(schema.identity(folder), schema.identity(store), *found.row)])

    def write(self, rows: Rows) -> None:
        """Write the rows of one checkpoint in place of those that it had."""
        (key, *_) = rows["checkpoint_own"][0]
        if self._has_rows and self._one("SELECT EXISTS (SELECT 1 FROM checkpoint_own WHERE id = ?)", (key,)):
            self._forget([key])
        for table, some in rows.items():
            if some:
                self._waiting.setdefault(table, []).extend(some)
        self._written += 1
        if self._written >= _TOGETHER:
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting, self._written = self._waiting, {}, 0
        for table, rows in waiting.items():
            self._insert(table, rows)

    def _insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        self.connection.executemany(self._statements[table], rows)

    def _forget(self, ids: Sequence[int]) -> None:
        self.replaced |= bool(ids)
        for at in range(0, len(ids), _ASKED):
            some = ids[at : at + _ASKED]
            marks = ", ".join("?" * len(some))
            for table in _CHILDREN:
                self.connection.execute(f"DELETE FROM {table} WHERE checkpoint IN ({marks})", some)
            self.connection.execute(f"DELETE FROM checkpoint_own WHERE id IN ({marks})", some)

    def forget_unseen(self, store: str, unlisted: Iterable[str] = (), shard: tuple[int, int] = (1, 1)) -> int:
        """Remove the rows of checkpoints in a store that were not seen, and return how many these were.

        Of folders that could not be listed nobody knows what is gone.
        """
        self.connection.execute(
            "DELETE FROM listing WHERE store = ? AND id NOT IN (SELECT id FROM visited)", (schema.identity(store),)
        )
        if not self._has_rows:
            return 0
        number, of = shard
        here = "/" if is_address(store) else os.sep
        gone = [
            key
            for key, path in self.connection.execute(
                "SELECT id, path FROM checkpoint WHERE (path = ? OR (path >= ? AND path < ?)) AND id % ? = ? "
                "AND id NOT IN (SELECT id FROM seen)",
                (text(store), text(store) + here, text(store) + chr(ord(here) + 1), of, number - 1),
            )
            if not any(path == each or path.startswith(each + here) for each in unlisted)
        ]
        self._forget(gone)
        return len(gone)

    def write_links(self, store: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write what in a store names a checkpoint without being one, in place of what was known of that."""
        here = "/" if is_address(store) else os.sep
        said = (text(store) + here, text(store) + chr(ord(here) + 1))
        self.connection.execute("DELETE FROM reference WHERE checkpoint IS NULL AND source >= ? AND source < ?", said)
        self._insert("reference", rows)

    def take_over(self, other: str) -> int:
        """Write all that another inventory holds, in place of what is known of the same; return its checkpoints."""
        schema.open_inventory(other).close()
        self.commit()
        self.connection.execute("ATTACH ? AS other", (other,))
        try:
            both = self.connection.execute(
                "SELECT id FROM checkpoint_own WHERE id IN (SELECT id FROM other.checkpoint_own)"
            )
            self._forget([key for (key,) in both.fetchall()])
            for table, columns in schema.COLUMNS.items():
                how = "REPLACE" if table in _REPLACE else "IGNORE"
                names = ", ".join(columns)
                self.connection.execute(f"INSERT OR {how} INTO {table} ({names}) SELECT {names} FROM other.{table}")
            number: int = self._one("SELECT count(*) FROM other.checkpoint_own")
            self.commit()
        finally:
            self.connection.rollback()
            self.connection.execute("DETACH other")
        return number

    def tidy(self) -> None:
        """Remove what nothing refers to any more."""
        self._flush()
        if not self.replaced:
            return
        for table, users in _SHARED.items():
            used = " UNION ".join(users)
            self.connection.execute(f"DELETE FROM {table} WHERE {_KEYS.get(table, 'id')} NOT IN ({used})")

    def compact(self) -> None:
        """Write the file without gaps: ids come in no order, so pages are part empty after most rows were written."""
        self.commit()
        with suppress(sqlite3.OperationalError):  # there is no room for a copy, and it is as right without
            self.connection.execute("VACUUM")

    def commit(self) -> None:
        """Have all that was written stay."""
        self._flush()
        self.connection.commit()

    def close(self) -> None:
        """Close it; what was not committed is gone."""
        self.connection.rollback()
        schema.close(self.connection)
