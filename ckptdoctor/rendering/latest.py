"""Renders what a search for the newest checkpoint of a run found, and why newer ones were passed over."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.rendering.json import SCHEMA, dump
from ckptdoctor.runs.latest import Latest, Search
from ckptdoctor.runs.validity import Level
from ckptdoctor.wording import listed


def told(search: Search) -> str:
    """The level that was proven, and a line for each newer checkpoint that was passed over."""
    return "\n".join(_lines(search))


def _lines(search: Search) -> Iterator[str]:
    found = search.found
    if found is not None:
        levels = ", ".join([f"{each.value} {each.meaning}" for each in found.levels])
        yield " · ".join([each for each in (found.name, _step(found), levels) if each])
        if found.without:
            yield f"  resumes without {listed(found.without)}: none was saved"
        if found.unproven:
            yield f"  V1 not proven: {found.unproven}"
    for each in search.passed_over:
        yield f"  passed over {each.name}: {each.reason}"
    for disagreement in search.disagreements:
        yield f"  {disagreement}"


def _step(found: Latest) -> str:
    said = [f"step {found.step:,}"] if found.step is not None else []
    if found.epoch is not None:
        said.append(f"epoch {found.epoch:g}")
    return f"{', '.join(said)} (from {found.step_from})" if said else "no step in its contents or its name"


def nothing(search: Search) -> str:
    """Why there is no path: one sentence."""
    if not search.candidates:
        return f"{search.run} holds no checkpoint."
    what = "intact and resumable" if Level.RESUMABLE in search.asked else "intact"
    if search.candidates == 1:
        return f"The only checkpoint in {search.run} is not {what}."
    return f"None of the {search.candidates:,} checkpoints in {search.run} is {what}."


def as_json(search: Search, version: str) -> str:
    """The same, schema ``ckptdoctor/1``; ``path`` is null where there is none."""
    found = search.found
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "run": search.run,
            "path": None if found is None else found.path,
            "step": None if found is None else found.step,
            "epoch": None if found is None else found.epoch,
            "step_from": None if found is None else found.step_from,
            "levels": [] if found is None else [each.value for each in found.levels],
            "without": [] if found is None else list(found.without),
            "unproven": "" if found is None else found.unproven,
            "passed_over": [
                {"path": each.path, "name": each.name, "reason": each.reason} for each in search.passed_over
            ],
            "disagreements": list(search.disagreements),
            "candidates": search.candidates,
            "opened": search.opened,
            "seconds": round(search.seconds, 3),
        }
    )
