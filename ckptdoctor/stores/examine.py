"""Turns one unit into rows of an inventory: bytes in, rows out, and nothing else happens.

It is examined as ``latest`` examines candidates (``runs.validity``), so that its levels and its findings are those of
``latest`` and of ``check``. Nothing here knows of a database: rows are tuples in the order of the columns of
``schema``, and go through files and pipes as they are.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Any

from ckptdoctor import __version__
from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.crash import one_line, wants_trace
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.findings import FileReport, Finding, Severity
from ckptdoctor.noun import replace
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.remote.entry import entry
from ckptdoctor.remote.listed import Listing, as_listed, failures_noted
from ckptdoctor.runs import kinds
from ckptdoctor.runs.kinds import Kind
from ckptdoctor.runs.listing import below, read_json, read_once
from ckptdoctor.runs.step import disagree, of_name
from ckptdoctor.runs.validity import Deep, Examined, Level, examined, read_deeply, resumable
from ckptdoctor.stores import schema
from ckptdoctor.stores.contents import Checksums, Layout, Reading, layout_of, together
from ckptdoctor.stores.listing import Unit
from ckptdoctor.stores.metric import callbacks_of, metric_of
from ckptdoctor.stores.values import Part, Readers
from ckptdoctor.wording import listed

Rows = dict[str, list[tuple[Any, ...]]]

AGAIN = 0  # a signature that no checkpoint has: it does not count as examined

_KINDS = {
    Kind.FILE: "file",
    Kind.FOLDER: "folder",
    Kind.TRAINER: "trainer",
    Kind.ACCELERATE: "accelerate",
    Kind.DEEPSPEED: "deepspeed",
    Kind.MEGATRON: "megatron",
    Kind.DISTRIBUTED: "distributed",
    Kind.OURS: "ckptdoctor",
}
# findings that mean that bytes or members are missing, not that those that are there are wrong
_MISSING = frozenset({"F001", "F004", "F005", "F006", "F007", "F011", "F013", "X801", "X808"})
_WEIGHTLESS = "W310"  # it was read, and is not a checkpoint of a network
_REMEMBERED = 30_000  # shared rows


def rows_of(unit: Unit, known: set[int], *, deep: bool = False, read: Part | None = None) -> Rows:
    """Return the rows of one checkpoint. What goes wrong in it, a bug of ours included, is its ``error``.

    ``known`` are the ids of shared rows that were given already, and gets those that are given now. ``read`` is what
    of its members was read already (``parts``).
    """
    started = perf_counter()
    try:
        with as_listed(_listing(unit, deep)) as listing, read_once() as once, failures_noted() as failures:
            found = examined(unit.candidate)
            if found.trouble and listing.used:  # it may have been replaced since it was listed
                listing.forget()
                once.clear()
                failures.clear()
                found = examined(unit.candidate)
            rows = _rows(unit, found, known, started, deep, read or {})
            if failures:  # what its server kept back may be what makes it valid, or is the reason why it is not
                known.clear()
                return failed(unit, failures[0], perf_counter() - started, again=True)
            return rows
    except Exception as error:  # one checkpoint must not stop the others
        if wants_trace():
            raise
        known.clear()  # shared rows of this one were noted, and go with it
        said = error.message if isinstance(error, CkptDoctorError) else one_line(error)
        return failed(unit, said, perf_counter() - started)


def _listing(unit: Unit, deep: bool) -> Listing:
    """Return what the listing of a store said of a checkpoint. Those of which every byte is read are asked again."""
    path = unit.candidate.path
    if deep or not is_address(path):
        return Listing()
    files = [
        entry(name, f"{folder}/{name}", False, size, mtime / 1e9, None, False, etag or "")
        for folder, name, size, mtime, _, _, etag, _ in unit.files
    ]
    return Listing(path if unit.candidate.folder else "", files)


def failed(unit: Unit, error: str, seconds: float = 0.0, *, again: bool = False) -> Rows:
    """Return the rows of a checkpoint that could not be examined: it is in the inventory, with the reason.

    ``again``: the next audit examines it, whether it has changed or not.
    """
    rows = _of_unit(unit)
    if again:
        unit = replace(unit, signature=AGAIN)
    _add_checkpoint(rows, unit, {"error": text(error), "health": "unreadable"}, seconds, set())
    return rows


def _rows(unit: Unit, found: Examined, known: set[int], started: float, deep: bool, read: Part) -> Rows:
    candidate = unit.candidate
    able = resumable(found, deep=deep) if not found.trouble else None
    readers = Readers(read)
    every = read_deeply(found, readers.of) if deep and not found.trouble else None
    if every is not None and every.reports:
        found = replace(found, reports=every.reports)
    parts = [*zip(found.parts.paths, found.reports, strict=True)]
    parts += zip(candidate.optimizers, able.optimizers if able is not None else (), strict=False)
    reports = [report for _, report in parts]
    reading = Reading(_checksums(parts, read)) if deep else None
    layouts = [layout_of(each.checkpoint, reading) if each.checkpoint is not None else None for each in reports]
    facts = _facts(found, reports) | _amounts([each for each in layouts if each is not None])
    facts |= {
        "content": together([None if each is None else each.content for each in layouts]),
        "weights": _weights(layouts),
        "levels": 0 if found.trouble else schema.V0,
        "trouble": text(found.trouble),
    }
    if able is not None:
        facts |= {
            "level": 0 if able.trouble else 3,
            "levels": schema.V0 | (0 if able.trouble else schema.V3),
            "resumable": int(not able.trouble),
            "lacks": text(able.trouble),
            "without": listed(able.without) if able.without else "",
        }
    if every is not None:
        facts |= {"wasted_bytes": readers.wasted_bytes} | _proven(facts, every)
    rows = _of_unit(unit)
    identity = schema.identity(candidate.path)
    for number, ((path, report), layout) in enumerate(zip(parts, layouts, strict=True)):
        _add_member(rows, unit, number, path, report, layout, known)
    rows["reference"] = [
        _reference(unit, kind, target, identity) for kind, target in references(unit, found.checkpoints)
    ]
    _add_checkpoint(rows, unit, facts, perf_counter() - started, known)
    return rows


def _checksums(parts: Iterable[tuple[str, FileReport]], read: Part) -> Checksums:
    """Return the checksums that were computed already, of members that are still the same file."""
    found: Checksums = {}
    for path, report in parts:
        if path in read and report.checkpoint is not None:
            from ckptdoctor.examine.shares import is_of

            known, checksums = read[path]
            found |= checksums if is_of(known, report.checkpoint) else {}
    return found


def _is_new(key: int, known: set[int]) -> bool:
    """Return whether a shared row was not given yet, and note that it is now."""
    if key in known:
        return False
    if len(known) >= _REMEMBERED:
        known.clear()
    known.add(key)
    return True


def _proven(facts: dict[str, Any], every: Deep) -> dict[str, Any]:
    """Return the columns that reading every byte changes: what is damaged or not sane is not valid, whatever it has."""
    if every.trouble:
        lacks = {"level": None, "levels": 0, "resumable": 0, "lacks": text(every.trouble), "without": ""}
        return {"deep": 1, "trouble": text(every.trouble), "health": "broken"} | lacks
    levels = facts["levels"] | schema.V2 | (schema.V1 if Level.BYTES in every.levels else 0)
    return {"deep": 1, "levels": levels, "level": 3 if levels & schema.V3 else 2}


def text(said: str) -> str:
    """Return a text that SQLite takes: bytes of names that are not UTF-8 are written out."""
    return said if said.isascii() else said.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


# ---- the row of the checkpoint


def _add_checkpoint(rows: Rows, unit: Unit, facts: dict[str, Any], seconds: float, known: set[int]) -> None:
    candidate = unit.candidate
    blocks = [each[7] for each in unit.files]
    said = _EMPTY | {
        "series": text(candidate.series),
        "folder": int(candidate.folder),
        "unfinished": candidate.unfinished,
        "rules_version": __version__,
        "owner": unit.owner,
    }
    said |= facts
    shared = tuple([said[each] for each in schema.COLUMNS["checkpoint_shared"][1:]])
    key = schema.identity(repr(shared))
    if _is_new(key, known):
        rows["checkpoint_shared"] = [(key, *shared)]
    said |= {
        "id": schema.identity(candidate.path),
        "run": schema.identity(unit.run),
        "name": text(candidate.path.removeprefix(unit.run)),
        "shared": key,
        "bytes": unit.bytes,
        "blocks": sum(each or 0 for each in blocks) if any(each is not None for each in blocks) else None,
        "microseconds": round(seconds * 1e6),
        "signature": unit.signature,
        "mtime_ns": max([each[3] for each in unit.files], default=0),
    }
    rows["checkpoint_own"] = [tuple([said[each] for each in schema.COLUMNS["checkpoint_own"]])]


_EMPTY: dict[str, Any] = {
    **dict.fromkeys(("kind", "format", "family", "step_source", "disagreement"), ""),
    **dict.fromkeys(("metric_name", "metric_source", "metric_mode", "trouble", "lacks", "without", "dtype"), ""),
    **dict.fromkeys(("step", "epoch", "metric", "level", "resumable", "content", "weights", "error", "wasted_bytes")),
    **dict.fromkeys(("complete", "levels", "tensors", "parameters", "optimizer_bytes", "deep"), 0),
}


def _facts(found: Examined, reports: list[FileReport]) -> dict[str, Any]:
    candidate, parts = found.candidate, found.parts
    said, named = found.position, of_name(candidate.numbers)
    step = (said.step if said.step is not None else candidate.numbers.step) if said.known else named.step
    epoch = (said.epoch if said.epoch is not None else named.epoch) if said.known else named.epoch
    unlike = disagree(said, candidate.numbers)
    metric, name, source, mode = metric_of(found)
    formats = [each.container.format for each in reports if each.container is not None]
    return {
        "kind": "" if candidate.unfinished else _KINDS[parts.kind],
        "format": formats[0] if formats else "",
        "family": text(_family(found)),
        "step": step,
        "epoch": epoch,
        "step_source": said.source if said.known else "its name" if named.known else "",
        "disagreement": f"{said.source} says {said}, unlike its name" if unlike else "",
        "metric": metric,
        "metric_name": text(name),
        "metric_source": source,
        "metric_mode": mode,
        "unfinished": candidate.unfinished or parts.unfinished,
        **_health(found, reports),
    }


def _health(found: Examined, reports: list[FileReport]) -> dict[str, Any]:
    error = next((each.error for each in reports if each.error is not None), None)
    codes = {each.code for report in reports for each in report.findings if each.severity is not Severity.INFO}
    if found.candidate.unfinished or found.parts.unfinished:
        return {"complete": 0, "health": "unfinished"}
    if error is not None:
        return {"complete": 0, "health": "unreadable", "error": text(error)}
    lacks = bool(codes & _MISSING or kinds.missing_ranks(found.parts, found.checkpoints))
    if found.trouble:
        weightless = _WEIGHTLESS in codes and found.trouble.endswith(")") and f"({_WEIGHTLESS} " in found.trouble
        return {"complete": int(not lacks), "health": "weightless" if weightless else "broken"}
    worst = max([each.severity.rank for report in reports for each in report.findings], default=0)
    return {"complete": int(not lacks), "health": ("clean", "warning", "error")[worst]}


def _amounts(layouts: list[Layout]) -> dict[str, Any]:
    dtypes: dict[str, int] = {}
    for each in layouts:
        for name, nbytes in each.dtypes.items():
            dtypes[name] = dtypes.get(name, 0) + nbytes
    most = max(dtypes, key=lambda name: (dtypes[name], name), default="")
    return {
        "tensors": sum(each.tensors for each in layouts),
        "parameters": sum(each.parameters for each in layouts),
        "optimizer_bytes": sum(each.optimizer_bytes for each in layouts),
        "dtype": most,
    }


def _weights(layouts: list[Layout | None]) -> int | None:
    """Return the hash of the weights, where one member has them all: files of an optimizer alone have none."""
    found = [each.weights for each in layouts if each is not None and each.weights is not None]
    return found[0] if len(found) == 1 and None not in layouts else None


def _family(found: Examined) -> str:
    """Return the class of the network that a config.json in the folder names."""
    if "config.json" not in found.parts.names:
        return ""
    said = read_json(below(found.candidate.path, "config.json")) or {}
    classes = said.get("architectures")
    first = classes[0] if isinstance(classes, list) and classes else said.get("_class_name", said.get("model_type"))
    return first if isinstance(first, str) else ""


# ---- files, members with their findings, and what is referred to


def _of_unit(unit: Unit) -> Rows:
    """Return the rows of its run and its files: of one in a folder, and of its file, folders are not named again."""
    identity = schema.identity(unit.candidate.path)
    rows: Rows = {"run": [(schema.identity(unit.run), text(unit.run), text(unit.store))], "object": []}
    separator = "/" if is_address(unit.run) else os.sep
    for folder, name, *said in unit.files:
        place = _place(rows, unit, f"{folder}{separator}{name}")
        rows["object"].append((identity, *place, *said))
    return rows


def _place(rows: Rows, unit: Unit, path: str) -> tuple[str, int | None]:
    """Return the columns that make a path: what comes after that of the checkpoint, or its name and its folder."""
    own = unit.candidate.path
    if path.startswith(own):
        return text(path[len(own) :]), None
    end = max(path.rfind("/"), path.rfind(os.sep)) + 1
    key = schema.identity(path[:end])
    rows.setdefault("folder", []).append((key, text(path[:end])))
    return text(path[end:]), key


def _add_member(
    rows: Rows, unit: Unit, number: int, path: str, report: FileReport, layout: Layout | None, known: set[int]
) -> None:
    path = path.rstrip("/") if is_address(path) else path
    place = _place(rows, unit, path)
    name = report.container.format if report.container is not None else ""
    error = None if report.error is None else text(report.error)
    problems = [_problem(each) for each in report.findings]
    ids = [schema.identity("\0".join(each)) for each in problems]
    key = schema.identity(repr((name, layout.key if layout is not None else None, error, ids)))
    if _is_new(key, known):
        rows.setdefault("member_shared", []).append((key, name, layout.key if layout is not None else None, error))
        found = [(key, number, problem) for number, problem in enumerate(ids)]
        rows.setdefault("finding_shared", []).extend(found)
        rows.setdefault("problem", []).extend([(one, *each) for one, each in zip(ids, problems, strict=True)])
        if layout is not None:
            packed = zlib.compress(layout.keys)
            row = (layout.key, layout.tensors, layout.parameters, layout.nbytes, packed)
            rows.setdefault("layout", []).append(row)
    contents = layout.checksums if layout is not None else None
    identity = schema.identity(unit.candidate.path)
    rows.setdefault("member_own", []).append((identity, number, *place, key, contents))


def _problem(finding: Finding) -> tuple[str, ...]:
    words = (finding.code, finding.name, finding.severity.value, finding.message, finding.cause, finding.advice)
    fix = " ".join(finding.fix.options) if finding.fix is not None else ""
    return (*map(text, words), text("\n".join(finding.commands)), text(fix))


def _reference(unit: Unit, kind: str, target: str, checkpoint: int) -> tuple[Any, ...]:
    return reference_row(unit.run, unit.candidate.path, kind, target, checkpoint)


def reference_row(run: str, source: str, kind: str, target: str, checkpoint: int | None = None) -> tuple[Any, ...]:
    """Return the row for what names a checkpoint: a link, or a file of a run."""
    key = schema.identity("\0".join((source, kind, target)))
    said = (schema.identity(run), text(source), checkpoint, kind, text(target))
    return (key, *said, schema.identity(target))


def references(unit: Unit, checkpoints: Iterable[Checkpoint]) -> Iterator[tuple[str, str]]:
    """Yield what a checkpoint with these contents names: the base of an adapter, and what a library calls the best."""
    candidate = unit.candidate
    folder = candidate.path if candidate.folder else os.path.dirname(candidate.path)
    names = {each[1] for each in unit.files}
    if "adapter_config.json" in names:
        base = (read_json(below(folder, "adapter_config.json")) or {}).get("base_model_name_or_path")
        if isinstance(base, str) and base:
            yield "base", _local(base, folder)
    if "trainer_state.json" in names and candidate.folder:
        best = (read_json(below(folder, "trainer_state.json")) or {}).get("best_model_checkpoint")
        if isinstance(best, str) and best:
            yield "best", _next_to(best, os.path.dirname(folder))
    for each in checkpoints:
        for options in callbacks_of(each):
            best = options.get("best_model_path")
            if isinstance(best, str) and best:
                yield "best", _next_to(best, os.path.dirname(folder) if candidate.folder else folder)


def _local(said: str, folder: str) -> str:
    """Return the path that an adapter means with its base; a name that is not there stays what it is."""
    if is_address(said) or is_address(folder):
        return said
    for each in (os.path.abspath(said), os.path.normpath(os.path.join(folder, said))):
        if os.path.exists(each):
            return each
    return said


def _next_to(said: str, folder: str) -> str:
    """Return the checkpoint that a library means: runs are moved as a whole, and paths in them stay what they were."""
    name = os.path.basename(said.rstrip("/"))
    here = below(folder, name)
    if is_address(folder) or os.path.exists(here) or not os.path.exists(said):
        return here
    return os.path.abspath(said)
