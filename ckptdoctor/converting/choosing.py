"""Chooses which tensors become what of a conversion, and says what the target cannot hold."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as AnyMapping
from glob import escape

from ckptdoctor import formats
from ckptdoctor.checkpoint import (
    ROOT,
    KeyPath,
    Mapping,
    Node,
    Opaque,
    Role,
    Tensor,
    at,
    show_part,
    show_path,
    walk,
)
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.checkpoint.changed_trees import changed_at, tensors_in
from ckptdoctor.checkpoint.naming import stem_of
from ckptdoctor.checkpoint.roots import beside
from ckptdoctor.checkpoint.sharing import shared
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.converting.request import DCP, ConvertRequest
from ckptdoctor.edits.elements import NewStorage
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.whole_modules import outermost_modules
from ckptdoctor.formats.fresh.safetensors import Entry, code_of
from ckptdoctor.formats.fresh.strided import refusal
from ckptdoctor.formats.fresh.torch_zip import unwritable
from ckptdoctor.formats.suffixes import TORCH_ZIP
from ckptdoctor.noun import noun, replace
from ckptdoctor.shell import quote, word
from ckptdoctor.wording import first_few

_LISTED = 10  # what is refused is named one by one up to here
_METADATA = "_metadata"
_PROGRAMS = ("TorchScript archive", "torch.export program")  # their tensors beside the state dict are attributes of it
_OFFERED = 4  # options of a command that a refusal prints
_ALONE = "tensor"  # what a tensor without a name is called


@noun
class Chosen:
    """The tensors of a flat file by name, and everything else.

    ``rest`` is everything that is not a tensor, to be kept next to the file; None where there is nothing. ``kept`` are
    its places, ``described`` those of objects that are not plain data. ``left_out`` says what is left out. ``called``
    is the name given to a tensor that had none.
    """

    named: tuple[tuple[str, Tensor], ...]
    rest: Node
    kept: tuple[str, ...]
    described: tuple[str, ...]
    left_out: tuple[str, ...]
    root: KeyPath
    called: str | None = None


def chosen(tree: Node, root: KeyPath, wanted: bool, flatten: bool, source_format: str = "") -> Chosen:
    """Return the tensors for a flat file. ``wanted``: ``root`` was asked for, so what is outside of it is left out.

    Of a program, by the format that it comes from, only the state dict is taken unless all is to be flattened. Raises
    RefusedError, with the choices, where a person must choose.
    """
    node = at(tree, root)
    left_out = list(beside(tree, root)) if wanted and root else []
    if isinstance(node, Tensor):
        return _alone(node, root, left_out)
    if not flatten and source_format in _PROGRAMS:
        node, attributes = _of_program(node)
        left_out += attributes
    if flatten:
        named = [(_flat_name(tensor.path[len(root) :]), tensor) for tensor in tensors_in(node)]
        if not named:
            raise _nothing(node, root)
        _require_one_each(named)
    else:
        place = _state_dict(node, root)
        root = (*root, *place) if not wanted else root
        holder = at(node, place)
        assert isinstance(holder, Mapping)
        named = [(str(part), child) for part, child in holder.entries if isinstance(child, Tensor)]
    written = {id(tensor) for _, tensor in named}
    rest = without(node, written)
    if _has_metadata(node):
        left_out.append("_metadata (the versions of modules)")
    return Chosen(tuple(named), rest, tuple(_places(rest)), tuple(_described(rest)), tuple(left_out), root)


def _nothing(node: Node, root: KeyPath) -> RefusedError:
    place = show_path(root) if root else "the checkpoint"
    return RefusedError(f"{place} has no tensors to convert.{_whole_module(node)}")


def _alone(tensor: Tensor, root: KeyPath, left_out: list[str]) -> Chosen:
    """Return the file of one tensor, under its own name where it has one."""
    own = root[-1] if root and isinstance(root[-1], str) else None
    return Chosen(((own or _ALONE, tensor),), None, (), (), tuple(left_out), root, None if own else _ALONE)


def _of_program(node: Node) -> tuple[Node, list[str]]:
    """Return the state dict of a program without the other tensors that the program has, and what these are."""
    beside = node.attributes.entries if isinstance(node, Mapping) and node.attributes is not None else ()
    if not beside or not isinstance(node, Mapping):
        return node, []
    counts = [(show_part(part), sum(1 for _ in tensors_in(child))) for part, child in beside]
    return replace(node, attributes=None), [f"{part} of the program ({_tensors(count)})" for part, count in counts]


def _tensors(count: int) -> str:
    return "1 tensor" if count == 1 else f"{count:,} tensors"


def _flat_name(path: KeyPath) -> str:
    return "/".join(map(show_part, path))


def _require_one_each(named: Sequence[tuple[str, Tensor]]) -> None:
    twice = next((name for name, count in Counter(name for name, _ in named).items() if count > 1), None)
    if twice is not None:
        raise RefusedError(f'Two tensors would be called "{twice}". Choose one part with --root.')


def _state_dict(node: Node, root: KeyPath) -> KeyPath:
    """Return the place below ``node`` of the one flat dict of tensors.

    Raises RefusedError where that takes a choice.
    """
    tensors = list(tensors_in(node))
    if not tensors:
        raise _nothing(node, root)
    if isinstance(node, Mapping):
        direct = sum(isinstance(child, Tensor) for part, child in node.entries if isinstance(part, str))
        if direct == len(tensors):
            return ()
    sets = [each for each in weights_among(find_state_dicts(node)) if _plain_way(node, each.path)]
    models = [each for each in sets if each.role is Role.MODEL] or sets
    if len(models) == 1 and len(models[0].tensors) == len(tensors):
        return models[0].path
    here = show_path(root) if root else "the checkpoint"
    lines = [f"safetensors files hold one flat set of tensors, and {here} holds more"]
    lines += [f"  {show_path((*root, *each.path))}   {_tensors(len(each.tensors))}" for each in models[:_LISTED]]
    rest = len(tensors) - sum(len(each.tensors) for each in models)
    lines += [f"  elsewhere   {_tensors(rest)}"] if rest > 0 else []
    ways = [f"--root {show_path((*root, *each.path))}" for each in models[:3] if each.path]
    choice = ", or ".join([*ways, "--flatten (all of them, under names such as optimizer/state/0/exp_avg)"])
    raise RefusedError("\n".join([*lines, f"  choose: {choice}", *_module_first(node)]))


def _module_first(node: Node) -> Iterator[str]:
    if next(outermost_modules(node), None) is not None:
        yield "  it holds a whole pickled model: ckptdoctor fix FILE --select P204 first extracts its state dict"


def _whole_module(node: Node) -> str:
    pickled = any(isinstance(each, Opaque) for _, each in walk(node))
    return " It is a whole pickled model: run ckptdoctor fix --select P204 --unsafe-fixes first." if pickled else ""


def _plain_way(node: Node, path: KeyPath) -> bool:
    for part in path:
        if not isinstance(node, (Mapping, Items)):
            return False
        node = at(node, (part,))
    return isinstance(node, Mapping)


# ---- what is no tensor


def without(node: Node, written: set[int]) -> Node:
    """Return the contents without the tensors that were written, and without dicts that held nothing else.

    In lists, where leaving one out would move the others, the tensors stay. None where nothing is left.
    """
    if isinstance(node, Tensor):
        return None
    if isinstance(node, Mapping):
        entries = []
        for part, child in node.entries:
            kept = without(child, written) if isinstance(child, (Mapping, Items)) else child
            emptied = isinstance(child, Mapping) and bool(child.entries) and kept is None
            if id(child) not in written and not emptied:
                entries.append((part, Mapping(child.kind, ()) if isinstance(child, Mapping) and kept is None else kept))
        attributes = _without_metadata(node.attributes)
        if not entries and attributes is None:
            return None
        return Mapping(node.kind, tuple(entries), attributes)
    if isinstance(node, Items) and any(id(each) in written for _, each in walk(node)):
        items = [child if isinstance(child, Tensor) else _emptied(child, written) for child in node.items]
        return replace(node, items=tuple(items))
    return node


def _emptied(node: Node, written: set[int]) -> Node:
    if isinstance(node, Mapping):
        kept = without(node, written)
        return Mapping(node.kind, ()) if kept is None else kept
    return without(node, written) if isinstance(node, Items) else node


def _without_metadata(attributes: Mapping | None) -> Mapping | None:
    if attributes is None:
        return None
    entries = tuple([(part, child) for part, child in attributes.entries if part != _METADATA])
    return replace(attributes, entries=entries) if entries else None


def _has_metadata(node: Node) -> bool:
    return any(
        isinstance(each, Mapping) and each.attributes is not None and _METADATA in dict(each.attributes.entries)
        for _, each in walk(node)
    )


def _places(rest: Node) -> Iterator[str]:
    """Yield the names at the top of what is kept."""
    if rest is None:
        return
    if not isinstance(rest, Mapping):
        yield "(root)"
        return
    for part, child in rest.entries:
        name = f" ({child.class_name})" if isinstance(child, Opaque) else ""
        yield f"{show_part(part)}{name}"
    if rest.attributes is not None:
        yield from (f".{show_part(part)}" for part, _ in rest.attributes.entries)


def _described(rest: Node) -> Iterator[str]:
    for path, node in walk(rest) if rest is not None else ():
        if isinstance(node, Opaque):
            yield f"{show_path(path)} ({node.class_name})"


# ---- what the target cannot say


def entries_of(named: Iterable[tuple[str, Tensor]]) -> list[Entry]:
    """Return the tensors as safetensors can hold them. Raises RefusedError with the list of those that it cannot."""
    found, trouble = [], []
    for name, tensor in named:
        reason = refusal(tensor)
        if reason is None and code_of(tensor) is None:
            reason = f"is {tensor.dtype.name}, which safetensors does not have"
        if reason is None:
            found.append(Entry(name, tensor))
        else:
            trouble.append((name, reason))
    _refuse(trouble, "safetensors", "leave them out first: ckptdoctor fix --drop NAME")
    return found


def require_torch(tree: Node, root: KeyPath, request: ConvertRequest) -> None:
    """Raise RefusedError with the list of what torch's containers cannot hold of what is at ``root``."""
    trouble = list(unwritable(at(tree, root), root))
    if not trouble:
        return
    what = "a distributed checkpoint" if request.target == DCP else "a torch file"
    ways = [*_parts_without(tree, root, trouble), *([] if root else _written_without(request, trouble))]
    other = "a part without them: --root KEY" if root else "save it again without them: no command leaves them out"
    way = ", or ".join(ways) or other
    _refuse([(show_path(path), reason) for path, reason in trouble], what, way)


