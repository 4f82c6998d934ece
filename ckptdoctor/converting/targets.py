"""Says what is wanted of each container that a conversion may write: the contents as that can hold them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from ckptdoctor.checkpoint import ROOT, Checkpoint, KeyPath, Node, at, children, show_part, show_path, walk
from ckptdoctor.checkpoint import Mapping as Entries
from ckptdoctor.checkpoint.changed_trees import moved, tensors_in
from ckptdoctor.checkpoint.metadata import COUNTED, is_tie, place_of_metadata
from ckptdoctor.checkpoint.roots import beside
from ckptdoctor.converting.choosing import Chosen, chosen, doubled, entries_of, require_torch, restored, with_owners
from ckptdoctor.converting.request import DEFAULT_SHARD, ConvertRequest
from ckptdoctor.converting.writing import Output, report_of, weights_of
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.formats.fresh import dcp, safetensors, torch_zip
from ckptdoctor.formats.fresh.dcp import Flat, flat
from ckptdoctor.formats.fresh.safetensors import Entry
from ckptdoctor.formats.fresh.sidecar import sidecar
from ckptdoctor.noun import noun, replace
from ckptdoctor.wording import and_more

_FORMAT = {"format": "pt"}  # how metadata says whose arrays they are
_EXTRA = "model.extra.json"  # in a folder, what its containers cannot hold
_LISTED = 3  # places that are named of what cannot be kept


# ---- safetensors, in one file or in shards with their index; what are no tensors goes into a file beside


def to_safetensors(request: ConvertRequest, wanted: Wanted, root: KeyPath, sharded: bool) -> Output:
    """Return the tensors below ``root`` as safetensors. Raises RefusedError for what takes a choice."""
    found = chosen(wanted.contents.tree, root, request.root is not None, request.flatten, wanted.original.format)
    own = _own_texts(wanted.contents, found.root, request.flatten)
    entries, tied = with_owners(entries_of(found.named), own, request.clone)
    tensors = tuple([each.tensor for each in entries])
    files = _files(entries, request, sharded)
    containers = []
    every = {entry.name for entry in entries}
    for each in files:
        names = every if len(files) == 1 else {entry.name for entry in each.entries}
        metadata = _metadata(own, tied, names, every)
        made = safetensors.arranged(each.entries, metadata, wanted.original, wanted.file)
        containers.append((os.path.join(request.output, each.name) if sharded else request.output, made))
    report = replace(
        report_of(request, wanted, tensors),
        tied=tied,
        doubled=doubled(tensors),
        kept=found.kept,
        described=found.described,
        left_out=(*found.left_out, *_lost(wanted.contents, indexed=len(files) > 1)),
        root=found.root,
        called=found.called,
    )
    index = None
    if len(files) > 1:
        text = safetensors.index_of(files, wanted.contents.index_metadata)
        index = os.path.join(request.output, safetensors.INDEX), text
    return Output(tuple(containers), report, _extra(found, request, sharded), index, sharded, tensors)


def _files(entries: Sequence[Entry], request: ConvertRequest, sharded: bool) -> list[safetensors.Shard]:
    if not sharded:
        return [safetensors.Shard(os.path.basename(request.output), tuple(entries))]
    return safetensors.split(entries, request.shard_size or DEFAULT_SHARD)


def _extra(found: Chosen, request: ConvertRequest, sharded: bool) -> tuple[str, bytes] | None:
    """Return contents that are not tensors, as a file of their own, or None where there is nothing."""
    if found.rest is None:
        return None
    names = {tensor.path: name for name, tensor in found.named}
    output = os.path.join(request.output, _EXTRA) if sharded else request.beside
    return output, sidecar(found.rest, {}, names, os.path.basename(request.paths[0]))


def _own_texts(contents: Checkpoint, root: KeyPath, flatten: bool) -> Mapping[str, str]:
    """Return the metadata as far as it is about what is at ``root``, with the names that tensors have in the output."""
    metadata, place = contents.metadata or {}, place_of_metadata(contents.tree)
    if not place or root[: len(place)] == place:
        return metadata
    if place[: len(root)] != root or not flatten:
        return {}
    keys = frozenset([part for part, _ in children(at(contents.tree, place))])
    before = f"{'/'.join(map(show_part, place[len(root) :]))}/"
    return dict(
        [
            (f"{before}{show_part(key)}", f"{before}{show_part(text)}") if is_tie(key, text, keys) else (key, text)
            for key, text in metadata.items()
        ]
    )


def _lost(contents: Checkpoint, *, indexed: bool = False) -> list[str]:
    """Return entries that have no place in the output: about which files disagree, and of an index where none is."""
    disputed = [f"{key} of the metadata (the files disagree)" for key in contents.disputed]
    return disputed + [f"{key} of the index" for key in contents.index_metadata if key not in COUNTED and not indexed]


def _metadata(
    own: Mapping[str, str], tied: Sequence[tuple[str, str]], names: Collection[str], every: Collection[str]
) -> dict[str, str]:
    """Return the metadata of the file that has the tensors ``names``, out of ``every`` tensor of the output.

    It is what the source had, and other names of its tensors, as ``save_model`` notes them.
    """
    mine = {key: text for key, text in own.items() if text in names or not is_tie(key, text, every)}
    return {**_FORMAT, **mine, **{alias: owner for alias, owner in tied if owner in names}}


# ---- an archive of torch, out of any container that torch did not write as one


@noun
class _Taken:
    """What torch's containers take: the contents, and of the metadata what was for other names, and what is left."""

    node: Node
    restored: tuple[tuple[str, str], ...]
    texts: Mapping[str, str]

    @property
    def kept(self) -> tuple[str, ...]:
        """What is said of the texts."""
        return tuple([f"{key} of the metadata" for key in self.texts])

    def beside(self, path: str, request: ConvertRequest) -> tuple[str, bytes] | None:
        """Return the file of the texts, to be called ``path``, or None where there are none."""
        if not self.texts:
            return None
        return path, sidecar(None, self.texts, {}, os.path.basename(request.paths[0]))


