"""Reads inventories that object stores write of themselves, so that a store need not be listed.

S3 Inventory, and MinIO in the same form, write a ``manifest.json`` with the names of CSV files that have a line for
each object. The lines come in any order, so they are kept in a temporary database until all are read.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any
from urllib.parse import unquote_plus

from ckptdoctor.checkpoint import FileSource
from ckptdoctor.checkpoint.source import AsFile
from ckptdoctor.errors import UnreadableError
from ckptdoctor.remote import open_remote
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.remote.entry import Entry
from ckptdoctor.remote.listed import seconds_of
from ckptdoctor.runs.listing import below, read_small

_SCHEME = "s3://"
_NEEDED = ("Key", "Size")
_SCHEMA = """
CREATE TABLE object (folder TEXT, name TEXT, size INTEGER, modified REAL, etag TEXT);
CREATE TABLE folder (parent TEXT, name TEXT, PRIMARY KEY (parent, name)) WITHOUT ROWID;
"""
_GZIP = b"\x1f\x8b"
_READ = 4 << 20  # bytes of a file that are read at a time
_ROWS = 20_000  # objects that are in memory


class Manifest:
    """The objects of a bucket as its manifest lists them; ``store`` is the address of the bucket."""

    def __init__(self, path: str) -> None:
        said = _manifest(path)
        self.store = f"{_SCHEME}{str(said['sourceBucket']).removeprefix('arn:aws:s3:::')}"
        columns = [each.strip() for each in str(said.get("fileSchema", "")).split(",")]
        lacks = [each for each in _NEEDED if each not in columns]
        if str(said.get("fileFormat", "")).upper() != "CSV" or lacks:
            raise UnreadableError(
                f"{path}: only CSV inventories with Key and Size can be read. Set the store to write CSV, or name the "
                "bucket itself."
            )
        if not all(isinstance(file, dict) and isinstance(file.get("key"), str) for file in said["files"]):
            raise UnreadableError(f"{path} does not name its files by their keys.")
        self._tables = sqlite3.connect("")  # a file without a name, which grows where memory is not enough
        try:
            self._tables.executescript(_SCHEMA)
            for file in said["files"]:
                self._read(_place(path, said, file["key"]), columns)
            self._tables.execute("CREATE INDEX of_folder ON object (folder)")
        except BaseException:
            self.close()
            raise

    def _read(self, path: str, columns: list[str]) -> None:
        with closing(open_remote(path) if is_address(path) else FileSource(path)) as source:
            file = io.BufferedReader(AsFile(source), _READ)
            packed = file.peek(len(_GZIP)).startswith(_GZIP)
            lines = io.TextIOWrapper(gzip.GzipFile(fileobj=file) if packed else file, "utf-8")
            folders: set[str] = set()
            rows = _objects(csv.reader(lines), columns, folders)
            try:
                while some := list(islice(rows, _ROWS)):
                    self._tables.executemany("INSERT INTO object VALUES (?, ?, ?, ?, ?)", some)
                    pairs = [each.rpartition("/")[::2] for each in folders]
                    self._tables.executemany("INSERT OR IGNORE INTO folder VALUES (?, ?)", pairs)
                    folders.clear()
            except (OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError) as error:
                raise UnreadableError(f"{path} is damaged, so the inventory is not complete: {error}.") from error

    def entries(self, path: str) -> list[Entry]:
        """Return what is directly in a folder of the bucket."""
        folder = path[len(self.store) :].strip("/")
        found = [
            Entry(name, below(path, name), False, size, modified, etag=etag)
            for name, size, modified, etag in self._tables.execute(
                "SELECT name, size, modified, etag FROM object WHERE folder = ?", (folder,)
            )
        ]
        names = self._tables.execute("SELECT name FROM folder WHERE parent = ? AND name != ''", (folder,))
        return [*found, *[Entry(name, below(path, name), True, 0, 0.0) for (name,) in names]]

    def close(self) -> None:
        """Give the room back."""
        self._tables.close()


def _manifest(path: str) -> dict[str, Any]:
    try:
        said = json.loads(read_small(path))
    except ValueError as error:
        raise UnreadableError(f"{path} is not a manifest: it is not JSON.") from error
    if not isinstance(said, dict) or not said.get("sourceBucket") or not isinstance(said.get("files"), list):
        raise UnreadableError(f"{path} is not the manifest.json of an inventory of S3 or MinIO.")
    return said


def _place(manifest: str, said: dict[str, Any], key: str) -> str:
    """Return where a file of the inventory is: next to a manifest here, as a copy of it keeps it, or in its bucket."""
    if is_address(manifest):
        bucket = str(said.get("destinationBucket", "")).removeprefix("arn:aws:s3:::")
        return f"{_SCHEME}{bucket}/{key}"
    folder, name = os.path.dirname(os.path.abspath(manifest)), key.rpartition("/")[2]
    places = [os.path.join(folder, key), os.path.join(folder, name), os.path.join(folder, "..", "data", name)]
    places.append(os.path.join(folder, "data", name))
    return next((each for each in places if os.path.isfile(each)), places[1])


def _objects(lines: Iterator[list[str]], columns: list[str], folders: set[str]) -> Iterator[tuple[Any, ...]]:
    """Yield folder, name, size, time and ETag of each object that is there now; note the folders above it."""
    for line in lines:
        row = dict(zip(columns, line, strict=False))
        if row.get("Key") in ("", "Key", None) or not row.get("Size", "").isdecimal():  # a heading, or a delete marker
            continue
        if row.get("IsLatest", "true").lower() == "false" or row.get("IsDeleteMarker", "false").lower() == "true":
            continue
        folder, _, name = unquote_plus(row["Key"]).rpartition("/")
        if not name:  # what consoles put there for an empty folder
            continue
        above = folder
        while above and above not in folders:
            folders.add(above)
            above = above.rpartition("/")[0]
        modified = seconds_of(row.get("LastModifiedDate", "")) or 0.0
        yield folder, name, int(row["Size"]), modified, row.get("ETag", "").strip('"')
