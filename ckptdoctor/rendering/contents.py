"""Shows a file in a few lines: the header, its state dicts, what else is in it, and which files are missing."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import (
    ROOT,
    Checkpoint,
    Cycle,
    Elided,
    KeyPath,
    Mapping,
    Named,
    Node,
    Opaque,
    Part,
    Role,
    Sequence,
    StateDict,
    Tensor,
    at,
    show_part,
    show_path,
)
from ckptdoctor.checkpoint.checkpoint import doubled_keys, lists_all, told_of, unheld, unread_files
from ckptdoctor.findings import FileReport
from ckptdoctor.remote import addresses
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import amount_of, count, plain, plural, shape, size
from ckptdoctor.rendering.summary import Summary, stored_bytes, summarise
from ckptdoctor.rendering.wrapping import abridged, columns, joined
from ckptdoctor.shell import quote
from ckptdoctor.wording import and_more, format_name

_NAMED_DTYPES = 3  # dtypes or devices named in the header before the rest is counted
_OTHERS = 8  # other contents named before the rest is counted
_TEXT = 40  # characters of a text value that are shown
# The hyperparameters of an optimizer's first group that tell people which run it was
_HYPERPARAMETERS = ("lr", "momentum", "betas", "weight_decay")


def header(report: FileReport) -> list[str]:
    """Return the pieces of the first line: path, container, size, then tensors, parameters, dtypes and devices."""
    pieces = [escape(report.path)]
    if report.container is not None:
        pieces += [escape(format_name(report.container.format)) or "unknown contents", size(report.container.size)]
    if report.checkpoint is not None:
        pieces += _figures(summarise(report.checkpoint))
    return pieces


def heading(checkpoint: Checkpoint, width: int | None = None, of: int | None = None) -> list[str]:
    """Return the first line of a checkpoint that was opened without a report. ``of``: so many tensors were filtered."""
    pieces = [escape(checkpoint.path), escape(format_name(checkpoint.format)), size(checkpoint.size)]
    return joined([*pieces, *_figures(summarise(checkpoint), of)], width)


def _figures(summary: Summary, of: int | None = None) -> list[str]:
    if not summary.tensors:
        return ["no tensors"]
    return [
        plural(summary.tensors, "tensor") if of is None else _matching(summary.tensors, of),
        amount_of(summary.parameters, "parameter" if summary.has_model else "element"),
        _few(summary.dtypes),
        _few(summary.devices),
    ]


def _matching(number: int, of: int) -> str:
    return f"{count(number)} of {plural(of, 'tensor')} {'matches' if number == 1 else 'match'}"


def _few(counts: dict[str, int]) -> str:
    return and_more(list(counts), _NAMED_DTYPES, say=lambda name: abridged(escape(name), _TEXT), spelt=str)


def table(checkpoint: Checkpoint) -> Iterator[str]:
    """Yield one line for each state dict, then one for everything else."""
    rows = [state_dict_row(checkpoint.tree, each) for each in checkpoint.state_dicts]
    others = list(other_contents(checkpoint))
    width = max([len(row[0]) for row in rows] + [len("other") if others else 0])
    if rows:
        yield from columns([(row[0].ljust(width), *row[1:]) for row in rows], right=frozenset({2, 3}))
    if others:
        yield f"{'other'.ljust(width)}   {and_more(others, _OTHERS, before=', ', spelt=str)}"


def state_dict_row(tree: Node, state_dict: StateDict) -> tuple[str, ...]:
    """Return role, place, tensors, bytes, and the hyperparameters of an optimizer: safe to print."""
    where = abridged(escape(show_path(state_dict.path)), 48)
    tensors = plural(len(state_dict.tensors), "tensor")
    remark = _hyperparameters(tree, state_dict) if state_dict.role is Role.OPTIMIZER else ""
    return state_dict.role.value, where, tensors, size(stored_bytes(state_dict.tensors)), remark


def _hyperparameters(tree: Node, optimizer: StateDict) -> str:
    try:
        groups = at(tree, (*optimizer.path, "param_groups"))
        first = at(groups, (0,))
    except KeyError:
        return ""
    values = dict(first.entries) if isinstance(first, Mapping) else {}
    said = [f"{name} {value(values[name])}" for name in _HYPERPARAMETERS if name in values]
    if isinstance(groups, Sequence) and len(groups.items) > 1:
        said.append(plural(len(groups.items), "group"))
    return ", ".join(said)


def other_contents(checkpoint: Checkpoint) -> Iterator[str]:
    """Yield the top level next to the state dicts: ``epoch 41``, ``args (argparse.Namespace)``."""
    roots = [each for each in checkpoint.state_dicts if each.path == ()]
    if roots:
        yield from (abridged(escape(key), _TEXT) for key in roots[0].others)
        return
    taken = {each.path[0] for each in checkpoint.state_dicts}
    if isinstance(checkpoint.tree, Mapping):
        yield from (_described(part, node) for part, node in checkpoint.tree.entries if part not in taken)
    elif not taken:
        yield value(checkpoint.tree)


def _described(part: Part, node: Node) -> str:
    name = abridged(escape(show_part(part)), _TEXT)
    if isinstance(node, Mapping | Sequence):
        return f"{name} ({value(node)})" if _length(node) else f"{name} (empty)"
    return f"{name} ({value(node)})" if isinstance(node, Opaque | Tensor) else f"{name} {value(node)}"


def _length(node: Mapping | Sequence) -> int:
    return len(node.entries) if isinstance(node, Mapping) else len(node.items)


def value(node: Node) -> str:
    """Return a value on one line: plain ones as they are, short sequences in full, all else by kind and size."""
    if isinstance(node, bool) or node is None:
        return str(node)
    if isinstance(node, int):
        return count(node) if abs(node) >= 100_000 else plain(node)
    if isinstance(node, float):
        return f"{node:g}"
    if isinstance(node, str | bytes):
        return abridged(escape(repr(node[: 4 * _TEXT])), _TEXT)
    if isinstance(node, Tensor):
        return f"tensor {shape(node.shape)} {node.dtype.name}"
    return _compound(node)


def _compound(node: Mapping | Sequence | Opaque | Named | Cycle | Elided) -> str:
    if isinstance(node, Sequence):
        if len(node.items) <= 4 and all(isinstance(item, int | float) for item in node.items):
            return f"({', '.join(map(value, node.items))}{',' if len(node.items) == 1 and node.kind != 'list' else ''})"
        return f"{escape(node.kind)} of {count(len(node.items))}"
    if isinstance(node, Mapping):
        return f"{escape(node.kind)} of {count(len(node.entries))}"
    if isinstance(node, Opaque):
        return abridged(escape(node.class_name), 60)
    if isinstance(node, Named):
        return abridged(escape(node.name), 60)
    return f"see {place(node.path)}" if isinstance(node, Cycle) else f"not read: {escape(node.reason)}"


def place(path: KeyPath) -> str:
    """Return a key path, safe to print and not too long."""
    return abridged(escape(show_path(path)))


def left_out(checkpoint: Checkpoint, done: str, root: KeyPath = ROOT) -> str:
    """Return the files that are missing or damaged, and what follows for the part at ``root``; "" where none are.

    ``done`` says what was not done with them: "is not shown". The text is not escaped.
    """
    unread, lacking = unread_files(checkpoint, root), unheld(checkpoint)
    more = f"More: ckptdoctor check {quote(addresses.shown(checkpoint.path))}"
    twice = doubled_keys(checkpoint)
    if twice:
        more = f"{twice[0].message}: only one of the values counts here, and not every loader takes that one. {more}"
    if not unread:
        return f"{told_of(checkpoint, lacking)}. {more}" if lacking else more if twice else ""
    one = len(unread) == 1
    content = f"{'Its' if one else 'Their'} content {done}"
    what = f"The values in {'it' if one else 'them'} are not there" if lists_all(checkpoint) else content
    return f"{told_of(checkpoint, (*unread, *lacking))}. {what}. {more}"