def _taken(wanted: Wanted, root: KeyPath, request: ConvertRequest) -> _Taken:
    """Return what is at ``root``. Raises RefusedError with a list of what cannot be written."""
    metadata, tree = wanted.contents.metadata or {}, wanted.contents.tree
    place, back = place_of_metadata(tree), tuple[tuple[str, str], ...]()
    if root == place[: len(root)]:  # the state dict that it is about is in there
        tree, back = restored(tree, metadata, place)
    elif place:
        metadata = {}
    require_torch(tree, root, request)
    texts = {key: text for key, text in metadata.items() if (key, text) not in (*back, *_FORMAT.items())}
    return _Taken(moved(at(tree, root), root, ROOT), back, texts)


def to_torch(request: ConvertRequest, wanted: Wanted, root: KeyPath) -> Output:
    """Return what is at ``root`` as an archive. Raises RefusedError with a list of what cannot be written."""
    found = _taken(wanted, root, request)
    made = torch_zip.arranged(found.node, wanted.original, request.output, wanted.file)
    report = replace(
        report_of(request, wanted, made.contents.tensors),
        restored=found.restored,
        kept=found.kept,
        left_out=(*beside(wanted.contents.tree, root), *_lost(wanted.contents)),
        root=root,
        weights=weights_of(made.contents),
    )
    pairs = zip(tensors_in(found.node), made.contents.tensors, strict=True)
    again = [old for old, new in pairs if new.storage is not None and made.stored[new.storage.key].crc is None]
    extra = found.beside(request.beside, request)
    return Output(((request.output, made),), report, extra, unsummed=tuple(again))


# ---- a folder of torch.distributed.checkpoint, which any number of processes load from


def to_dcp(request: ConvertRequest, wanted: Wanted, root: KeyPath) -> Output:
    """Return what is at ``root`` as a folder. Raises RefusedError with a list of what cannot be written."""
    found = _taken(wanted, root, request)
    apart = flat(found.node, root)
    made = dcp.arranged(apart, wanted.original, wanted.file)
    tensors = [stored.shown for stored in made.stored.values() if stored.shown is not None]
    report = replace(
        report_of(request, wanted, tensors),
        restored=found.restored,
        doubled=doubled(tensors),
        kept=found.kept,
        left_out=(
            *beside(wanted.contents.tree, root),
            *_left_out(found.node, apart),
            *_lost(wanted.contents),
        ),
        root=root,
        weights=weights_of(made.contents),
    )
    extra = found.beside(os.path.join(request.output, _EXTRA), request)
    again = [each.shown for each in made.stored.values() if each.shown is not None and each.crc is None]
    return Output(((request.output, made),), report, extra, folder=True, unsummed=tuple(again))


def _left_out(node: Node, apart: Flat) -> list[str]:
    """Return contents that such a folder has no place for, as torch itself leaves them out."""
    found = []
    if apart.renamed:
        found.append(f"the types of non-string keys: {_places(apart.renamed)}")
    if any(isinstance(each, Entries) and each.attributes is not None for _, each in walk(node)):
        found.append("attributes of dicts (_metadata, the versions of modules)")
    return found


def _places(paths: Sequence[KeyPath]) -> str:
    return and_more(paths, _LISTED, say=show_path)
