"""Renders what is found of the checkpoints of a run that is watched: a line each, in text or as JSON."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from ckptdoctor.checkpoint import show_path
from ckptdoctor.findings import Severity
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.json import SCHEMA
from ckptdoctor.rendering.numbers import count, plural, size
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.value_numbers import number
from ckptdoctor.watching.judging import Watched, in_epochs
from ckptdoctor.watching.watch import Began, Watcher
from ckptdoctor.wording import listed

_PLAIN = Paint()
_NAMED = 3


def line(each: Watched, paint: Paint = _PLAIN, *, resumable: bool = True) -> str:
    """Return the line of a checkpoint; without ``resumable`` not why training could not resume from it."""
    clock = datetime.fromtimestamp(each.saved).strftime("%Y-%m-%d %H:%M:%S") if each.saved else ""
    verdict = f"valid: {', '.join([f'{level.value} {level.meaning}' for level in each.levels])}"
    parts = [
        each.name,
        _step(each.step, each.epoch, each.steps_of_epoch),
        size(each.nbytes),
        _since(each),
        _moved(each),
        "" if each.trouble else verdict,
    ]
    if resumable and each.valid and each.unresumable:
        parts.append(f"not resumable: {each.unresumable.removesuffix(', so it cannot resume')}")
    said = [escape(part) for part in parts if part]
    if each.trouble:
        said.append(paint.severity(Severity.ERROR, escape(f"invalid: {each.trouble}")))
    return f"{paint.dim(clock)} {' · '.join(said)}" if clock else " · ".join(said)


def _step(step: int | None, epoch: float | None, steps_of_epoch: bool) -> str:
    """Return ``step 1,000``, ``epoch 3``, ``epoch 3, step 57`` of the next one."""
    said = [] if epoch is None or not steps_of_epoch else [f"epoch {epoch:g}"]
    said += [f"step {count(step)}"] if step or (step is not None and not said) else []
    return ", ".join(said)


def _since(each: Watched) -> str:
    if each.since is None or each.seconds_since is None:
        return ""
    before = each.seconds_since < 0
    other = each.since if each.since != each.name else "it was last saved"
    return f"{duration(abs(each.seconds_since))} {'before' if before else 'after'} {other}"


def _moved(each: Watched) -> str:
    if each.moved is None:
        told = each.unmeasured and each.valid  # else the line says what is wrong
        return f"weights not compared with {each.since}: {each.unmeasured}" if told else ""
    about = "about " if each.estimated else ""
    return f"weights moved {about}{number(100 * each.moved)} %" if each.moved else "weights unchanged"


def duration(seconds: float) -> str:
    """Return ``4.2 s``, ``4 min 10 s``, ``2 h 3 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def began(each: Began) -> str:
    """Return what was there when the watching began."""
    if not each.there:
        return f"{each.run} does not exist yet: waiting for its first checkpoint."
    if not each.existing:
        return f"{each.run} has no checkpoint yet: waiting for the first."
    there = f"{each.run} has {plural(each.existing, 'checkpoint')}"
    if not each.newest:
        return f"{there}, none of them valid: waiting for the next."
    far = _step(each.reached.step, each.reached.epoch, in_epochs(each.reached))
    return f"{there}; the newest valid one is {each.newest}{f' at {far}' if far else ''}. Waiting for the next."


def ended(why: str, watcher: Watcher) -> str:
    """Return how it ended: a reason, how many checkpoints there were, and what is not complete."""
    wrong = f", {count(watcher.invalid)} invalid" if watcher.invalid else ", all valid" if watcher.lines else ""
    what = f"{plural(watcher.lines, 'checkpoint')} in {duration(watcher.seconds)}{wrong}."
    said = f"{why}: {what}" if why else what
    left = [f"{name} ({reason})" for name, reason in watcher.unfinished.items()]
    return f"{said} Not complete: {listed(left, _NAMED)}." if left else said


def as_json(each: Watched, version: str) -> str:
    """Return the same as one line of JSON, schema ``ckptdoctor/1``."""
    document = {
        "schema": SCHEMA,
        "version": version,
        "run": each.run,
        "path": each.path,
        "name": each.name,
        "step": each.step,
        "epoch": each.epoch,
        "step_from": each.step_from,
        "steps_of_epoch": each.steps_of_epoch,
        "bytes": each.nbytes,
        "saved": datetime.fromtimestamp(each.saved, timezone.utc).isoformat() if each.saved else None,
        "valid": each.valid,
        "levels": [level.value for level in each.levels],
        "trouble": each.trouble,
        "findings": [
            {"code": found.code, "name": found.name, "message": found.message, "keys": [*map(show_path, found.keys)]}
            for found in each.findings
        ],
        "unproven": each.unproven,
        "unresumable": each.unresumable,
        "since": each.since,
        "seconds_since": None if each.seconds_since is None else round(each.seconds_since, 3),
        "moved": each.moved,
        "estimated": each.estimated,
        "unmeasured": each.unmeasured,
    }
    return json.dumps(document, allow_nan=False)
