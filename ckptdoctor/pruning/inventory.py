"""Reads from an inventory what prune has to know of each checkpoint of its stores."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing

from ckptdoctor.errors import RefusedError, UsageError
from ckptdoctor.noun import noun
from ckptdoctor.pruning.plan import Held, Pin
from ckptdoctor.shell import quote
from ckptdoctor.stores.schema import audit_command, open_inventory

_FRESH = 3600  # seconds after its last change in which a broken checkpoint may still be written


@noun
class Holdings:
    """What is in the stores of an inventory: its checkpoints, and what calls them by their paths.

    ``signatures`` of checkpoints, by their paths, change with their files.
    """

    inventory: str
    stores: tuple[str, ...]
    checkpoints: tuple[Held, ...]
    pins: tuple[Pin, ...]
    signatures: dict[str, int]


@noun
class Recorded:
    """A file of a checkpoint as it was when it was examined. ``device`` and ``inode`` are None for addresses."""

    path: str
    size: int
    mtime_ns: int
    device: int | None
    inode: int | None


def require_one(inventory: object, trash: object) -> None:
    """Raise UsageError where neither of what prune works on is named, or both are."""
    if (inventory is None) == (trash is None):
        raise UsageError("Name the inventory that ckptdoctor audit wrote, or a trash folder with --restore.")


def holdings(inventory: str, now: float) -> Holdings:
    """Return what an inventory holds; ``now`` is the time in seconds.

    Raises UnreadableError for what is not an inventory, and RefusedError for one that is not complete: what it does not
    name might need what it names.
    """
    with closing(open_inventory(inventory)) as rows:
        stores = _complete(rows, inventory)
        layouts: dict[int, str] = {}
        for checkpoint, layout in rows.execute("SELECT checkpoint, layout FROM member ORDER BY checkpoint, path"):
            layouts[checkpoint] = f"{layouts.get(checkpoint, '')}{layout} "
        needs: dict[int, list[str]] = {}
        pins = []
        for source, checkpoint, kind, target in rows.execute("SELECT source, checkpoint, kind, target FROM reference"):
            if checkpoint is not None and kind == "base":
                needs.setdefault(checkpoint, []).append(target)
            else:
                pins.append(Pin(source, target))
        found, signatures = [], {}
        for each in rows.execute("SELECT * FROM checkpoints"):
            found.append(_held(each, layouts.get(each["id"], ""), tuple(needs.get(each["id"], ())), now))
            signatures[each["path"]] = each["signature"]
    return Holdings(inventory, stores, tuple(found), tuple(pins), signatures)


def _held(row: sqlite3.Row, layout: str, needs: tuple[str, ...], now: float) -> Held:
    unsure = row["error"] or row["unfinished"] or row["disagreement"]
    if row["health"] == "weightless":
        unsure = unsure or "it holds no weights"
    broken = row["level"] is None
    return Held(
        row["path"],
        row["run_path"] or os.path.dirname(row["path"]),
        row["series"],
        layout=layout,
        size=row["bytes"] if row["blocks"] is None else row["blocks"],
        step=row["step"],
        epoch=row["epoch"],
        resumable=row["resumable"] == 1,
        trouble=(row["trouble"] or "it is not valid") if broken else row["trouble"],
        unsure=unsure,
        fresh=now - row["mtime_ns"] / 1e9 < _FRESH,
        needs=needs,
        metric=row["metric"],
        metric_name=row["metric_name"],
        mode=row["metric_mode"],
    )


def _complete(rows: sqlite3.Connection, inventory: str) -> tuple[str, ...]:
    """Return the stores of an inventory whose last audit, of each shard, came to its end and could list all."""
    last: dict[tuple[str, str], sqlite3.Row] = {}
    for row in rows.execute("SELECT * FROM audit ORDER BY started"):
        last[row["stores"], row["shard"]] = row
    why = "It may have missed something that needs what would go. Run it again:"
    stores: dict[str, None] = {}
    shards: dict[str, set[str]] = {}
    for (names, shard), row in last.items():
        options = (f"--shard {shard}",) if shard else ()
        again = f"{why} {audit_command(json.loads(names), inventory, *options)}"
        if row["state"] != "complete":
            raise RefusedError(f"The audit of {', '.join(json.loads(names))} in {inventory} did not finish. {again}")
        unlisted = json.loads(row["unlisted"])
        if unlisted:
            raise RefusedError(f"The audit could not list {unlisted[0][0]}: {unlisted[0][1]} {again}")
        stores |= dict.fromkeys(json.loads(names))
        shards.setdefault(names, set()).add(shard)
    if not stores:
        raise RefusedError(f"{inventory} holds no audit. Name a store: ckptdoctor audit STORE -o {quote(inventory)}")
    for names, every in shards.items():
        count = max(int(each.partition("/")[2] or 1) for each in every)
        if "" not in every and len(every) < count:
            raise RefusedError(
                f"{inventory} holds {len(every)} of {count} shards of {', '.join(json.loads(names))}. "
                f"Merge their databases first: ckptdoctor audit --merge PART.db... -o {quote(inventory)}"
            )
    return tuple(stores)


def is_read_deeply(inventory: str, path: str) -> bool:
    """Return whether every byte of a checkpoint was read by an audit already."""
    with closing(open_inventory(inventory)) as rows:
        row = rows.execute("SELECT deep FROM checkpoint WHERE path = ?", (path,)).fetchone()
    return row is not None and row["deep"] == 1


def recorded(inventory: str, path: str) -> Iterator[Recorded]:
    """Yield the files of a checkpoint as they were when it was examined."""
    with closing(open_inventory(inventory)) as rows:
        yield from (
            Recorded(*row)
            for row in rows.execute(
                "SELECT path, size, mtime_ns, device, inode FROM files "
                "WHERE checkpoint = (SELECT id FROM checkpoint WHERE path = ?)",
                (path,),
            )
        )
