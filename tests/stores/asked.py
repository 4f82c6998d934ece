"""Stores whose truth is known, engines that do as they are told, and what inventories hold."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ckptdoctor.stores.audit import AuditRequest, audit
from ckptdoctor.stores.engines.engine import Done
from ckptdoctor.stores.listing import unit_of
from ckptdoctor.stores.parts import result_of
from tests.runs.generated import make

# columns and tables that say when and by whom, which no two audits have in common
PASSING = {"seconds", "microseconds"}
# tables and the views that are asked like tables, with what tells their rows apart
TABLES = {
    **dict.fromkeys(("run", "layout", "checkpoint_own", "checkpoint_shared", "folder", "member_shared"), "id"),
    **dict.fromkeys(("problem", "reference", "checkpoint"), "id"),
    **dict.fromkeys(("member_own", "member"), "checkpoint, number"),
    "finding_shared": "member, number",
    "finding": "checkpoint, member, number",
    "object": "checkpoint, name",
    "files": "checkpoint, path",
}


class Here:
    """An engine in this process: it fails each batch that has one of the ``poison`` in it, as if it died there."""

    width = 2
    workers = 1

    def __init__(self, poison=()):
        self.poison = set(poison)
        self.done = []
        self.batches = []
        self.known = set()

    def submit(self, number, batch):
        """Examine it at once."""
        units = [unit_of(each) for each in batch.units]
        self.batches.append([each.candidate.path for each in units])
        if self.poison & set(self.batches[-1]):
            self.done.append(Done(number, over=True, failure="it was poison"))
            return
        self.done += [Done(number, (result_of(each, self.known, batch.how),)) for each in units]
        self.done.append(Done(number, over=True))

    def completed(self, seconds):
        """All that there is."""
        done, self.done = self.done, []
        return done

    def close(self):
        """Nothing is left open."""


def audited(*stores, output, engine=None, **request):
    """An audit in this process."""
    request = AuditRequest(tuple(map(str, stores)), str(output), **request)
    return audit(request, engine if engine is not None else Here())


def generated(folder, numbers):
    """Runs with planted faults below a folder; returns them with their truth."""
    made = []
    for number in numbers:
        (folder / f"run{number:03}").mkdir(parents=True)
        made.append(make(number, folder / f"run{number:03}"))
    return made


def rows(database, query, *values):
    """What a query gives, as dicts."""
    connection = sqlite3.connect(database)
    connection.row_factory = sqlite3.Row
    try:
        return [dict(each) for each in connection.execute(query, values)]
    finally:
        connection.close()


def checkpoints(database):
    """The rows of all checkpoints by their paths."""
    return {each["path"]: each for each in rows(database, "SELECT * FROM checkpoint")}


def table(database):
    """Every row of every table, as far as two audits of the same store should agree."""
    found = {}
    for name, order in TABLES.items():
        found[name] = [
            {column: value for column, value in each.items() if column not in PASSING}
            for each in rows(database, f"SELECT * FROM {name} ORDER BY {order}")
        ]
    return found


def below(folder, pattern="**/*"):
    """The files below a folder."""
    return [path for path in sorted(Path(folder).glob(pattern)) if path.is_file()]