def _parts_without(tree: Node, root: KeyPath, trouble: Sequence[tuple[KeyPath, str]]) -> Iterator[str]:
    """Yield the option for each part that has tensors, and nothing that is in the way, where ``root`` was not named."""
    if root or not isinstance(tree, Mapping):
        return
    broken = {path[:1] for path, _ in trouble}
    whole = [part for part, child in tree.entries if (part,) not in broken and isinstance(child, Mapping)]
    whole = [part for part in whole if next(tensors_in(at(tree, (part,))), None) is not None]
    yield from [f"--root {word(show_part(part))}" for part in whole[:_OFFERED]]


def _written_without(request: ConvertRequest, trouble: Sequence[tuple[KeyPath, str]]) -> Iterator[str]:
    """Yield the command that writes everything else into a file, where one does and leaves out no tensor."""
    if len(request.paths) > 1 or len(trouble) > _OFFERED:
        return
    (path,) = request.paths
    original, places = formats.open_checkpoint(path), [place for place, _ in trouble]
    if [place for place, _ in unwritable(original.tree)] != places or not original.tensors:
        return  # what is converted was edited before
    if any(not place or not all(isinstance(part, str) for part in place) for place in places):
        return  # all of it, or members of lists, without which the others would move
    if any(next(tensors_in(at(original.tree, place)), None) is not None for place in places):
        return
    stem = stem_of(path) if os.path.isdir(path) else f"{os.path.splitext(path)[0]}.fixed"
    output = request.output if request.target == TORCH_ZIP else f"{stem}.pt"
    dropped = " ".join([f"--drop {word(escape(show_path(each)))}" for each in places])
    then = "" if output == request.output else ", and convert what that writes"
    yield f"leave them out{then}: ckptdoctor fix {quote(path)} {dropped} -o {quote(output)}"


