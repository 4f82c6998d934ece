"""Renders what prune would let go and why the rest stays, what it moved, and what came back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from ckptdoctor.pruning.plan import Held, Plan, Verdict
from ckptdoctor.pruning.prune import Outcome
from ckptdoctor.pruning.trash import Restored
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.json import SCHEMA, dump
from ckptdoctor.rendering.numbers import plural, size
from ckptdoctor.shell import quote


def planned(made: Plan) -> str:
    """One block for each run: what goes, and what stays with its reasons; then the sum."""
    return "\n".join([*_blocks(made.verdicts), total(made)])


def _blocks(verdicts: Sequence[Verdict]) -> Iterator[str]:
    for run, every in groupby(verdicts, key=lambda each: each.held.run):
        found = list(every)
        going = [each.held for each in found if not each.stays]
        freed = f"{plural(len(going), 'goes', 'go')}: {size(_bytes(going))}" if going else "none goes"
        yield f"{escape(run)} · {plural(len(found), 'checkpoint')}, {freed}"
        names = [escape(os.path.relpath(each.held.path, run)) for each in found]
        longest = max(map(len, names))
        for each, name in zip(found, names, strict=True):
            what = "stays" if each.stays else "goes "
            yield f"  {what}  {name:<{longest}}  {size(each.held.size):>9}  {escape('; '.join(each.reasons))}"
        yield ""


def total(made: Plan) -> str:
    """How many may go, and the bytes of them."""
    count, of = len(made.going), len(made.verdicts)
    if not count:
        return f"Nothing may go: {plural(of, 'checkpoint stays', 'checkpoints stay')}."
    return f"{count:,} of {plural(of, 'checkpoint')} may go: {size(made.freed)} of {size(_bytes(_held(made)))}."


def _held(made: Plan) -> list[Held]:
    return [each.held for each in made.verdicts]


def _bytes(every: Iterable[Held]) -> int:
    return sum(each.size for each in every)


def moved(outcome: Outcome) -> str:
    """What became of one that was to go."""
    path = escape(outcome.held.path)
    return f"stayed {path}: {escape(outcome.trouble)}" if outcome.trouble else f"moved  {path}"


def done(outcomes: Sequence[Outcome]) -> str:
    """How many were moved, where to, how all of them come back, and when the space is free."""
    gone = [each for each in outcomes if not each.trouble]
    if not gone:
        return "Nothing was moved."
    lines = [f"Moved {plural(len(gone), 'checkpoint')}: {size(_bytes([each.held for each in gone]))}."]
    for trash in dict.fromkeys([each.trash for each in gone]):
        lines.append(f"To bring them back: ckptdoctor prune --restore {quote(trash)}")
        lines.append(f"The space is free once you delete that folder: rm -r {quote(trash)}")
    return "\n".join(lines)


def restored(outcome: Restored) -> str:
    """What came back, or stayed in the trash."""
    path = escape(outcome.path)
    return f"kept in the trash: {path}: {escape(outcome.trouble)}" if outcome.trouble else f"restored {path}"


def came_back(trash: str, every: Sequence[Restored], *, over: bool) -> str:
    """How many came back, and, where some did not, how the rest does."""
    back = [each for each in every if not each.trouble]
    said = f"Restored {plural(len(back), 'checkpoint or file', 'checkpoints and files')} from {escape(trash)}."
    if over and len(back) == len(every):
        return said
    return f"{said}\nTo bring the rest back: ckptdoctor prune --restore {quote(trash)}"


# ---- JSON


def as_json(made: Plan, outcomes: Sequence[Outcome], version: str, *, applied: bool) -> str:
    """The plan, schema ``ckptdoctor/1``; ``moved_to`` and ``trouble`` are null where nothing was applied."""
    became = {each.held.path: each for each in outcomes}
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "applied": applied,
            "bytes": _bytes(_held(made)),
            "bytes_going": made.freed,
            "checkpoints": [_verdict(each, became.get(each.held.path)) for each in made.verdicts],
        }
    )


def _verdict(verdict: Verdict, outcome: Outcome | None) -> dict[str, object]:
    held = verdict.held
    return {
        "path": held.path,
        "run": held.run,
        "step": held.step,
        "epoch": held.epoch,
        "bytes": held.size,
        "valid": held.valid,
        "stays": verdict.stays,
        "reasons": list(verdict.reasons),
        "moved_to": outcome.trash or None if outcome is not None else None,
        "trouble": outcome.trouble or None if outcome is not None else None,
    }


def restored_json(trash: str, every: Sequence[Restored], version: str) -> str:
    """What came back, and what stayed in the trash and why."""
    head = {"schema": SCHEMA, "version": version, "trash": trash}
    return dump({**head, "restored": [{"path": each.path, "trouble": each.trouble or None} for each in every]})
