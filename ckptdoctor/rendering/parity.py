"""Reports what parity can rebuild, and a file that was rebuilt, as text for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.json import SCHEMA, dump
from ckptdoctor.rendering.numbers import size
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.sealing.parity.layout import Layout
from ckptdoctor.sealing.parity.losses import ParityVerdict
from ckptdoctor.sealing.parity.rebuild import RebuildReport
from ckptdoctor.shell import quote
from ckptdoctor.wording import beyond, plural

_RANGES = 10  # ranges of bytes that are named one by one


def kept(files: Sequence[tuple[str, int, Layout]]) -> Iterator[str]:
    """Yield what was written as parity, and what can be lost."""
    for path, nbytes, layout in files[:1]:
        if len(files) > 1:
            yield f"parity · {plural(len(files), 'file')} .parity, {size(sum(each[1] for each in files))}"
            return
        yield f"parity · {escape(path)}, {size(nbytes)}: {_bound(layout)}"


def _bound(layout: Layout) -> str:
    """Return what may be lost: any few blocks, and a run of bytes."""
    block = size(layout.block)
    few = f"any {f'{layout.parity} lost blocks' if layout.parity > 1 else 'lost block'} of {block} can be rebuilt"
    return few if layout.groups == 1 else f"{few}, and up to {size(layout.run)} in a row"


def verdict(parity: ParityVerdict, path: str, intact: bool, paint: Paint, name: str = "") -> Iterator[str]:
    """Yield what verify has to say of the parity of a file, ``next`` line included; nothing where both are intact.

    ``name`` is that of the file where there are others, of which its parity knows nothing.
    """
    of = f" of {escape(name)}" if name else ""
    if parity.missing:
        yield f"  parity    {escape(parity.path)} is missing"
    elif parity.damaged and intact:
        again = f"ckptdoctor seal {quote(path)} --parity {parity.percent:g}% --force"
        yield f"  parity    {escape(parity.path)} is damaged. Write it again: {paint.accent(again)}"
    elif parity.trouble:
        yield f"  parity    cannot be used: {escape(parity.trouble)}"
    elif not intact:
        if parity.damaged:
            yield f"  parity    {escape(parity.path)} is partly damaged as well"
        blocks = f"{parity.lost:,} of {plural(parity.blocks, 'block')}"
        if parity.rebuilds:
            able = f"can rebuild all that is lost{of}, {blocks}" if parity.lost else f"no block{of} is lost"
            cut = f"; rebuilding cuts off {plural(parity.behind, 'byte')} behind the end" if parity.behind else ""
            yield f"  parity    {able}{cut}"
            yield f"next · {paint.accent(f'ckptdoctor rebuild {quote(path)}')}"
        else:
            yield f"  parity    too much is lost{of}: {blocks}, of which {parity.can_be_rebuilt:,} can be rebuilt"


def verdict_json(parity: ParityVerdict | None) -> dict[str, object] | None:
    """Return the same as an object."""
    if parity is None:
        return None
    return {
        "path": parity.path,
        "missing": parity.missing,
        "damaged": parity.damaged,
        "message": parity.trouble or None,
        "blocks": parity.blocks,
        "lost": parity.lost,
        "can_be_rebuilt": parity.can_be_rebuilt,
        "rebuilds": parity.rebuilds,
        "behind": parity.behind,
    }


def rebuilt(report: RebuildReport, paint: Paint | None = None) -> str:
    """Return what was lost, and what became of it."""
    return "\n".join(_rebuilt(report, paint or Paint()))


def _rebuilt(report: RebuildReport, paint: Paint) -> Iterator[str]:
    layout, spans = report.losses.layout, report.losses.spans
    lost = f"{len(report.losses.lost):,} of {plural(layout.blocks, 'block')} lost"
    yield f"{escape(report.path)} · {lost} · {escape(report.parity)}"
    for start, stop in spans[:_RANGES]:
        yield f"  lost      bytes {start:,} to {stop - 1:,}"
    if len(spans) > _RANGES:
        yield beyond(len(spans) - _RANGES, "range", before="  and ", after="; --format json lists them all")
    if report.size != report.sealed_size:
        yield f"  size      {report.size:,} bytes; sealed with {report.sealed_size:,}"
    if report.losses.parity:
        yield f"note · {plural(len(report.losses.parity), 'block')} of the parity file is lost as well"
    proof = f"SHA-256 {report.digest[:12]}…, as {escape(report.by)} states"
    if not report.changes:
        yield f"nothing to do · {proof}"
    elif not report.written:
        yield f"would write {escape(report.output or '')}; nothing was written"
    else:
        yield f"{paint.strong('wrote')} {escape(report.output or '')} in {report.seconds:.2f} s"
        yield f"verified · {proof}"


def as_json(report: RebuildReport, version: str) -> str:
    """Return the same, schema ``ckptdoctor/1``; ranges are [first byte, one past the last]."""
    layout = report.losses.layout
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "path": report.path,
            "parity": report.parity,
            "output": report.output,
            "status": "rebuilt" if report.written else "planned" if report.changes else "nothing to do",
            "message": None,
            "blocks": layout.blocks,
            "block": layout.block,
            "lost": len(report.losses.lost),
            "lost_parity": len(report.losses.parity),
            "ranges": [list(each) for each in report.losses.spans],
            "size": report.size,
            "sealed_size": report.sealed_size,
            "sha256": report.digest,
            "stated_by": report.by,
            "seconds": round(report.seconds, 4),
        }
    )


def refused_json(path: str, message: str, version: str, status: str = "refused") -> str:
    """Return a file that was not rebuilt, and why; or work that was "interrupted"."""
    head = {"schema": SCHEMA, "version": version, "path": path, "output": None, "status": status}
    return dump({**head, "message": message})
