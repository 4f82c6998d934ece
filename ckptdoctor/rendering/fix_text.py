"""Reports the plan and the outcome of a repair to people, and lists what differs (``--diff``)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from ckptdoctor.checkpoint import show_path
from ckptdoctor.edits import Safety, WriteIndex
from ckptdoctor.edits.fix import Change, Step
from ckptdoctor.findings import Finding, InPlace, Loader, NextStep, Proof, RepairReport, Severity
from ckptdoctor.rendering import conversion, loading
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.grouping import grouped, in_short, pattern
from ckptdoctor.rendering.loading import literal
from ckptdoctor.rendering.numbers import plural, size
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.shell import fix_command, quote
from ckptdoctor.rendering.wrapping import abridged, wrapped
from ckptdoctor.wording import and_more, beyond, format_name, span

_NAMES = 90  # characters of what stands on either side of an arrow
_LISTED = 12  # names that --diff lists one by one
_GROUPS = 60  # groups of more names that it shows


def outcome(report: RepairReport, paint: Paint | None = None, width: int | None = None) -> str:
    """Return the plan, what was written, what was proven, and how to load it; or that nothing is to be repaired."""
    return "\n".join(_outcome(report, paint or Paint(), width))


def difference(report: RepairReport, paint: Paint | None = None) -> str:
    """Return every name that changes, before and after, one step after another. Nothing has been written."""
    return "\n".join(_difference(report, paint or Paint()))


def refused(message: str, paint: Paint | None = None) -> str:
    """Return why nothing was done. ``message`` may hold names from a file; its own lines stay lines."""
    first, *more = [escape(line) for line in message.split("\n")]
    return "\n".join([f"{(paint or Paint()).strong('refused')} · {first}", *more])


def _outcome(report: RepairReport, paint: Paint, width: int | None) -> Iterator[str]:
    if not report.steps and report.converts is None:
        yield f"{escape(report.path)} · {_undone(report)}; nothing was written"
        worth = [each for each in left(report) if each.severity is not Severity.INFO or each.fix]
        yield from _left(worth, left_at(report), paint, width)
        if report.blocked:
            yield from loading.lines(report.next, next_step(report), paint, width)
        return
    if report.steps:
        yield from _plan(report, paint, width)
    if report.converts is not None:
        yield f"{paint.strong('convert')} · {format_name(report.format)} → {format_name(report.converts)}"
    if report.conversion is not None:
        yield from conversion.rows(report.conversion, width)
    if report.proof is None:
        return
    if report.in_place is not None:
        yield from wrapped(_changed(report, report.in_place, paint), width, "", "  ")
    else:
        yield f"{paint.strong('wrote')} {escape(report.output)} in {report.seconds:.2f} s; {kept(report)}"
    yield from wrapped(f"verified · {verified(report, report.proof)}", width, "", "  ")
    worth = [each for each in left(report) if each.severity is not Severity.INFO]
    yield from _left(worth, left_at(report), paint, width)
    yield from loading.lines(report.next, next_step(report), paint, width)


def _changed(report: RepairReport, done: InPlace, paint: Paint) -> str:
    """How the file itself was changed, and how that is undone."""
    how = "by a clone" if done.means == "clone" else "with a journal"
    shifted = f", shifted by {size(done.inserted)}" if done.inserted else ""
    undo = f"ckptdoctor undo {quote(report.path)}"
    return (
        f"{paint.strong('changed')} {escape(report.path)} in place {how} in {report.seconds:.2f} s; "
        f"{size(done.written + done.journal)} written{shifted}; undo: {paint.accent(escape(undo))}"
    )


def _left_alone(done: InPlace) -> Iterator[str]:
    """What became of the bytes of tensors: those that were not written were not read either."""
    if done.left:
        yield f"{plural(done.left, 'storage')} not written (nor re-read)"
    if done.moved:
        yield f"{plural(done.moved, 'storage')} moved to the end and compared"


def _undone(report: RepairReport) -> str:
    if report.next is None or report.next.loader is not Loader.CONVERT:
        return "nothing to repair"
    return f"neither torch.load nor safetensors loads this {format_name(report.format)} as it is: convert it"


def kept(report: RepairReport) -> str:
    """Return the fate of the original."""
    if not report.replaces_original:
        return "the original is untouched"
    if index_name(report) is not None:
        return f"the old one is kept as {escape(report.output)}.bak"
    return "the original was replaced"


def _plan(report: RepairReport, paint: Paint, width: int | None) -> Iterator[str]:
    safety = how_safe(report.steps)
    amount = (
        f"{size(report.new_bytes)} of {size(report.size)} will differ" if report.new_bytes else "no byte will differ"
    )
    amount = "" if report.converts is not None else f" · {amount}"  # in another container every byte is new
    yield f"{paint.strong('plan')} · {plural(len(report.steps), 'repair')}, {safety}{amount}"
    rows = [row for step in report.steps for row in _rows(step)]
    room = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for label, names, counts in rows:
        line = f"  {label:<{room[0]}}   {names:<{room[1]}}   {counts}".rstrip()
        if width is None or len(line) <= width:
            yield line
            continue
        if label:
            yield f"  {label}"
        yield from wrapped(names, width, "      ", "        ")
        if counts:
            yield f"      {counts}"


def how_safe(steps: Sequence[Step]) -> str:
    """Return in a few words if the steps lose something: those of rules, and those asked for by name."""
    losing = [step for step in steps if step.safety is Safety.UNSAFE]
    asked = sum(not step.name for step in losing)
    told = [f"{len(losing) - asked} unsafe"] if len(losing) > asked else []
    if asked:
        of_them = "" if len(steps) == 1 else f"{asked} of them "
        told.append(f"{of_them}{'a loss that you' if asked == 1 else 'losses that you'} requested")
    confirmed = any(step.safety is Safety.CONFIRMED for step in steps)
    return ", ".join(told) or ("safe or confirmed by the target" if confirmed else "safe")


def _rows(step: Step) -> Iterator[tuple[str, str, str]]:
    label = f"{step.label} {step.name}".rstrip()
    for change in step.changes:
        fit = _fit(step) if change is step.changes[-1] else ""
        yield escape(label), in_words(change, step), counted(change) + fit
        label = ""


def _fit(step: Step) -> str:
    """Return the share of the target that fits after the step."""
    if step.fit is None:
        return ""
    keys, wanted = step.fit
    return f"   {keys:,} of {plural(wanted, 'key')} fit"


def in_words(change: Change, step: Step) -> str:
    """Return a change in one line, with names put together by patterns; escaped."""
    if change.kind in KINDS:
        return arranged(change)
    if change.kind == "rename" and change.pairs:
        return ", ".join(["  →  ".join(map(_shown, filter(None, pair))) for pair in in_short(change.pairs)])
    if change.kind == "cast-loss":
        return ", ".join([f"{what} {number}" for what, number in change.pairs]) or "no value changes"
    if change.kind == "renumber":
        return renumbered(change.pairs)
    before = _side([old for old, _ in change.pairs])
    after = _side([new for _, new in change.pairs])
    if change.kind == "drop":
        return f"{_at(change)}{before}  →  dropped"
    if change.kind == "take-root":
        return f"{_shown(show_path(change.place or ()))}  →  the whole contents"
    if change.kind == "flatten":
        return f"{_shown(show_path(change.place)) if change.place else 'the whole model'}  →  its state dict"
    if change.kind == "replace":
        return f"{_shown(show_path(change.place or ()))}: {before}  →  {after}"
    return f"{before}  →  {after}" if change.pairs and before else _shown(step.title)


def _side(names: list[str]) -> str:
    return _shown(pattern(names)) if names else ""


def _shown(text: str) -> str:
    return abridged(escape(text), _NAMES)


def _at(change: Change) -> str:
    return f"{_shown(show_path(change.place))}/" if change.place else ""


def counted(change: Change) -> str:
    """Return the number of things that it touches."""
    said = [plural(number, noun, _PLURALS.get(noun)) for number, noun in change.counts]
    if change.kind == "rename" and change.place:
        said[0] += f" of {_shown(show_path(change.place))}"
    return ", ".join(said)


_PLURALS = {
    "entry": "entries",
    "_metadata entry": "_metadata entries",
    "param_names entry": "param_names entries",
    "tensor left out": "tensors left out",
    "value rounded": "rounded",
    "value made infinite": "made infinite",
    "value made 0": "made 0",
}


def verified(report: RepairReport, proof: Proof) -> str:
    """Return the proof of the repair, and of what became of it in another container."""
    if report.in_place is not None:
        return " · ".join(["headers re-read, nothing else changed", *_left_alone(report.in_place), _still(proof)])
    if report.conversion is None:
        return proven(proof)
    told = [conversion.proven(report.conversion), _still(proof)]
    return " · ".join(["nothing else changed", *told] if report.steps else told)


def proven(proof: Proof) -> str:
    """Return the comparisons that were made and how they came out, and nothing else."""
    pieces = ["nothing else changed"]
    if proof.elided:
        pieces[0] += f" (except {plural(proof.elided, 'place')} beyond the reader's limits)"
    if proof.storages:
        pieces.append(f"{proof.identical:,} of {plural(proof.storages, 'storage')} byte-identical{_rest(proof)}")
    return " · ".join([*pieces, _still(proof)])


def _still(proof: Proof) -> str:
    """Return the findings of check in the output."""
    if not proof.findings:
        return "check finds nothing"
    wrong = [each for each in proof.findings if each.severity is not Severity.INFO]
    if wrong:
        return f"check still finds {_codes(wrong)}"
    return f"check finds nothing wrong (info: {_codes(proof.findings)})"


def _rest(proof: Proof) -> str:
    unproven = proof.storages - proof.identical - proof.shrunk - proof.remade - proof.inflated - proof.computed
    kinds = (
        (proof.shrunk, "shrunk to exactly the viewed bytes"),
        (proof.remade, "with exactly the elements of their views"),
        (proof.inflated, "uncompressed"),
        (proof.computed, "computed twice with the same result"),
        (unproven, "in no tensor"),
    )
    return "".join(f", {number:,} {words}" for number, words in kinds if number)


def _codes(findings: Iterable[Finding]) -> str:
    return ", ".join(dict.fromkeys(f"{each.code} {each.name}" for each in findings))


def _left(findings: Iterable[Finding], path: str, paint: Paint, width: int | None) -> Iterator[str]:
    """Yield what is still wrong with the file at ``path``, each with the command that repairs it."""
    for finding in findings:
        head = (
            f"left · {finding.severity.value} {finding.code} {finding.name} · {abridged(escape(finding.message), 200)}"
        )
        yield from (paint.dim(line) for line in wrapped(head, width, "", "  "))
        if finding.fix is not None:
            label, command = f"  repair, {finding.fix.safety.value}:", fix_command(path, finding.fix)
            broken = width is not None and len(label) + 3 + len(command) > width
            yield paint.dim(label) + ("\n    " if broken else "   ") + paint.accent(command)


def next_step(report: RepairReport) -> str:
    """Return the call that loads the result, or the command that makes it load; "" where none is known."""
    index = index_name(report)
    if index is not None:
        folder = literal(os.path.join(report.path, ""))
        place = os.path.join(report.path, index)
        command = f"mv {quote(report.output)} {quote(place)}"
        there = report.replaces_original or os.path.normpath(report.output) == os.path.normpath(place)
        return f"AutoModel.from_pretrained({folder})" if there else escape(command)
    if report.conversion is not None and os.path.isdir(report.output):
        return conversion.next_step(report.conversion)
    path = left_at(report)
    after = report.next if report.next is not None else NextStep(Loader.NONE)
    done = after.loader not in (Loader.CONVERT, Loader.FIX)
    if done and report.in_place is not None and os.path.isdir(path) and not report.blocked:
        config = "" if os.path.exists(os.path.join(path, "config.json")) else ", with its config.json there"
        return f"AutoModel.from_pretrained({literal(os.path.join(path, ''))}){config}"
    weights = report.weights if report.conversion is None else report.conversion.weights
    return loading.line(after, path, weights or ())


def _difference(report: RepairReport, paint: Paint) -> Iterator[str]:
    if not report.steps and report.converts is None:
        yield f"{escape(report.path)} · nothing to repair"
        return
    yield f"--- {escape(quote(report.path))}"
    yield f"+++ {escape(quote(report.output))}"
    if report.converts is not None:
        yield f"@@ {format_name(report.format)} → {format_name(report.converts)} @@"
    for step in report.steps:
        for change in step.changes:
            place = f" · {_shown(show_path(change.place))}" if change.place else ""
            yield paint.strong(f"@@ {escape(f'{step.label} {step.name}'.rstrip())}{place} · {counted(change)} @@")
            yield from _pairs(change, step)


def _groups(change: Change) -> Iterator[str]:
    """Many names, put together by what changes in them."""
    groups = list(grouped(change.pairs))
    for old, new, count in groups[:_GROUPS]:
        if old:
            yield f"-{escape(old)}" + ("" if new else f"   {plural(count, 'key')}")
        if new:
            yield f"+{escape(new)}   {plural(count, 'key')}"
    left = sum(count for _, _, count in groups[_GROUPS:])
    if left:
        yield beyond(left, "key", before=" … and ")


def _pairs(change: Change, step: Step) -> Iterator[str]:
    if not change.pairs or change.kind in ("optimizer-unfit", "cast-loss"):
        yield f" {in_words(change, step)}"
        return
    if change.kind == "renumber":
        yield from (f" {each}" for each in moves(change.pairs))
        return
    if len(change.pairs) > _LISTED:
        yield from _groups(change)
        return
    for old, new in change.pairs:
        if old:
            yield f"-{escape(old)}"
        if new:
            yield f"+{escape(new)}"


# ---- other numbers for the states of parameters: ``3  →  7, 7  →  3``, neighbours that move alike together


_MOST = 5  # moves that one line names


def moves(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield each run of numbers that all move by as much, in order: ``1..23  →  0..22``."""
    runs: list[list[int]] = []  # first number before, first after, how many
    for old, new in sorted([(int(old), int(new)) for old, new in pairs]):
        if runs and (old, new) == (runs[-1][0] + runs[-1][2], runs[-1][1] + runs[-1][2]):
            runs[-1][2] += 1
        else:
            runs.append([old, new, 1])
    for old, new, count in runs:
        yield f"{span(old, old + count - 1)}  →  {span(new, new + count - 1)}"


