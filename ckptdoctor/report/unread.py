"""What is said on the side of a checkpoint of which files are missing or damaged, where others are shown."""

from __future__ import annotations

from shlex import quote

from ckptdoctor.checkpoint import ROOT, Checkpoint, KeyPath, addresses
from ckptdoctor.checkpoint.unread import lists_all, told_of, unheld, unread_files


def left_out(checkpoint: Checkpoint, done: str, root: KeyPath = ROOT) -> str:
    """Which files are missing or damaged, and what follows for the part at ``root``; "" where none are.

    ``done`` says what was not done with them: "is not shown". The text is not escaped.
    """
    unread, lacking = unread_files(checkpoint, root), unheld(checkpoint)
    more = f"“ckptdoctor check {quote(addresses.shown(checkpoint.path))}” says more."
    if not unread:
        return f"{told_of(checkpoint, lacking)}: {more}" if lacking else ""
    where = "it" if len(unread) == 1 else "them"
    what = f"The values in {where} are not there" if lists_all(checkpoint) else f"What belongs in {where} {done}"
    return f"{told_of(checkpoint, (*unread, *lacking))}. {what}: {more}"
