"""Reports the graft of a folder, file by file, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptdoctor.checkpoint import show_path
from ckptdoctor.edits.grafts import FolderGraftReport, GraftReport, Ground, Shard, ShardState
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.json import SCHEMA, dump
from ckptdoctor.rendering.numbers import plural, size
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.wrapping import abridged, wrapped
from ckptdoctor.shell import quote
from ckptdoctor.wording import and_more, beyond, listed

_LISTED = 60  # lines about files
_NAMED = 3  # tensors that a line names
_NAME = 60  # characters of a name
_GROUNDS = {
    Ground.CHECKSUM: "their bytes match the checksums of the original save",
    Ground.PUBLISHED: "the file then has the SHA-256 that was sealed or published for it",
    Ground.COPIES: "both folders agree in everything else that was compared",
    Ground.CONSENT: "you gave --unsafe-fixes: nothing shows that both belong to one save",
}


def planned(report: FolderGraftReport, paint: Paint | None = None, width: int | None = None) -> str:
    """Return the plan: printed before anything is written."""
    return "\n".join(_planned(report, paint or Paint(), width))


def outcome(report: FolderGraftReport, paint: Paint | None = None, width: int | None = None) -> str:
    """Return what was written: printed behind ``planned``. No line is so long that it needs the width."""
    return "\n".join(_outcome(report, paint or Paint()))


def _planned(report: FolderGraftReport, paint: Paint, width: int | None) -> Iterator[str]:
    count = Counter(each.state for each in report.shards)
    told = [f"{count[state]:,} {word}" for state, word in _STATES.items() if count[state]]
    yield f"{escape(report.path)} · {plural(len(report.shards), 'file')} with tensors · {', '.join(told)}"
    likeness = report.likeness
    if likeness.alike:
        yield f"  alike     the folders agree in all {plural(likeness.equal, 'other tensor')} that both have"
    elif likeness.unlike:
        yield (
            f"  alike     the folders agree in {likeness.equal:,} of {plural(likeness.compared, 'other tensor')}: "
            f"{escape(and_more(likeness.unlike, _NAMED, say=show_path))} differ"
        )
    lines = [line for each in report.shards for line in _shard(each, width)]
    yield from lines[:_LISTED]
    if len(lines) > _LISTED:
        yield beyond(len(lines) - _LISTED, "line", before="  and ", after="; --format json lists them all")
    if report.folders:
        yield f"note · not copied: {escape(listed(report.folders, _NAMED, 'folder'))}"


_STATES = {
    ShardState.INTACT: "not known to be damaged",
    ShardState.HEALED: "healed",
    ShardState.REPLACED: "replaced as a whole",
    ShardState.STAYS: "damaged as before",
}


def _shard(shard: Shard, width: int | None) -> Iterator[str]:
    name = _short(shard.name)
    if shard.state is ShardState.HEALED and shard.graft is not None:
        yield f"  healed    {name}   {_tensors(shard.graft)}"
        yield from wrapped(f"            {_because(shard.graft)}", width, "", "            ")
        for each in shard.graft.around:
            yield from wrapped(f"            stays damaged: {escape(each)}", width, "", "            ")
    elif shard.state is ShardState.REPLACED and shard.ground is not None:
        yield f"  replaced  {name}   {abridged(escape(shard.why), 2 * _NAME)}"
        because = f"it has the SHA-256 of {escape(shard.by)}" if shard.by else _GROUNDS[shard.ground]
        yield from wrapped(f"            {because}", width, "", "            ")
    elif shard.state is ShardState.STAYS:
        yield from wrapped(f"  stays     {name}   {escape(shard.why)}", width, "", "            ")


def _tensors(graft: GraftReport) -> str:
    paths = [*[each.path for each in graft.grafted], *[each.path for each in graft.healed]]
    names = and_more(paths, _NAMED, say=lambda path: _short(show_path(path)))
    return f"{plural(len(paths), 'tensor')}: {names}   {size(sum(each.nbytes for each in graft.grafted))}"


def _because(graft: GraftReport) -> str:
    if graft.published:
        return f"the file then has {escape(graft.published)}"
    grounds = {each.ground: None for each in graft.grafted}
    told = [_GROUNDS[each] for each in grounds]
    return "; ".join([*told, *(["single flipped bits are located by their checksums"] if graft.healed else [])])


def _outcome(report: FolderGraftReport, paint: Paint) -> Iterator[str]:
    if report.output is None:
        yield "nothing to do · no tensor is known to be damaged"
        return
    files = plural(len(report.changed), "file")
    if not report.written:
        yield f"would write {escape(report.output)}; nothing was written"
        return
    kept = f"{files} of it replaced" if report.replaces_original else "the original is untouched"
    yield f"{paint.strong('wrote')} {escape(report.output)} in {report.seconds:.2f} s; {kept}"
    yield f"verified · {files} equal to what was planned, every other byte as it was"
    yield f"next · {paint.accent(f'ckptdoctor check --deep {quote(report.output)}')}"


def _short(name: str) -> str:
    return abridged(escape(name), _NAME)


def as_json(report: FolderGraftReport, version: str) -> str:
    """Return the same, schema ``ckptdoctor/1``."""
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "path": report.path,
            "from": report.donor,
            "output": report.output,
            "status": "grafted" if report.written else "planned" if report.output is not None else "nothing to do",
            "message": None,
            "files": [_entry(each) for each in report.shards],
            "alike": {
                "compared": report.likeness.compared,
                "equal": report.likeness.equal,
                "unlike": [show_path(path) for path in report.likeness.unlike],
            },
            "not_copied": list(report.folders),
            "replaces_original": report.replaces_original,
            "seconds": round(report.seconds, 4),
        }
    )


def _entry(shard: Shard) -> dict[str, object]:
    graft = shard.graft
    return {
        "name": shard.name,
        "state": shard.state.value,
        "why": shard.why or None,
        "because": None if shard.ground is None else shard.ground.value,
        "stated_by": shard.by or (graft.published if graft is not None else "") or None,
        "grafted": [] if graft is None else [_taken(show_path(e.path), e.trouble, e.ground) for e in graft.grafted],
        "healed": [] if graft is None else [show_path(each.path) for each in graft.healed],
    }


def _taken(key: str, trouble: str, ground: Ground) -> dict[str, object]:
    return {"key": key, "trouble": trouble, "because": ground.value}