def _refuse(trouble: Sequence[tuple[str, str]], what: str, way: str) -> None:
    if not trouble:
        return
    number = "one thing" if len(trouble) == 1 else f"{len(trouble):,} things"
    lines = first_few([f"  {name} {why}" for name, why in trouble], _LISTED, before="  … and ")
    raise RefusedError("\n".join([f"{number} in it cannot be written to {what}", *lines, f"  choose: {way}"]))


def with_owners(
    entries: Sequence[Entry], metadata: AnyMapping[str, str], clone: bool
) -> tuple[list[Entry], tuple[tuple[str, str], ...]]:
    """Return the entries without those that are only other names of one of them (as pairs).

    ``clone`` keeps them all.
    """
    found = {} if clone else owners((entry.name, entry.tensor) for entry in entries)
    gone = {alias for alias in found if alias not in metadata}
    kept = [entry for entry in entries if entry.name not in gone]
    return kept, tuple([(alias, owner) for alias, owner in found.items() if alias in gone])


def restored(
    tree: Node, metadata: AnyMapping[str, str], place: KeyPath = ROOT
) -> tuple[Node, tuple[tuple[str, str], ...]]:
    """Return the contents with the names that ``safetensors.torch.save_model`` noted in the metadata of ``place``."""
    node = at(tree, place)
    if not isinstance(node, Mapping):
        return tree, ()
    own = {part: child for part, child in node.entries if isinstance(child, Tensor)}
    names = {part for part, _ in node.entries}
    pairs = [(alias, owner) for alias, owner in metadata.items() if alias not in names and owner in own]
    if not pairs:
        return tree, ()
    more = [(alias, replace(own[owner], path=(*place, alias))) for alias, owner in pairs]
    made = replace(node, entries=(*node.entries, *more))
    return changed_at(tree, place, lambda _: made), tuple(pairs)


