"""Labels the facts that headers give about a tensor, a level or a value. Text from the file is escaped."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ckptdoctor.checkpoint import Node, Opaque, Part, Sequence, Tensor, children, show_part
from ckptdoctor.checkpoint.dtypes import NUMPY_ELEMENTS
from ckptdoctor.checkpoint.tensor import contiguous_stride, is_contiguous
from ckptdoctor.facts.numpy_values import Element, NotPlainError, array_of, element_of, number, values
from ckptdoctor.rendering.contents import place, value
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import amount_of, count, plural, shape, size
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.tree import TreeBranch, TreeItem, is_number, unfolds
from ckptdoctor.wording import and_more

_NAMED = 4  # tied tensors, dtypes or devices that are named before the rest is counted

_LISTED = 60  # values of a level that are listed
_MIXED = 12  # values of a level, tensors among them, that are listed
_COUNTED = 10_000  # of them that are counted
_FIRST = 4  # elements of an array of NumPy that are shown
_INLINE = 4  # values of one in it that stand in its line
_DEEPEST = 4  # cells of indent of what is listed
_PART = 32  # characters of the name of a nested value
_SHORT, _TEXT = 60, 4_000  # characters of a text that stand on one line, and that are shown at all

Fact = tuple[str, str]


def title(opened: OpenedCheckpoint, item: TreeItem) -> str:
    """Return the full name of an item, escaped."""
    if isinstance(item, TreeBranch) and item.is_module:
        lead = place(item.path) + "/" if item.path else ""
        return f"{lead}{abridged(escape(item.prefix[:-1]))}{f'.{item.span}' if item.span else ''}"
    return place(opened.lines.tree.path(item))


def facts(opened: OpenedCheckpoint, item: TreeItem) -> Iterator[Fact]:
    """Yield the facts about an item, most important first."""
    if isinstance(item, int):
        yield from _tensor(opened.table.tensors[item])
        yield from _tied(opened, item)
    elif isinstance(item, TreeBranch):
        yield from _branch(opened, item)
    elif item.more:
        yield "", f"{plural(item.more, 'more value')} not shown"
    else:
        yield "value", said(item.node)
        if isinstance(item.node, str | bytes):
            yield "length", plural(len(item.node), "byte" if isinstance(item.node, bytes) else "character")
        if isinstance(item.node, str) and len(item.node) > _SHORT:
            yield "", f"\n{abridged(_in_lines(item.node), _TEXT)}"


def said(node: Node) -> str:
    """Return a value on one line; a number or array of NumPy as what it is, not as what its pickle calls."""
    array = array_of(node)
    try:
        if isinstance(node, Opaque) and is_number(node):
            return f"{abridged(escape(str(number(node))))}  NumPy {_element(element_of(node.arguments[0]))}"
        if array is None or not isinstance(array.contents, bytes):
            return value(node)
        some = values(array.contents[: _FIRST * array.element.width], array.element)
    except NotPlainError:
        return value(node)
    shown = abridged(escape(", ".join(map(str, some)))) + (", …" if array.count > len(some) else "")
    return f"NumPy {_element(array.element)} {shape(array.shape)}  {shown}".rstrip()


def _element(element: Element) -> str:
    return NUMPY_ELEMENTS.get(element.code, "") or escape(element.called)


def _in_lines(text: str) -> str:
    """Return the text escaped, with its own line breaks."""
    return "\n".join(map(escape, text[:_TEXT].split("\n")))


def _tensor(tensor: Tensor) -> Iterator[Fact]:
    pieces = [f"{tensor.dtype.name} {shape(tensor.shape)}", plural(tensor.numel, "element"), size(tensor.nbytes)]
    yield "", " · ".join([*pieces, escape(tensor.device)])
    yield "storage", _storage(tensor)
    yield "layout", _layout(tensor)
    kinds = [("Parameter", tensor.is_parameter), ("requires grad", tensor.requires_grad)]
    said = [name for name, holds in kinds if holds] + ([escape(tensor.subclass)] if tensor.subclass else [])
    if said:
        yield "kind", ", ".join(said)
    if tensor.details:
        yield "details", ", ".join([f"{name} {value(each)}" for name, each in tensor.details])
    if tensor.parts:
        yield "parts", ", ".join([f"{part.dtype.name} {shape(part.shape)}" for part in tensor.parts[:_NAMED]])
    yield "loader", escape(tensor.rebuild)


def _storage(tensor: Tensor) -> str:
    storage = tensor.storage
    if storage is None:
        return "none: " + ("the values are in the pickle" if tensor.values is not None else "no bytes of its own")
    extent = storage.extent
    where = f"bytes {count(extent.offset)} + {count(extent.length)}" if extent is not None else "not in the file"
    offset = f", from element {count(tensor.offset)}" if tensor.offset else ""
    packed = ", compressed" if storage.compressed else ""
    own = storage.key.removesuffix(tensor.key).rstrip("/")  # in a folder of shards it begins with the file
    key = f"{abridged(escape(own), 40)} · " if own else ""
    return f"{key}{where}{offset}{packed}"


def _layout(tensor: Tensor) -> str:
    if tensor.layout != "strided":
        return escape(tensor.layout)
    if is_contiguous(tensor):
        return "contiguous"
    return f"stride {shape(tensor.stride)}, contiguous would be {shape(contiguous_stride(tensor.shape))}"


def _tied(opened: OpenedCheckpoint, row: int) -> Iterator[Fact]:
    others = opened.table.tied_to(row)
    if others:
        name = opened.table.name
        yield "tied to", and_more(others, _NAMED, say=lambda row: abridged(escape(name(row)), 80), spelt=str)


def _branch(opened: OpenedCheckpoint, branch: TreeBranch) -> Iterator[Fact]:
    figures = opened.lines.tree.figures(branch)
    if branch.blocks:
        yield "", f"{plural(len(branch.blocks), 'block')} of {plural(len(branch.blocks[0].rows), 'tensor')}, all alike"
    if figures.tensors:
        pieces = [plural(figures.tensors, "tensor"), amount_of(figures.elements, "element"), size(figures.nbytes)]
        yield "", " · ".join(pieces)
    kind = " · ".join(filter(None, (branch.role, abridged(escape(branch.kind)))))
    if kind and (figures.tensors or branch.is_module or not value(branch.node).startswith(f"{kind} of ")):
        yield "kind", kind
    if figures.tensors:
        kinds = opened.lines.tree.kinds(branch)
        yield "dtypes", _few([dtype for dtype, _ in kinds])
        yield "devices", _few([device for _, device in kinds])
        if not branch.is_module and _is_mixed(branch.node):
            yield "", ""
            yield from _contents(branch.node, "")
    elif not branch.is_module:
        if value(branch.node) != branch.kind:
            yield "", value(branch.node)
        yield from _contents(branch.node, "")


def _is_mixed(node: Node) -> bool:
    """Return whether a level holds other values next to its tensors, few enough to be listed: states of generators."""
    below = list(islice(children(node), _MIXED + 1))
    return len(below) <= _MIXED and not all(isinstance(child, Tensor) for _, child in below)


def _contents(node: Node, indent: str) -> Iterator[Fact]:
    """Yield what is nested in a level without tensors, each value with its name, as far as that is of use."""
    below = list(islice(children(node), _LISTED + 1))
    for part, child in below[:_LISTED]:
        name = f"{indent}{_name(part)}"
        inside = list(islice(children(child), _INLINE + 1)) if unfolds(child) else []
        if inside and len(inside) <= _INLINE and not any(unfolds(each) for _, each in inside):
            named = not isinstance(child, Sequence)
            yield (
                name,
                ", ".join([f"{_name(each)} {said(held)}" if named else said(held) for each, held in inside]),
            )
        else:
            yield name, said(child)
            if inside and len(indent) < _DEEPEST:
                yield from _contents(child, f"{indent}  ")
    if len(below) > _LISTED:
        more = len(list(islice(children(node), _COUNTED))) - _LISTED
        yield indent, f"… and {count(more)} more" if more < _COUNTED - _LISTED else "…"


def _name(part: Part) -> str:
    return abridged(escape(show_part(part)), _PART)


def _few(names: list[str]) -> str:
    return and_more(list(dict.fromkeys(names)), _NAMED, say=escape, spelt=str)
