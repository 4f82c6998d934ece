"""What others read of an inventory: DuckDB and pandas find what ``sqlite3`` finds, in the database and in Parquet."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

import ckptdoctor
from ckptdoctor.stores.parquet import TABLES
from tests.stores.asked import audited, generated

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "stores.md"


def library(name):
    """One that only slow tests have."""
    return pytest.importorskip(name, reason=f"{name} is not installed: pip install -c constraints.txt -e '.[slow]'")


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """An inventory with damage, duplicates, links and layouts, and its tables as Parquet next to it."""
    library("pyarrow")
    folder = tmp_path_factory.mktemp("read")
    generated(folder / "s", range(3, 9))
    audited(folder / "s", output=folder / "store.db")
    ckptdoctor.audit([], folder / "store.db", export="parquet")
    return folder / "store.db"


@pytest.fixture
def asked(database):
    """Asks SQLite itself."""
    with closing(sqlite3.connect(database)) as connection:
        yield connection.execute


@pytest.fixture
def duck():
    """A connection of DuckDB, which downloads nothing."""
    with closing(library("duckdb").connect(config={"autoinstall_known_extensions": "false"})) as connection:
        yield connection


@pytest.fixture
def attached(database, duck, tmp_path):
    """The database itself, read by DuckDB's extension for SQLite as it is installed by pip."""
    folder = Path(library("duckdb_extension_sqlite").__path__[0])
    (found,) = folder.glob("extensions/*/sqlite.duckdb_extension")
    (tmp_path / "sqlite_scanner.duckdb_extension").symlink_to(found)  # the name that it has for itself
    duck.execute(f"LOAD '{tmp_path}/sqlite_scanner.duckdb_extension'")
    duck.execute(f"ATTACH '{database}' AS store (TYPE sqlite, READ_ONLY)")
    duck.execute("USE store")
    return duck


def told(rows):
    """Rows in no order; DuckDB has other types for sums and flags."""
    return sorted(repr([int(each) if isinstance(each, (bool, Decimal)) else each for each in row]) for row in rows)


def documented(heading):
    """The queries that the page has below a heading."""
    part = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    block = re.findall(r"```sql\n(.*?)```", part, re.DOTALL)[0]
    return [each.strip() for each in block.split(";") if each.strip()]


def test_duckdb_reads_every_table_and_view(attached, asked):
    """It runs the views itself, and cannot list tables where it does not know the SQL of one."""
    names = {name for (name,) in asked("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    assert {name for (name,) in attached.execute("SHOW TABLES").fetchall()} == names and len(names) > 20
    for name in names:
        found = told(attached.execute(f"SELECT * FROM {name}").fetchall())
        assert found and found == told(asked(f"SELECT * FROM {name}")), name


def test_duckdb_answers_what_is_documented(attached, asked):
    """Each query of the page, as SQLite answers it."""
    queries = documented("Queries")
    assert len(queries) == 4
    for query in queries:
        found = told(attached.execute(query).fetchall())
        assert found and found == told(asked(query)), query


def test_duckdb_reads_parquet(database, duck, asked, monkeypatch):
    """The query of the page, and every row of every table."""
    monkeypatch.chdir(database.parent)
    (query,) = documented("Parquet")
    of_table = query.replace("'store-parquet/checkpoint.parquet'", "checkpoint")
    assert of_table != query and told(duck.execute(query).fetchall()) == told(asked(of_table))
    for name, table in TABLES.items():
        columns = [each for each, *_ in duck.execute(f"DESCRIBE FROM 'store-parquet/{name}.parquet'").fetchall()]
        same = ", ".join(each for each in columns if each not in ("mtime_ns", "started", "finished", "keys"))
        found = told(duck.execute(f"SELECT {same} FROM 'store-parquet/{name}.parquet'").fetchall())
        assert found and found == told(asked(f"SELECT {same} FROM {table}")), name


def test_pandas_reads_both(database, asked):
    """The database by ``sqlite3``, and a file of Parquet."""
    pandas = library("pandas")
    with closing(sqlite3.connect(database)) as connection:
        frame = pandas.read_sql("SELECT * FROM checkpoints", connection)
    assert len(frame) == asked("SELECT count(*) FROM checkpoint").fetchone()[0]
    by_health = dict(asked("SELECT health, count(*) FROM checkpoint GROUP BY health"))
    assert frame["health"].value_counts().to_dict() == by_health and len(by_health) > 2
    table = pandas.read_parquet(database.parent / "store-parquet" / "checkpoint.parquet")
    assert sorted(table["path"]) == sorted(frame["path"]) and table["bytes"].sum() == frame["bytes"].sum()
    assert str(table["mtime_ns"].dtype) == "datetime64[ns, UTC]"
