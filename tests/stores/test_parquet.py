"""The tables of an inventory are written as Parquet, whole or not at all."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import zlib

import pytest

import ckptdoctor
from ckptdoctor.errors import MissingPackageError, UnreadableError, WriteError
from ckptdoctor.stores.parquet import TABLES
from tests.commands import run_here
from tests.runs.generated import saved, weights, write
from tests.stores.asked import audited, generated, rows

FLAGS = {"folder", "complete", "resumable", "deep"}


@pytest.fixture
def arrow():
    """pyarrow, which only slow tests have."""
    reason = "pyarrow is not installed: pip install -c constraints.txt -e '.[slow]'"
    return pytest.importorskip("pyarrow.parquet", reason=reason)


@pytest.fixture
def database(tmp_path):
    """An inventory with damage, links and layouts."""
    generated(tmp_path / "s", range(3, 9))
    audited(tmp_path / "s", output=tmp_path / "store.db")
    return tmp_path / "store.db"


def test_without_pyarrow_there_is_one_sentence(monkeypatch, tmp_path):
    """It has the command that installs it, and comes before anything is examined."""
    write(tmp_path / "x" / "step_1.pt", saved(weights()))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = run_here("audit", "x", "--export", "parquet", cwd=tmp_path)
    assert result.returncode == 2 and not (tmp_path / "store.db").exists()
    said = result.stderr.decode()
    assert said.startswith("error: --export parquet takes pyarrow, which is not installed: ")
    assert said.endswith(" 'ckptdoctor[parquet]'\n") and said.count("\n") == 1
    with pytest.raises(MissingPackageError, match="pyarrow"):
        ckptdoctor.audit(tmp_path / "x", tmp_path / "a.db", export="parquet")


def test_what_cannot_be_exported_is_told(tmp_path):
    """Another format, and neither a store nor an export."""
    result = run_here("audit", "x", "--export", "csv", cwd=tmp_path)
    assert result.returncode == 2 and b'"csv" is not a format that is written. Use parquet' in result.stderr
    result = run_here("audit", cwd=tmp_path)
    assert result.returncode == 2 and result.stderr.startswith(b"error: Name a store: ")


def as_written(table, name, value):
    """What of a value of SQLite is in Parquet."""
    if table == "checkpoint" and name in FLAGS:
        return None if value is None else bool(value)
    if name == "mtime_ns":
        return value or None
    if name in ("started", "finished"):
        return None if value is None else round(value * 1_000_000)
    if (table, name) == ("layout", "keys"):
        return zlib.decompress(value).decode()
    return value


@pytest.mark.slow
def test_every_row_is_there_with_its_types(arrow, database, tmp_path):
    """One file for each table; integers, booleans, times in UTC and JSON instead of what SQLite has for them."""
    result = run_here("audit", "-o", "store.db", "--export", "parquet", cwd=tmp_path)
    assert result.returncode == 0 and result.stderr.startswith(b"wrote store-parquet: 8 tables with "), result.stderr
    folder = tmp_path / "store-parquet"
    assert {each.name for each in folder.iterdir()} == {f"{name}.parquet" for name in TABLES}
    for name, asked in TABLES.items():
        wanted = [
            {column: as_written(name, column, value) for column, value in each.items()}
            for each in rows(database, f"SELECT * FROM {asked}")
        ]
        found = arrow.read_table(folder / f"{name}.parquet")
        for at, field in enumerate(found.schema):
            if str(field.type).startswith("timestamp"):  # as numbers, which have no time zone
                found = found.set_column(at, field.name, found.column(at).cast("int64"))
        assert wanted and found.to_pylist() == wanted, name
    schema = arrow.read_schema(folder / "checkpoint.parquet")
    kinds = {str(schema.field(name).type) for name in ("id", "step", "bytes", "tensors")}
    assert kinds == {"int64"} and {str(schema.field(name).type) for name in FLAGS} == {"bool"}
    assert str(schema.field("mtime_ns").type) == "timestamp[ns, tz=UTC]"
    (keys,) = arrow.read_table(folder / "layout.parquet").slice(0, 1).column("keys").to_pylist()
    assert len(json.loads(keys)[0]) == 4


@pytest.mark.slow
def test_an_audit_exports_at_its_end(arrow, tmp_path):
    """Into a folder of any name; what was exported before is replaced, whatever tables it had."""
    write(tmp_path / "x" / "step_1.pt", saved(weights()))
    line = ("audit", "x", "--jobs", "1", "--format", "json", "--export", "parquet=out")
    assert json.loads(run_here(*line, cwd=tmp_path).stdout)["exported"] == "out"
    (tmp_path / "out" / "run.parquet").unlink()
    write(tmp_path / "x" / "step_2.pt", saved(weights(2)))
    run_here(*line, cwd=tmp_path)
    assert arrow.read_table(tmp_path / "out" / "checkpoint.parquet").num_rows == 2
    assert {each.name for each in (tmp_path / "out").iterdir()} == {f"{name}.parquet" for name in TABLES}
    exported = ckptdoctor.audit([], tmp_path / "store.db", export=f"parquet={tmp_path / 'again'}").exported
    assert exported.tables == len(TABLES) and exported.nbytes == sum(
        each.stat().st_size for each in (tmp_path / "again").iterdir()
    )
    left = {each.name for each in tmp_path.iterdir() if not each.name.startswith("store.db")}
    assert left == {"again", "out", "x"}


@pytest.mark.slow
def test_nothing_else_is_ever_replaced(arrow, database, tmp_path):
    """A file, a folder with something else in it, and one without a place; the database has to be one."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "run.parquet").write_text("no Parquet")
    for name, why in (("file", "is a file"), ("folder", "holds run.parquet"), ("no/where", "there is no folder")):
        with pytest.raises(WriteError, match=why):
            ckptdoctor.audit([], database, export=f"parquet={tmp_path / name}")
    assert (tmp_path / "file").read_text() == "mine" and os.listdir(tmp_path / "folder") == ["run.parquet"]
    for name in ("file", "missing.db"):
        with pytest.raises(UnreadableError, match=name):
            ckptdoctor.audit([], tmp_path / name, export=f"parquet={tmp_path / 'out'}")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("before", [False, True])
