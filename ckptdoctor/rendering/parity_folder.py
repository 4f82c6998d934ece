"""Reports the files of a folder that were rebuilt from their parity, as text for people and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.json import SCHEMA, dump
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.sealing.parity.folders import FileState, FolderRebuildReport, RebuiltFile
from ckptdoctor.shell import quote
from ckptdoctor.wording import beyond, listed, plural

_LISTED = 60  # files that are named one by one
_NAMED = 3  # folders that are not copied
_NAME = 60  # characters of a name
_STATES = {
    FileState.INTACT: "as sealed",
    FileState.REBUILT: "rebuilt",
    FileState.STAYS: "damaged as before",
}


def rebuilt(report: FolderRebuildReport, paint: Paint | None = None) -> str:
    """Return what was lost of each file, and what became of it."""
    return "\n".join(_rebuilt(report, paint or Paint()))


def _rebuilt(report: FolderRebuildReport, paint: Paint) -> Iterator[str]:
    count = Counter(each.state for each in report.files)
    told = [f"{count[state]:,} {word}" for state, word in _STATES.items() if count[state]]
    yield f"{escape(report.path)} · {plural(len(report.files), 'file')} · {', '.join(told)}"
    lines = [line for each in report.files for line in _file(each)]
    yield from lines[:_LISTED]
    if len(lines) > _LISTED:
        yield beyond(len(lines) - _LISTED, "line", before="  and ", after="; --format json lists them all")
    if report.folders:
        yield f"note · not copied: {escape(listed(report.folders, _NAMED, 'folder'))}"
    if report.output is None:
        yield "nothing to do · every file has its SHA-256"
        return
    if not report.written:
        yield f"would write {escape(report.output)}; nothing was written"
        if report.replaces_original:
            again = f"ckptdoctor rebuild {quote(report.path)} -o {quote(report.output)} --force"
            yield f"next · {paint.accent(again)}"
        return
    files = plural(len(report.changed), "file")
    kept = f"{files} of it replaced" if report.replaces_original else "the original is untouched"
    yield f"{paint.strong('wrote')} {escape(report.output)} in {report.seconds:.2f} s; {kept}"
    has, its = ("has", "its") if len(report.changed) == 1 else ("have", "their")
    yield f"verified · {files} {has} {its} SHA-256 again"
    yield f"next · {paint.accent(f'ckptdoctor verify {quote(report.output)}')}"


def _file(file: RebuiltFile) -> Iterator[str]:
    name = abridged(escape(file.name), _NAME)
    if file.state is FileState.STAYS:
        yield f"  stays     {name}   {escape(file.why)}"
    elif file.rebuild is not None:
        found, size = file.rebuild.losses, file.rebuild.size
        told = [f"{len(found.lost):,} of {plural(found.layout.blocks, 'block')} lost"] if found.lost else []
        told += [f"{size:,} bytes instead of {file.rebuild.sealed_size:,}"] if size != file.rebuild.sealed_size else []
        yield f"  rebuilt   {name}   {', '.join(told)}"


def as_json(report: FolderRebuildReport, version: str) -> str:
    """Return the same, schema ``ckptdoctor/1``."""
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "path": report.path,
            "output": report.output,
            "status": "rebuilt" if report.written else "planned" if report.output is not None else "nothing to do",
            "message": None,
            "files": [_entry(each) for each in report.files],
            "not_copied": list(report.folders),
            "replaces_original": report.replaces_original,
            "seconds": round(report.seconds, 4),
        }
    )


def _entry(file: RebuiltFile) -> dict[str, object]:
    return {
        "name": file.name,
        "state": file.state.value,
        "why": file.why or None,
        "lost": 0 if file.rebuild is None else len(file.rebuild.losses.lost),
        "blocks": None if file.rebuild is None else file.rebuild.losses.layout.blocks,
        "sha256": None if file.rebuild is None else file.rebuild.digest,
    }
