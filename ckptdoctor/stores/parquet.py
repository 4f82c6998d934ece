"""Writes an inventory as Parquet, one file for each table in a folder: for pandas, DuckDB, Spark and others.

These are the tables as people ask them: paths and texts are put together, for Parquet keeps what rows have in common
only once. Columns have the names of ``schema`` and the types that they mean: flags are booleans, times are timestamps
in UTC, NULL where nobody knows them. The keys of a layout are the JSON that is packed in the inventory.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from ckptdoctor.checkpoint import process
from ckptdoctor.checkpoint.progress import phase
from ckptdoctor.crash import installing
from ckptdoctor.errors import MissingPackageError, UnreadableError, UsageError, WriteError
from ckptdoctor.noun import noun
from ckptdoctor.shell import quote
from ckptdoctor.stores.schema import open_inventory
from ckptdoctor.writing.interrupts import cleaned_up
from ckptdoctor.writing.system import sync_directory
from ckptdoctor.writing.target import Target, require_folder, temporary_name
from ckptdoctor.writing.unfinished import sweep, temporary_folder

if TYPE_CHECKING:
    import pyarrow

KIND = "parquet"
_SUFFIX = ".parquet"
_MAGIC = b"PAR1"  # https://parquet.apache.org/docs/file-format/
# rows that are Python's at a time, bytes of packed columns in them, and bytes of a row group: memory ends there
_ROWS, _PACKED, _GROUP = 8_192, 2 << 20, 32 << 20
# the name of each file, and what of the inventory is in it
TABLES = {
    "audit": "audit",
    "run": "run",
    "checkpoint": "checkpoint",
    "file": "files",
    "member": "member",
    "finding": "findings",
    "layout": "layout",
    "reference": "reference",
}
_FLAGS = {"checkpoint": ("folder", "complete", "resumable", "deep")}
_SECONDS = ("started", "finished")
_COMPUTED = {"path": "TEXT", "seconds": "REAL"}  # columns of views for which SQLite names no type


@noun
class Exported:
    """A folder with one file for each of so many tables, which have so many rows together, in so many bytes."""

    folder: str
    tables: int
    rows: int
    nbytes: int


def folder_of(said: str, inventory: str) -> str:
    """Return the folder that ``--export`` names: "parquet" is one next to the inventory, "parquet=FOLDER" another.

    It is asked before an audit begins. Raises UsageError for another kind, MissingPackageError without pyarrow, and
    WriteError for a folder that cannot be written, or holds anything else.
    """
    kind, _, named = said.partition("=")
    if kind != KIND:
        raise UsageError(f'--export: "{kind}" is not a format that is written. Use parquet, or parquet=FOLDER.')
    _arrow()
    folder = named or f"{os.path.splitext(inventory)[0]}-{KIND}"
    _require_replaceable(folder)
    return folder


def export(inventory: str, folder: str) -> Exported:
    """Write all tables of an inventory as they are at this moment into a folder, which gets its name at the end.

    An earlier export is replaced. Raises what ``folder_of`` raises, and UnreadableError for what is not an inventory.
    """
    arrow = _arrow()
    with closing(open_inventory(inventory)) as rows:
        return Exported(folder, len(TABLES), *_export(arrow, rows, inventory, folder))


def _export(arrow: Any, rows: sqlite3.Connection, inventory: str, folder: str) -> tuple[int, int]:
    """Return how many rows and bytes were written."""
    path = os.path.realpath(folder)
    parent = require_folder(folder)
    try:
        sweep(parent)
        with cleaned_up(), temporary_folder(Target(path, parent, replaces=False)) as made:
            written = _write_tables(arrow, rows, made)
            sync_directory(made)
            _require_replaceable(folder)
            with process.patience():
                _take_the_place(made, path, parent)
        return written
    except (sqlite3.Error, zlib.error, UnicodeDecodeError, arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
        raise UnreadableError(
            f"{inventory} is damaged: {error}. Make it again with ckptdoctor audit STORE... -o {quote(inventory)}"
        ) from error
    except OSError as error:
        raise WriteError(f"{folder} could not be written: {error.strerror or error}. Nothing has changed.") from error


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"--export parquet takes pyarrow, which is not installed: {installing()} 'ckptdoctor[parquet]'"
        ) from error
    return pyarrow


def _require_replaceable(folder: str) -> None:
    """Raise WriteError unless the folder can be made, or holds nothing but an earlier export."""
    require_folder(folder)
    path = os.path.realpath(folder)
    if not os.path.lexists(path):
        return
    if not os.path.isdir(path):
        raise WriteError(f"{folder} is a file. Name a folder: --export parquet=FOLDER")
    for name in os.listdir(path):
        table, suffix = os.path.splitext(name)
        if suffix != _SUFFIX or table not in TABLES or not _is_parquet(os.path.join(path, name)):
            raise WriteError(
                f"{folder} holds {name}, which is not of an export, so it is never replaced. "
                "Name another folder: --export parquet=FOLDER"
            )


def _is_parquet(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:  # not ours to read, so not ours to replace
        return False


def _take_the_place(made: str, path: str, parent: str) -> None:
    """Give the folder its name. One that has it is put aside first, and removed when all is done."""
    if not os.path.lexists(path):
        os.rename(made, path)
        sync_directory(parent)
        return
    aside = temporary_name(Target(path, parent, replaces=True))
    os.rename(path, aside)
    try:
        os.rename(made, path)
    except OSError:
        os.rename(aside, path)
        raise
    sync_directory(parent)
    with suppress(OSError):  # the next who writes here removes what is left
        for name in os.listdir(aside):
            os.unlink(os.path.join(aside, name))
        os.rmdir(aside)


# ---- tables

_KINDS = {"INTEGER": "int64", "REAL": "float64", "TEXT": "string", "BLOB": "binary"}


def _write_tables(arrow: Any, connection: sqlite3.Connection, folder: str) -> tuple[int, int]:
    """Write a file for each table; return how many rows and bytes these are together."""
    connection.row_factory = None
    connection.execute("BEGIN")  # whatever an audit writes meanwhile, all tables are of one moment
    counts = [connection.execute(f"SELECT count(*) FROM {asked}").fetchone()[0] for asked in TABLES.values()]
    nbytes = 0
    with phase("writing tables", sum(counts), "rows") as told:
        for table in TABLES:
            with open(os.path.join(folder, f"{table}{_SUFFIX}"), "wb") as file:
                for number in _write_table(arrow, connection, table, file):
                    told.advance(number)
                file.flush()
                os.fsync(file.fileno())
                nbytes += file.tell()
    connection.rollback()
    return sum(counts), nbytes


def _write_table(arrow: Any, connection: sqlite3.Connection, table: str, file: Any) -> Iterator[int]:
    """Write the rows of a table, and yield how many after each row group."""
    asked = TABLES[table]
    said = [(name, kind) for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({asked})")]
    kinds = {name: _COMPUTED.get(name, "TEXT") if kind not in _KINDS else kind for name, kind in said}
    schema = arrow.schema([(name, _type(arrow, table, name, kind)) for name, kind in kinds.items()])
    packed = [at for at, kind in enumerate(kinds.values()) if kind == "BLOB"]
    rows = connection.execute(f"SELECT {', '.join(kinds)} FROM {asked}")
    group: list[pyarrow.RecordBatch] = []
    with arrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for some in _several(rows, packed):
            columns = zip(kinds, schema.types, zip(*some, strict=True), strict=True)
            made = [arrow.array(_meant(table, name, values), kind) for name, kind, values in columns]
            group.append(arrow.RecordBatch.from_arrays(made, schema=schema))
            if sum(each.nbytes for each in group) >= _GROUP:
                yield _write_group(arrow, writer, group)
        if group:
            yield _write_group(arrow, writer, group)


def _write_group(arrow: Any, writer: Any, group: list[pyarrow.RecordBatch]) -> int:
    table = arrow.Table.from_batches(group)
    group.clear()
    writer.write_table(table, row_group_size=table.num_rows)
    number: int = table.num_rows
    return number


def _several(rows: sqlite3.Cursor, packed: Sequence[int]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield rows, so many at a time that they take little room."""
    some: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        some.append(row)
        size += sum([len(row[at] or b"") for at in packed])
        if len(some) >= _ROWS or size >= _PACKED:
            yield some
            some, size = [], 0
    if some:
        yield some


def _type(arrow: Any, table: str, name: str, kind: str) -> Any:
    if name in _FLAGS.get(table, ()):
        return arrow.bool_()
    if name.endswith("_ns"):
        return arrow.timestamp("ns", tz="UTC")
    if name in _SECONDS:
        return arrow.timestamp("us", tz="UTC")
    if _is_json(table, name):
        return arrow.string()
    return getattr(arrow, _KINDS[kind])()


def _is_json(table: str, name: str) -> bool:
    return (table, name) == ("layout", "keys")


def _meant(table: str, name: str, values: Sequence[Any]) -> Sequence[Any]:
    """Return the values as their type has them."""
    if name in _FLAGS.get(table, ()):
        return [None if each is None else bool(each) for each in values]
    if name.endswith("_ns"):
        return [each or None for each in values]
    if name in _SECONDS:
        return [None if each is None else round(each * 1_000_000) for each in values]
    if _is_json(table, name):
        return [None if each is None else zlib.decompress(each).decode() for each in values]
    return values