def test_a_failure_leaves_what_was_there(arrow, database, before, tmp_path, monkeypatch):
    """A full disk in the middle of a table, and a database that is damaged: the folder is the old one, or none."""
    export = f"parquet={tmp_path / 'out'}"
    if before:
        ckptdoctor.audit([], database, export=export)
    there = {each.name: each.read_bytes() for each in tmp_path.glob("out/*")}

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(WriteError, match="No space left on device"):
        patched.setattr("ckptdoctor.stores.parquet._write_group", full)
        ckptdoctor.audit([], database, export=export)
    connection = sqlite3.connect(database)
    connection.execute("UPDATE layout SET keys = x'00'")
    connection.commit()
    connection.close()
    with pytest.raises(UnreadableError, match=r"store\.db is damaged"):
        ckptdoctor.audit([], database, export=export)
    assert {each.name: each.read_bytes() for each in tmp_path.glob("out/*")} == there
    left = {"s", "store.db", *(["out"] if before else [])}
    assert {each.name for each in tmp_path.iterdir()} <= left


@pytest.mark.slow
def test_memory_does_not_grow_with_rows(arrow, tmp_path):
    """A quarter of a million rows are several row groups, of which no two are in memory."""
    write(tmp_path / "x" / "step_1.pt", saved(weights()))
    audited(tmp_path / "x", output=tmp_path / "store.db")
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.execute(
        "WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 250000) INSERT INTO reference "
        "SELECT value, 1, hex(randomblob(60)), NULL, 'link', hex(randomblob(60)), value FROM n"
    )
    connection.commit()
    connection.close()
    ckptdoctor.audit([], tmp_path / "store.db", export="parquet")
    found = arrow.ParquetFile(tmp_path / "store-parquet" / "reference.parquet").metadata
    groups = [found.row_group(at).total_byte_size for at in range(found.num_row_groups)]
    assert found.num_rows == 250_000 and len(groups) > 1 and max(groups) < 48 << 20