def renumbered(pairs: Sequence[tuple[str, str]]) -> str:
    """Return the change in one line; what is too much is counted."""
    told = list(moves(pairs))
    most = _MOST if len(told) > _MOST + 1 else len(told)
    return f"{'state' if len(pairs) == 1 else 'states'} {and_more(told, most, 'such move', before=', and ')}"


KINDS = frozenset(
    {"reshape", "transpose", "fill", "split", "fuse", "fuse-norm", "dequantize", "compute", "tie", "cast"}
)

_EITHER_SIDE = 80  # characters of the names on either side of the arrow
_SHAPE = " ["  # where the name ends in "name [2, 3]"


def arranged(change: Change) -> str:
    """Return a change of tensors in one line; the tensors of one change have the same shapes."""
    behind = [new for _, new in change.pairs if new]
    if change.kind in ("fill", "tie"):
        return f"{change.kind} {_listed(behind)}"
    before = _listed([old for old, _ in change.pairs if old])
    if change.kind in ("reshape", "transpose", "cast"):
        return f"{change.kind} {before}  →  {_shapes(behind).strip()}"
    verb = "compute" if change.kind in ("fuse-norm", "dequantize", "compute") else change.kind
    return f"{verb} {before}  →  {_listed(behind)}"


def _listed(tensors: Sequence[str]) -> str:
    names = [tensor.rpartition(_SHAPE)[0] for tensor in tensors]
    return f"{abridged(escape(pattern(names)), _EITHER_SIDE)}{_shapes(tensors)}"


def _shapes(tensors: Sequence[str]) -> str:
    """Return the shape of all; "" where they differ."""
    shapes = {tensor.rpartition(_SHAPE)[2] for tensor in tensors}
    return f"{_SHAPE}{shapes.pop()}" if len(shapes) == 1 else ""


def left(report: RepairReport) -> tuple[Finding, ...]:
    """Return the findings in the output; where nothing was written, those that were to be fixed and are not."""
    return report.proof.findings if report.proof is not None else report.left


def left_at(report: RepairReport) -> str:
    """Return the path that a command must name to repair what is left: the output, or else the original.

    The output of a repaired folder is only its index: the folder is what is repaired.
    """
    return report.output if report.proof is not None and index_name(report) is None else report.path


def index_name(report: RepairReport) -> str | None:
    """Return the name of an index that was written alone, for a folder whose shards stay; None otherwise."""
    if report.converts is not None:
        return None
    return next((each.name for step in report.steps for each in step.edits if isinstance(each, WriteIndex)), None)
