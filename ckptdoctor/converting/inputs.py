"""Opens what is to be converted, one checkpoint or several, and says what is wanted of all of it together."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ckptdoctor import formats
from ckptdoctor.brief import in_full
from ckptdoctor.checkpoint import (
    ROOT,
    Checkpoint,
    FileIdentity,
    KeyPath,
    Mapping,
    Node,
    NoteKind,
    Part,
    Source,
    Tensor,
    progress,
    show_part,
    show_path,
)
from ckptdoctor.checkpoint.changed_trees import move_tensor
from ckptdoctor.checkpoint.checkpoint import UNREAD, Rival, concerns, unheld
from ckptdoctor.checkpoint.metadata import COUNTED, is_tie, joined
from ckptdoctor.checkpoint.roots import find_root
from ckptdoctor.edits.applied.unwrapping import unwrapped
from ckptdoctor.edits.applied.wanted import Wanted, with_tree
from ckptdoctor.errors import DamagedError, RefusedError
from ckptdoctor.facts.devices import whole_dtensors
from ckptdoctor.facts.reader_notes import require_every_file, require_own_values, to_salvage
from ckptdoctor.formats.advice import converted_first
from ckptdoctor.formats.folders.shards import shard_sets
from ckptdoctor.formats.fresh.strided import refusal, segments
from ckptdoctor.noun import noun, replace
from ckptdoctor.shell import quote
from ckptdoctor.wording import and_more
from ckptdoctor.writing.checksums import Bytes

# notes with which a copy of the values would be broken, or a guess
_BROKEN = frozenset({NoteKind.TRUNCATED, NoteKind.ZIP_DAMAGED, NoteKind.PICKLE_DAMAGED, NoteKind.OFFSETS_INVALID})
_SALVAGE = "ckptdoctor salvage"
_DOUBTED = frozenset({*_BROKEN, *UNREAD, NoteKind.TENSOR_STATE, NoteKind.KEY_IN_TWO_FILES})


@noun
class Inputs:
    """The files, open, and what is ``wanted`` of them: the contents of all together.

    ``identity`` is what the file of that was when it was read. ``absent`` says what belongs to them and is not there, a
    clause each.
    """

    paths: tuple[str, ...]
    checkpoints: tuple[Checkpoint, ...]
    sources: tuple[Source, ...]
    wanted: Wanted
    identity: FileIdentity | None
    absent: tuple[str, ...]


@contextmanager
def inputs(paths: Sequence[str], root: str | None = None, names: Sequence[str] = ()) -> Iterator[Inputs]:
    """Open the checkpoints at ``paths``, which stay open meanwhile; ``root`` is the part that is wanted.

    ``names`` are those of the parts of a model that they are, one for each path ("": its keys are as they are to be).

    Raises what reading raises, DamagedError where a file is missing or damaged that may hold something of that, and
    RefusedError where two of them disagree about a key.
    """
    with ExitStack() as stack:
        pairs = [_read(stack, path, root if len(paths) == 1 else None) for path in paths]
        checkpoints, sources = tuple([one for one, _ in pairs]), tuple([other for _, other in pairs])
        turned = [path for path, each in zip(paths, checkpoints, strict=True) if each.big_endian]
        if 0 < len(turned) < len(paths):
            raise RefusedError(f"{turned[0]} is big-endian, and others are not. {converted_first(turned[0])}")
        file = file_in(checkpoints[0], sources[0].file)
        wanted = _together(checkpoints, names, file)
        identity = sources[0].identity if file == sources[0].file else None
        yield Inputs(tuple(paths), checkpoints, sources, wanted, identity, absent(paths, checkpoints))


def _read(stack: ExitStack, path: str, root: str | None) -> tuple[Checkpoint, Source]:
    source, container = stack.enter_context(formats.opened(path))
    formats.require_own(container)
    checkpoint = formats.read(source, container)
    if source.distant:
        raise RefusedError(f"{checkpoint.path} is not on this machine; download it first.")
    if any(note.kind in _DOUBTED for note in checkpoint.notes):
        require_whole(checkpoint, path, ROOT if root is None else find_root(checkpoint.tree, root))
    return checkpoint, source


def require_whole(checkpoint: Checkpoint, path: str, root: KeyPath) -> None:
    """Raise DamagedError, with what to do, where something is missing below ``root``, or cannot be relied on."""
    require_own_values(checkpoint, root)
    require_one_value(checkpoint, path, root)
    broken = next((note for note in checkpoint.notes if note.kind in _BROKEN and concerns(note, root)), None)
    if broken is not None:
        salvaged = to_salvage(checkpoint, broken.member)
        way = "Use another copy of it." if salvaged is None else f"Recover what is intact: {_SALVAGE} {quote(salvaged)}"
        raise DamagedError(f"{path}: {broken.message.rstrip('.')}. {way}")
    require_every_file(checkpoint, root)


def require_one_value(checkpoint: Checkpoint, path: str, root: KeyPath, kept: Container[KeyPath] | None = None) -> None:
    """Raise RefusedError where two files have a key below ``root`` with different values: nothing says which is right.

    Only keys in ``kept`` matter, where that is given.
    """
    rivals = [each for each in checkpoint.rivals if all(a == b for a, b in zip(each.path, root, strict=False))]
    rivals = [each for each in rivals if kept is None or each.path in kept or not isinstance(each.held, Tensor)]
    for each in rivals:
        if not _agree(each, checkpoint.big_endian):
            raise RefusedError(
                f'{path}: "{show_path(each.path)}" is in {each.taken} and in {each.file}, with different values. '
                f"What to do: ckptdoctor check {quote(path)}"
            )


def _agree(rival: Rival, swapped: bool) -> bool:
    """Return whether both files have the same under the key; what has no bytes that could be compared has not."""
    nodes = (rival.held, rival.node)
    return all(not isinstance(each, Tensor) or refusal(each) is None for each in nodes) and _same(*nodes, swapped)


def file_in(checkpoint: Checkpoint, path: str) -> str:
    """Return a file whose owner and permissions the output gets: the one at ``path``, or one in the folder there."""
    if not os.path.isdir(path):
        return path
    for tensor in checkpoint.tensors:
        for piece in (tensor, *[chunk for _, chunk in tensor.chunks]):
            if piece.storage is not None and piece.storage.extent is not None:
                return piece.storage.extent.file
    raise RefusedError(f"{checkpoint.path} has no values to convert.")


def _together(checkpoints: Sequence[Checkpoint], names: Sequence[str], file: str) -> Wanted:
    """Return what is wanted of all of them: the contents of the only one, or the entries of all in one dict.

    The first is the original, of whose byte order all are.
    """
    first = checkpoints[0]
    if len(checkpoints) == 1 and not any(names):
        return Wanted(first, plain(first), file=file)
    tree = _merged(checkpoints, first.big_endian, names or [""] * len(checkpoints))
    storages = tuple([storage for each in checkpoints for storage in each.storages])
    metadata, disputed = joined(
        _below_part(name, each) if name else each.metadata
        for each, name in zip(checkpoints, names or [""] * len(checkpoints), strict=True)
    )
    index_metadata, unlike = joined(each.index_metadata for each in checkpoints)
    before = {key: None for each in checkpoints for key in each.disputed}
    contents = replace(
        with_tree(first, tree, storages),
        metadata={key: text for key, text in (metadata or {}).items() if key not in before},
        disputed=tuple({**before, **dict.fromkeys(disputed), **dict.fromkeys(set(unlike) - COUNTED)}),
        index_metadata=index_metadata or {},
    )
    return Wanted(first, contents, file=file)


def _below_part(name: str, checkpoint: Checkpoint) -> dict[str, str]:
    """Return the metadata of a part, with the names that its tensors have in the whole model."""
    keys = {tensor.key for tensor in checkpoint.tensors}
    said = (checkpoint.metadata or {}).items()
    return dict((f"{name}.{key}", f"{name}.{text}") if is_tie(key, text, keys) else (key, text) for key, text in said)


def plain(checkpoint: Checkpoint) -> Checkpoint:
    """Return the same with plain tensors in the place of DTensors where these are whole."""
    wrappers = whole_dtensors(checkpoint)
    if wrappers is None:
        return checkpoint
    return with_tree(checkpoint, unwrapped(checkpoint.tree, wrappers.classes), checkpoint.storages)


def _merged(checkpoints: Sequence[Checkpoint], swapped: bool, parts: Sequence[str]) -> Mapping:
    """Return one dict with the entries of all. Raises RefusedError for a key with two different values."""
    entries: dict[Part, tuple[Node, str]] = {}
    names = Counter([tensor.path[0] for each in checkpoints for tensor in each.tensors if tensor.path])
    twice = sum([each.nbytes for one in checkpoints for each in one.tensors if each.path and names[each.path[0]] > 1])
    with progress.phase("comparing", twice // 2):
        _merge(entries, checkpoints, swapped, parts)
    return Mapping("dict", tuple([(part, node) for part, (node, _) in entries.items()]))


def _merge(
    entries: dict[Part, tuple[Node, str]], checkpoints: Sequence[Checkpoint], swapped: bool, parts: Sequence[str]
) -> None:
    """Put in the entries of all, each with the path that it is from."""
    for each, name in zip(checkpoints, parts, strict=True):
        tree = plain(each).tree
        if not isinstance(tree, Mapping):
            raise RefusedError(f"{each.path} is not a dict of names, so it cannot be merged with others.")
        for part, node in _below(name, tree, each.path) if name else tree.entries:
            if part not in entries:
                entries[part] = node, each.path
                continue
            known, first = entries[part]
            for held, path in ((known, first), (node, each.path)):
                reason = refusal(held) if isinstance(held, Tensor) else None
                if reason is not None:
                    raise RefusedError(f'"{show_part(part)}" in {path} {reason}.')
            if not _same(known, node, swapped):
                raise RefusedError(f'"{show_part(part)}" is in {first} and in {each.path}, with different values.')


def _below(name: str, tree: Mapping, path: str) -> Iterator[tuple[Part, Node]]:
    """Yield the tensors of a part under the names that the whole model has for them."""
    for part, node in tree.entries:
        if not isinstance(part, str) or not isinstance(node, Tensor):
            raise RefusedError(
                f"{path} holds more than the tensors of one part ({show_part(part)}). Extract its state dict "
                f"first: ckptdoctor fix {quote(path)} --root NAME"
            )
        yield f"{name}.{part}", move_tensor(node, (part,), (f"{name}.{part}",))


def _same(one: Node, other: Node, swapped: bool) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return _same_values(one, other, swapped)
    return in_full(one) == in_full(other)


def _same_values(one: Tensor, other: Tensor, swapped: bool) -> bool:
    """Return whether two tensors have the same dtype, shape and bytes."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    with Bytes() as files:
        mine = (chunk for chunk in files.of(segments(one, swapped)) if chunk)
        its = (chunk for chunk in files.of(segments(other, swapped)) if chunk)
        left, right = next(mine, b""), next(its, b"")
        while left and right:
            size = min(len(left), len(right))
            if left[:size] != right[:size]:
                return False
            progress.advance(size)
            left, right = left[size:] or next(mine, b""), right[size:] or next(its, b"")
        return not left and not right


# ---- what belongs to a checkpoint and is in none of the files that were given, so that nobody takes the output for all


_SETS = 20  # sets of numbered files that are looked at; whoever has more of them names no checkpoint
_NAMED = 4  # of those that are lacking, how many are named


def absent(paths: Sequence[str], checkpoints: Sequence[Checkpoint]) -> tuple[str, ...]:
    """Return a clause each: files that the numbers of others speak of, and what an index names in vain."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(os.path.dirname(path), []).append(os.path.basename(path))
    sets = [(folder, shards) for folder, names in folders.items() for shards in shard_sets(names)]
    told = [_ungiven(folder, shards.missing) for folder, shards in sets[:_SETS] if len(shards.present) < shards.total]
    return (*told, *[note.message for each in checkpoints for note in unheld(each)])


def _ungiven(folder: str, names: Sequence[str]) -> str:
    shown = and_more(names, _NAMED, "shard", say=lambda name: os.path.join(folder, name))
    return f"{shown}, which {'is' if len(names) == 1 else 'are'} not among the files"
