"""Reshapes, transposes, fills in, splits and fuses tensors, worked out on the nouns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ckptdoctor.checkpoint import (
    Checkpoint,
    Cycle,
    DType,
    KeyPath,
    Mapping,
    Node,
    Part,
    Storage,
    Tensor,
    show_path,
)
from ckptdoctor.checkpoint.changed_trees import changed_at, derived, mapped, missing, with_tree
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import contiguous_stride, is_contiguous
from ckptdoctor.edits import Compute, Dequantize, Edit, Fill, Fuse, FuseNorm, Reshape, Split, Tie, Transpose, elements
from ckptdoctor.edits.quantization import AFFINE
from ckptdoctor.edits.tensors import (
    ENTERING,
    TENSOR_EDITS,
    TensorEdit,
    gone_keys,
    made,
    new_keys,
    place_of,
    sources,
    storage_name,
    with_new,
)
from ckptdoctor.errors import RefusedError
from ckptdoctor.noun import noun

_VERBS = {
    Reshape: "reshaped",
    Transpose: "transposed",
    Split: "split",
    Fuse: "fused",
    FuseNorm: "computed",
    Dequantize: "computed",
    Compute: "computed",
    Tie: "tied",
}

# what makes a new tensor: in torch files, by whether torch has a typed storage for its dtype
_SAFETENSORS = "safetensors"
_TYPED, _UNTYPED = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"

# what tensors that become one must have in common
_ALIKE = ("dtype", "device", "requires_grad", "is_parameter", "rebuild", "details")
_COMPUTED = ("dtype", "device")  # what the rest of a norm has in common with its weight


@noun
class Result:
    """One tensor that an edit makes, and the views that its new storage holds (None: it keeps its storage)."""

    tensor: Tensor
    holds: elements.Elements | None


def arrange(checkpoint: Checkpoint, run: Sequence[Edit]) -> Checkpoint:
    """Return the checkpoint after edits of one kind that touch different tensors (``edits.tensors.runs``)."""
    made_by = [(edit, _results(edit, given, checkpoint.format)) for edit, given in _each(checkpoint, run)]
    moved = {each.tensor.path: each.tensor for edit, found in made_by if _stays(edit) for each in found}

    def change(node: Tensor | Cycle) -> Node:
        return moved.get(node.path, node) if isinstance(node, Tensor) else node

    tree = mapped(checkpoint.tree, change) if moved else checkpoint.tree
    places: dict[KeyPath, list[tuple[TensorEdit, list[Result]]]] = {}
    for edit, found in made_by:
        if isinstance(edit, ENTERING):
            places.setdefault(place_of(edit), []).append((edit, found))
    for place, changes in places.items():
        tree = changed_at(tree, place, lambda node, place=place, changes=changes: _entries(node, place, changes))  # type: ignore[misc]  # mypy cannot infer lambdas with defaults
    return with_tree(checkpoint, tree)


def made_storages(
    checkpoint: Checkpoint, run: Sequence[Edit], original: Callable[[elements.View], elements.Elements]
) -> dict[str, elements.Elements]:
    """Return what each storage that these edits make holds, by key, in the terms to which ``original`` brings views."""
    found: dict[str, elements.Elements] = {}
    for edit, given in _each(checkpoint, run):
        holds = made(edit, [(tensor.dtype, original(view_of(tensor))) for tensor in given])
        for result, each in zip(_results(edit, given, checkpoint.format), holds, strict=True):
            if result.holds is not None and result.tensor.storage is not None:
                found[result.tensor.storage.key] = each
    return found


def _stays(edit: TensorEdit) -> bool:
    return isinstance(edit, (Reshape, Transpose))


def _each(checkpoint: Checkpoint, run: Sequence[Edit]) -> Iterator[tuple[TensorEdit, list[Tensor]]]:
    """Yield each edit with the tensors that it takes. Raises RefusedError for paths without a plain tensor."""
    edits = [edit for edit in run if isinstance(edit, TENSOR_EDITS)]
    wanted = {path for edit in edits for path in sources(edit)}
    found = {tensor.path: tensor for tensor in checkpoint.tensors if tensor.path in wanted} if wanted else {}
    for edit in edits:
        for path in sources(edit):
            if path not in found:
                raise missing(path)
            _require_plain(found[path], edit)
        given = [found[path] for path in sources(edit)]
        yield edit, [each for tensor in given for each in (tensor, *tensor.parts)]


def _require_plain(tensor: Tensor, edit: TensorEdit) -> None:
    odd = tensor.subclass is not None and isinstance(edit, (Split, Fuse, FuseNorm, Dequantize, Compute))
    odd = odd or (bool(tensor.parts) and not (isinstance(edit, Dequantize) and _by_channel(edit, tensor)))
    if tensor.storage is None or tensor.layout != "strided" or odd:
        verb = _VERBS[type(edit)]
        raise RefusedError(f"{show_path(tensor.path)} is not a plain tensor, so it cannot be {verb}.")
    if tensor.moved:
        raise RefusedError(f"{show_path(tensor.path)} is a tensor of {tensor.device}; move it to the CPU first.")


def _by_channel(edit: Dequantize, tensor: Tensor) -> bool:
    """Return whether it is a quantised tensor with scales and zero points of its own, which are computed with."""
    return edit.scheme == AFFINE and len(tensor.parts) == 2 and all(part.storage for part in tensor.parts)


def view_of(tensor: Tensor) -> elements.View:
    """Return what a plain tensor shows of its storage."""
    assert tensor.storage is not None
    width = max(1, tensor.dtype.bits // 8)
    return elements.View(tensor.storage.key, tensor.offset * width, width, tensor.shape, tensor.stride)


def made_tensor(like: Tensor, path: KeyPath, holds: elements.Elements, sizes: Sequence[int]) -> Tensor:
    """Return a tensor like another one that is all of a new storage. ``sizes``: see ``edits.tensors.storage_name``."""
    assert like.storage is not None
    key = storage_name(holds, like.dtype, sizes)
    storage = Storage(key, elements.nbytes(holds), like.dtype, like.storage.device, None)
    return derived(like, path=path, shape=holds.shape, stride=contiguous_stride(holds.shape), storage=storage, offset=0)


def _results(edit: TensorEdit, given: Sequence[Tensor], format_: str) -> list[Result]:
    if isinstance(edit, Fill):
        return [_filled(edit, format_)]
    holds = made(edit, [(tensor.dtype, view_of(tensor)) for tensor in given])
    if isinstance(edit, (Dequantize, Compute)):
        return [_computed(edit, given, holds[0], format_)]
    if isinstance(edit, Reshape) and is_contiguous(given[0]):
        return [Result(derived(given[0], shape=edit.shape, stride=contiguous_stride(edit.shape)), None)]
    alike = _COMPUTED if isinstance(edit, FuseNorm) else _ALIKE
    for tensor in given[1:]:
        odd = next((name for name in alike if getattr(tensor, name) != getattr(given[0], name)), None)
        if odd is not None:
            other = show_path(given[0].path)
            raise RefusedError(f"{show_path(tensor.path)} and {other} differ in {odd}, so they cannot be one tensor.")
    if isinstance(edit, Tie) and format_ != _SAFETENSORS:
        return [Result(derived(given[0], path=(*given[0].path[:-1], edit.key)), None)]
    keys = new_keys(edit) if isinstance(edit, ENTERING) else given[0].path[-1:]
    sizes = {tensor.storage.key: tensor.storage.nbytes for tensor in given if tensor.storage is not None}
    results = []
    for key, each in zip(keys, holds, strict=True):
        mine = [sizes[view.source] for view in elements.views(each)]
        if isinstance(edit, Tie):  # several may hold the same
            mine += edit.key.encode("utf-8", "surrogatepass")
        results.append(Result(made_tensor(given[0], (*given[0].path[:-1], key), each, mine), each))
    return results


def _computed(edit: Dequantize | Compute, given: Sequence[Tensor], holds: elements.Elements, format_: str) -> Result:
    sizes = {tensor.storage.key: tensor.storage.nbytes for tensor in given if tensor.storage is not None}
    devices = {tensor.device for tensor in given}
    if len(devices) > 1:
        raise RefusedError(f"The parts of {edit.key} are tagged with different devices; retag them first.")
    mine = [sizes[view.source] for view in elements.views(holds) if view.held is None]
    path = (*edit.place, edit.key)
    return Result(_fresh(path, BY_NAME[edit.dtype], holds, mine, devices.pop(), format_), holds)


def _filled(edit: Fill, format_: str) -> Result:
    (holds,) = made(edit, [])
    return Result(_fresh(edit.path, BY_NAME[edit.dtype], holds, [], edit.device, format_), holds)


def _fresh(
    path: KeyPath, dtype: DType, holds: elements.Elements, sizes: Sequence[int], device: str, format_: str
) -> Tensor:
    """Return a tensor that is like no other one there, and is all of a new storage."""
    storage = Storage(storage_name(holds, dtype, sizes), elements.nbytes(holds), dtype, device, None)
    rebuild = _SAFETENSORS if format_ == _SAFETENSORS else _TYPED if dtype.storage_class else _UNTYPED
    stride = contiguous_stride(holds.shape)
    return Tensor(path, dtype, holds.shape, stride, storage, device=device, rebuild=rebuild)


def _entries(node: Node, place: KeyPath, changes: list[tuple[TensorEdit, list[Result]]]) -> Node:
    """Return the state dict with the entries that come and without those that go."""
    if not isinstance(node, Mapping):
        raise RefusedError(f"{show_path(place)} is not a dict, so it has no keys to change.")
    gone = {key for edit, _ in changes for key in gone_keys(edit)}
    taken = {part for part, _ in node.entries if isinstance(part, str)} - gone
    behind: dict[str, list[Tensor]] = {}
    order = {part: number for number, (part, _) in enumerate(node.entries)}
    filled: dict[str, Tensor] = {}
    for edit, found in changes:
        for each in found:
            if each.tensor.key in taken:
                key = each.tensor.key
                raise RefusedError(f'"{key}" already exists in {show_path(place)}; drop or rename it first.')
            taken.add(each.tensor.key)
        if isinstance(edit, Fill):
            filled[found[0].tensor.key] = found[0].tensor
        else:
            old = gone_keys(edit) or [str(path[-1]) for path in sources(edit)]
            behind.setdefault(min(old, key=order.__getitem__), []).extend([each.tensor for each in found])
    entries = list(_exchanged(node, behind, gone))
    return derived(node, entries=tuple(_with_filled(entries, filled)))


def _exchanged(node: Mapping, behind: dict[str, list[Tensor]], gone: set[str]) -> Iterator[tuple[Part, Node]]:
    for part, value in node.entries:
        if not isinstance(part, str) or part not in gone:
            yield part, value
        if isinstance(part, str):
            yield from ((tensor.key, tensor) for tensor in behind.get(part, ()))


def _with_filled(entries: list[tuple[Part, Node]], filled: dict[str, Tensor]) -> Iterator[tuple[Part, Node]]:
    if not filled:
        yield from entries
        return
    keys = [part for part, _ in entries if isinstance(part, str)]
    order = with_new(keys, filled)
    follows: dict[str | None, list[str]] = {}
    last: str | None = None
    for key in order:
        if key in filled:
            follows.setdefault(last, []).append(key)
        else:
            last = key
    yield from ((key, filled[key]) for key in follows.get(None, ()))
    for part, value in entries:
        yield part, value
        if isinstance(part, str):
            yield from ((key, filled[key]) for key in follows.get(part, ()))