def doubled(tensors: Iterable[Tensor]) -> int:
    """Return tensors whose elements others view too: each has them for itself in the output."""
    files: dict[str, list[Tensor]] = {}  # the keys of storages tell them apart in one file only
    for each in tensors:
        if isinstance(each.storage, NewStorage):
            files.setdefault("", []).append(each)
        elif each.storage is not None and each.storage.extent is not None:
            files.setdefault(each.storage.extent.file, []).append(each)
    return sum(len(group.tensors) for same in files.values() for group in shared(same))


# ---- tensors that are one and the same memory, and which of their names keeps the bytes where only one can
#
# The input embedding is the one that loaders look for: transformers ties the output layer to it, never the other way
# round, so a file without it loads with a random one. Everything else goes by the order of the file, never of the
# alphabet, as ``safetensors.torch.save_model`` has it, which keeps ``lm_head.weight``.


# the last module of input embeddings in transformers, fairseq and GPT-like models; the first that is there is taken
_EMBEDDINGS = (
    *("shared", "embed_tokens", "wte", "word_embeddings", "word_embedding", "tok_embeddings", "embed_in"),
    *("token_embedding", "tok_emb", "embeddings", "embedding", "emb", "embed"),
)


def view_of(tensor: Tensor) -> object:
    """Return what tensors share when they are one: the bytes, how they are viewed, the dtype. None without elements."""
    if not tensor.numel or tensor.chunks:
        return None
    if isinstance(tensor.storage, NewStorage):
        place: object = tensor.storage.key
    elif tensor.storage is not None:
        where = tensor.storage.extent
        place = None if where is None else (where.file, where.offset, where.length)
    else:
        place = id(tensor.values)
    return place, tensor.form


def owners(named: Iterable[tuple[str, Tensor]]) -> dict[str, str]:
    """Return alias → owner, for every name whose tensor is that of another name."""
    groups: dict[object, list[str]] = {}
    for name, tensor in named:
        view = view_of(tensor)
        if view is not None:
            groups.setdefault(view, []).append(name)
    found: dict[str, str] = {}
    for names in groups.values():
        if len(names) > 1:
            owner = owner_of(names)
            found.update((name, owner) for name in names if name != owner)
    return found


def owner_of(names: list[str]) -> str:
    """Return the name that keeps the bytes: that of the input embedding, else the first."""
    ranked = [(rank, index) for index, name in enumerate(names) if (rank := _rank(name)) is not None]
    return names[min(ranked)[1]] if ranked else names[0]


def _rank(name: str) -> int | None:
    modules = name.split(".")[:-1]
    if not modules or modules[-1] not in _EMBEDDINGS:
        return None
    return _EMBEDDINGS.index(modules[-1])
