"""Reports a salvage, as text for people and as JSON: what was saved, and what was lost."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import show_path
from ckptdoctor.findings import Loader, LostTensor, NextStep, SalvageReport
from ckptdoctor.rendering import loading
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.flipped_bits import as_entry, flipped_back
from ckptdoctor.rendering.json import SCHEMA, dump
from ckptdoctor.rendering.numbers import plural, shape, size
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.wording import beyond, format_name, percent

_ALL = "; --format json lists them all"
_LISTED = 20  # tensors that are named one by one
_NAME = 60  # characters of a name
_REASON = 120  # characters of what is wrong with it
_OF_FILE = 240  # characters of why nothing of a file is saved


def render(report: SalvageReport, paint: Paint | None = None) -> str:
    """Return the outcome as text: what is intact, what is not, what was written, and what to do with it."""
    return "\n".join(_lines(report, paint or Paint()))


def as_json(report: SalvageReport, version: str) -> str:
    """Return it as JSON, schema ``ckptdoctor/1``; ``share`` of a lost tensor's bytes is there, from 0 to 1."""
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "path": report.path,
            "output": report.output,
            "format": report.format,
            "recovered": {
                "tensors": report.recovered,
                "bytes": report.recovered_bytes,
                "verified": report.verified,
            },
            "lost": [_entry(each) for each in report.lost],
            "lost_files": list(report.lost_files),
            "replaced_by_none": [show_path(path) for path in report.left_out],
            "healed": [as_entry(each) for each in report.healed],
            "notes": list(report.notes),
            "next": next_step(report) or None,
        }
    )


def refused_json(path: str, message: str, version: str, status: str = "refused") -> str:
    """Return the outcome as JSON where nothing was written; ``status`` says why: "refused" or "interrupted"."""
    head = {"schema": SCHEMA, "version": version, "path": path, "output": None, "status": status}
    return dump({**head, "message": message})


def _entry(lost: LostTensor) -> dict[str, object]:
    return {
        "key": show_path(lost.path),
        "dtype": lost.dtype or None,
        "shape": list(lost.shape) if lost.dtype else None,
        "bytes": lost.nbytes,
        "share": round(lost.share, 6),
        "damage": lost.damage or None,
    }


def _lines(report: SalvageReport, paint: Paint) -> Iterator[str]:
    yield f"{escape(report.path)} · {format_name(report.format)} · {_whole(report)}"
    yield f"  recovered  {plural(report.recovered, 'tensor')}   {size(report.recovered_bytes)}   {vouched(report)}"
    useless = [each for each in report.lost if each.share == 1]
    gone = [each for each in report.lost if not each.share]
    for name, some in (("left out", useless), ("partial", report.partial), ("lost", gone)):
        if some:
            amount = size(sum(each.nbytes for each in some)) if all(each.dtype for each in some) else ""
            yield f"  {name:<9}  {plural(len(some), 'tensor')}   {amount}".rstrip()
    yield from _table(report)
    yield from flipped_back(report.healed, 11)
    yield f"{paint.strong('wrote')} {escape(report.output)}; the original is untouched"
    healed = f", except for {plural(len(report.healed), 'healed bit')}" if report.healed else ""
    yield f"verified · everything in it equals the original{healed}"
    if report.lost or report.lost_files:
        yield f"note · {what_it_means(report)}"
    yield from (f"note · {escape(each)}" for each in report.notes)
    yield from loading.lines(report.next, next_step(report), paint, None)


def _whole(report: SalvageReport) -> str:
    """Return the share that is saved, as far as it is known."""
    if _unlisted(report):
        return f"{plural(report.recovered, 'tensor')} recovered"
    whole = f"{report.recovered:,} of {plural(report.recovered + len(report.lost), 'tensor')} recovered"
    if not all(each.dtype for each in report.lost):  # of what only an index names nothing is known
        return whole
    lost = sum(each.nbytes for each in report.lost)
    return f"{whole}, {_saved(report.recovered_bytes, report.recovered_bytes + lost)} of the values"


def _unlisted(report: SalvageReport) -> list[str]:
    """Return the files of which nothing is saved, and nothing says what they held."""
    listed = {each.damage for each in report.lost}
    return [each for each in report.lost_files if each not in listed]


def vouched(report: SalvageReport) -> str:
    """Return the share of what is saved that a checksum vouches for."""
    if report.verified == report.recovered:
        return "every one verified by its checksum" if report.recovered else ""
    if not report.verified:
        return "there are no checksums to verify them"
    return f"{report.verified:,} verified by their checksums; the others have none"


def _table(report: SalvageReport) -> Iterator[str]:
    listed = sorted(report.lost, key=lambda each: -each.share)[:_LISTED]
    known = [(_name(each), each) for each in listed if each.dtype]
    room = max((len(name) for name, _ in known), default=0)
    for name, each in known:
        yield f"    {name:<{room}}   {each.dtype} {shape(each.shape)}   {state(each)}"
    for reason in dict.fromkeys([each.damage for each in listed if not each.dtype]):  # of whole files: said once
        yield f"    {abridged(escape(reason), _OF_FILE)}"
        yield from (f"      {_name(each)}" for each in listed if not each.dtype and each.damage == reason)
    if len(report.lost) > len(listed):
        yield beyond(len(report.lost) - len(listed), before="    and ", after=_ALL)
    unlisted = _unlisted(report)
    for reason in unlisted[:_LISTED]:
        yield f"    {abridged(escape(reason), _OF_FILE)}; nothing shows which tensors it held"
    if len(unlisted) > _LISTED:
        yield beyond(len(unlisted) - _LISTED, "file", before="    and ", after=_ALL)


def _name(lost: LostTensor) -> str:
    return abridged(escape(show_path(lost.path)), _NAME)


def state(lost: LostTensor) -> str:
    """Return the share of it that is there."""
    if lost.share == 1:
        return "intact, but the rest of its optimizer state is lost"
    if lost.damage:
        return abridged(escape(lost.damage), _REASON)
    return f"{_saved(int(lost.share * 1000), 1000)} is there" if lost.share else "nothing of it is there"


def what_it_means(report: SalvageReport) -> str:
    """Return the effect of what is lost on loading the new file."""
    said = "lost tensors were left out, so load_state_dict reports them as missing"
    if report.left_out:
        said += f"; in {plural(len(report.left_out), 'place')} of lists None replaces it"
    return said


def _saved(part: int, whole: int) -> str:
    """Return the share that is saved, as ``84.0 %``; never 100 % of less than all."""
    return percent(part, whole, lambda share: f"{min(99.9, share):.1f}", none="0.0 %")


def next_step(report: SalvageReport) -> str:
    """Return the call that loads the new file, or the command before it; "" where none is known."""
    if report.format.startswith("sharded"):
        return f"AutoModel.from_pretrained({loading.literal(report.output)}), with its config.json there"
    loader = Loader.SAFETENSORS if report.format == "safetensors" else Loader.TORCH
    return loading.line(report.next or NextStep(loader), report.output, ())
