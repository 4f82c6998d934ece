"""Reports what was undone, and which changes in place can be."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from ckptdoctor.inplace.history import Entry, UndoReport
from ckptdoctor.inplace.journal import Journal
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.json import SCHEMA, dump
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.wording import plural


def undone(done: UndoReport, paint: Paint | None = None) -> str:
    """What was restored, and how many earlier changes are left."""
    if done.journal is None:
        return f"{escape(done.path)} · nothing to undo: no change in place is recorded next to it"
    what = "the interrupted change" if done.was_hot else f"change {done.journal.number}"
    left = f"; {plural(done.left, 'earlier change')} can be undone" if done.left else ""
    restored = (paint or Paint()).strong("restored")
    return f"{restored} {escape(done.path)} as it was before {what} ({_what(done.journal)}){left}"


def refused(message: str) -> str:
    """Why nothing was restored."""
    return f"refused · {escape(message)}"


def listed(path: str, entries: Sequence[Entry]) -> str:
    """One line for each change, the latest first."""
    if not entries:
        return f"{escape(path)} · nothing to undo: no change in place is recorded next to it"
    lines = []
    for each in entries:
        state = "interrupted" if each.hot else f"change {each.number}"
        if each.journal is None:
            lines.append(f"{state} · {escape(each.trouble)}")
        else:
            lines.append(f"{state} · {_when(each.journal)} · {_what(each.journal)}")
    return "\n".join(lines)


def _what(journal: Journal) -> str:
    return escape("; ".join(journal.told))


def _when(journal: Journal) -> str:
    return datetime.fromtimestamp(journal.made // 10**9, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def undone_json(done: UndoReport, version: str) -> str:
    """``status`` is "restored" or "nothing"."""
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "path": done.path,
            "status": "nothing" if done.journal is None else "restored",
            "message": None,
            "interrupted": done.was_hot,
            "change": _change(done.journal) if done.journal is not None else None,
            "left": done.left,
        }
    )


def refused_json(path: str, message: str, version: str) -> str:
    """``status`` is "refused"."""
    head = {"schema": SCHEMA, "version": version, "path": path, "status": "refused", "message": message}
    return dump({**head, "interrupted": None, "change": None, "left": None})


def listed_json(path: str, entries: Sequence[Entry], version: str) -> str:
    """Every change, the latest first."""
    changes = [
        {
            **(_change(each.journal) if each.journal is not None else {"number": each.number}),
            "interrupted": each.hot,
            "trouble": each.trouble or None,
        }
        for each in entries
    ]
    return dump({"schema": SCHEMA, "version": version, "path": path, "changes": changes})


def _change(journal: Journal) -> dict[str, object]:
    return {"number": journal.number, "made": _when(journal), "repairs": list(journal.told)}
