"""Reads the weights in a Hugging Face folder: one file, or shards that an index names or that number themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from weakref import WeakKeyDictionary

from ckptdoctor.checkpoint import Checkpoint, FolderSource, KeyPath, Mapping, Node, Note, NoteKind, Part, Tensor
from ckptdoctor.checkpoint.checkpoint import UNREAD, Rival
from ckptdoctor.checkpoint.metadata import joined
from ckptdoctor.errors import CkptDoctorError, DamagedError
from ckptdoctor.formats.folders.gathering import Gathering, Rebased, told
from ckptdoctor.formats.folders.shards import (
    CONFIGS,
    SINGLE,
    Index,
    Shards,
    index_wanted,
    indexes,
    read_index,
    shard_sets,
)
from ckptdoctor.noun import noun, replace
from ckptdoctor.wording import and_more, plural


@noun
class Weights:
    """Where a folder's weights are. ``files`` are all of them; one that is alone is ``single``.

    ``shards`` are the numbered files that are there, whether the index names them or not. ``others`` are further
    indexes and files of weights, which are not read. ``trouble`` says why there is an index but nothing of it.
    """

    files: tuple[str, ...]
    index: Index | None = None
    shards: Shards | None = None
    single: str = ""
    others: tuple[str, ...] = ()
    trouble: DamagedError | None = None


# shard-00001-model-00001-of-00002.safetensors holds a piece of each tensor, not some of the tensors
# (torch.distributed.checkpoint.HuggingFaceStorageWriter with save_distributed=True)
_PIECES = "shard-0"

# files that are said one by one not to have been read
_MOST_OTHERS = 8

_found: WeakKeyDictionary[FolderSource, Weights | None] = WeakKeyDictionary()


def weights_in(folder: FolderSource) -> Weights | None:
    """Return where the weights are, by the names in the folder and its index, or None.

    The index is read once.
    """
    if folder not in _found:
        _found[folder] = _look(folder)
    return _found[folder]


def _look(folder: FolderSource) -> Weights | None:
    names = frozenset(folder.names)
    single = next((name for name in SINGLE if name in names), "")
    listed = indexes(names)
    sets = [each for each in shard_sets(folder.names) if not each.stem.startswith(_PIECES)]
    # transformers takes model.safetensors before an index, and an index before pytorch_model.bin
    if single.endswith(".safetensors") or (single and not listed and not sets):
        return Weights((single,), single=single, others=(*listed, *[name for name in SINGLE if name in names][1:]))
    if listed:
        others = (*listed[1:], *([single] if single else []))
        return _indexed(folder, listed[0], others, sets)
    if sets:
        further = [file for each in sets[1:] for file in each.present.values()]
        others = (*further, *([single] if single else []))
        return Weights(tuple(sets[0].present.values()), shards=sets[0], others=others)
    return None


def _indexed(folder: FolderSource, name: str, others: tuple[str, ...], sets: list[Shards]) -> Weights:
    stem, suffix = name.partition(".")[0], "safetensors" if ".safetensors." in name else "bin"
    own = next((each for each in sets if (each.stem.partition(".")[0], each.suffix) == (stem, suffix)), None)
    try:
        index = read_index(folder, name)
    except CkptDoctorError as error:
        damaged = error if isinstance(error, DamagedError) else DamagedError(error.message, member=name)
        return Weights(tuple(own.present.values()) if own else (), None, own, others=others, trouble=damaged)
    unnamed = [file for file in own.present.values() if file not in index.files] if own else []
    return Weights((*index.files, *unnamed), index, own, others=others)


def is_model(folder: FolderSource) -> bool:
    """Return whether something next to the weights says that this is a model's folder."""
    return not CONFIGS.isdisjoint(folder.names)


def gather_weights(gathering: Gathering, weights: Weights, path: tuple[str, ...] = ()) -> Node:
    """Return the weights as one state dict at ``path``, or what a single file holds.

    Notes tell what is odd about them.
    """
    for name in weights.others[:_MOST_OTHERS]:
        gathering.note(NoteKind.NOT_EXAMINED, f"{name}, next to the weights that were read", name)
    rest = len(weights.others) - _MOST_OTHERS
    if rest > 0:
        gathering.note(NoteKind.NOT_EXAMINED, f"{plural(rest, 'more file')} next to the weights that were read")
    if weights.single:
        node = gathering.branch(weights.single, path, weights=True)
        return Mapping("dict", ()) if node is None else node
    if "config.json" in gathering.folder.names:
        _note_unusable(gathering, weights)
    return union(gathering, weights.files, weights.index, weights.shards, path)


def _note_unusable(gathering: Gathering, weights: Weights) -> None:
    """Note that ``from_pretrained`` finds no shards here, or fails at their index: it reads ``metadata`` first."""
    index, shards = weights.index, weights.shards
    if index is not None:
        if index.metadata is None:
            message = f"{index.name} has no metadata, which from_pretrained reads"
            gathering.note(NoteKind.INDEX_UNUSABLE, message, index.name)
    elif shards is not None and weights.trouble is None and not shards.missing and index_wanted(shards):
        name = index_wanted(shards)
        message = f"there is no {name}, without which from_pretrained does not find the shards"
        gathering.note(NoteKind.INDEX_UNUSABLE, message, name)


def model_branch(gathering: Gathering) -> Iterator[tuple[Part, Node]]:
    """Yield the weights of a folder as its branch ``model``; nothing where there are none."""
    weights = weights_in(gathering.folder)
    if weights is None:
        return
    if weights.trouble is not None:
        gathering.note(NoteKind.INDEX_WRONG, weights.trouble.message, weights.trouble.member)
    yield "model", gather_weights(gathering, weights, ("model",))


# ---- the union of shards: every tensor from the file in which the index says it lies, or from the one that has it


_NAMED = 4  # keys or files named in a note before the rest is counted


def union(
    gathering: Gathering, files: Sequence[str], index: Index | None, shards: Shards | None, path: KeyPath
) -> Node:
    """Return one state dict at ``path`` of all the tensors in the shards."""
    if shards is not None and index is None:
        for name in shards.missing[:_NAMED]:
            gathering.note(NoteKind.FILE_MISSING, f"{name} is missing", name)
        rest = len(shards.missing) - _NAMED
        if rest > 0:
            gathering.note(
                NoteKind.FILE_MISSING,
                f"{plural(rest, 'more shard', 'more shards')} of {shards.total:,} {'is' if rest == 1 else 'are'} "
                "missing",
            )
    parts = Parts(gathering, files, index, shards, path)
    parts.compare()
    gathering.metadata, gathering.disputed = joined(each.metadata for each in parts.read.values())
    gathering.index_metadata = (index.metadata or {}) if index is not None else {}
    return parts.joined(path)


class Parts:
    """What each shard holds at its top, before it is known which of them a key is taken from.

    ``stale`` says that the index is of another save than the shards. ``path`` is where their tensors will be. ``own``
    are the files that a correct index names.
    """

    def __init__(
        self,
        gathering: Gathering,
        files: Iterable[str],
        index: Index | None,
        shards: Shards | None,
        path: KeyPath = (),
    ) -> None:
        self.gathering = gathering
        self.index = index
        self.shards = shards
        self.map = index.weight_map if index is not None else {}
        self.own = _own_files(index, shards)
        self.read: dict[str, Checkpoint] = {}
        self.entries: dict[str, dict[Part, Node]] = {}
        self.holders: dict[Part, list[str]] = {}  # key → the files that have it
        self.stale = False
        wanted = index.files if index is not None else {}
        before = len(gathering.notes)
        for file in files:
            count = wanted.get(file, 0)
            self._open(file, f"with {plural(count, 'tensor')} of the index" if count else "")
        self.troubles: list[Note] = self._with_keys(gathering.notes[before:], path)
        gathering.notes[before:] = self.troubles

    def _open(self, file: str, what: str) -> None:
        checkpoint = self.gathering.file(file, what)
        if checkpoint is None:
            return
        if not isinstance(checkpoint.tree, Mapping):
            self.gathering.note(NoteKind.FILE_DAMAGED, f"{told(file, what)} does not hold a state dict", file)
            rebased = Rebased(file)  # what it names when it is loaded is as true of it as of the others
            self.gathering.globals += rebased.globals(checkpoint)
            self.gathering.notes += rebased.notes(checkpoint.notes)
            self.gathering.asides += rebased.asides(checkpoint.asides)
            return
        self.read[file] = checkpoint
        self.entries[file] = dict(checkpoint.tree.entries)
        for key in self.entries[file]:
            self.holders.setdefault(key, []).append(file)

    def _with_keys(self, notes: Iterable[Note], path: KeyPath) -> list[Note]:
        """Return the notes of files that could not be read, with the keys that the index alone puts there."""
        lost: dict[str, list[KeyPath]] = {}
        for key, file in self.map.items():
            if file not in self.read and key not in self.holders:
                lost.setdefault(file, []).append((*path, key))
        return [
            replace(note, keys=tuple(lost.get(note.member or "", ()))) if note.kind in UNREAD else note
            for note in notes
        ]

    # ---- what is odd

    def compare(self) -> None:
        """Compare the index with what the files hold, and the files with each other."""
        twice = [key for key, files in self.holders.items() if len(files) > 1]
        if twice:
            files = sorted({file for key in twice for file in self.holders[key]})
            message = f"{_listed(files)} {'both ' if len(files) == 2 else ''}hold {_listed(twice)}"
            unlike = [key for key in twice if self._unlike(key)]
            message += f", with another dtype or shape in each: {_listed(unlike)}" if unlike else ""
            self.gathering.note(NoteKind.KEY_IN_TWO_FILES, message, files[0])
        if self.index is not None:
            self._stale(self.index)
            self._misplaced(self.index)
            self._omitted(self.index)
            self._size(self.index)

    def _unlike(self, key: Part) -> bool:
        """Return whether the files that have the key have tensors of several kinds under it."""
        nodes = [self.entries[file][key] for file in self.holders[key]]
        return len({(node.dtype.name, node.shape) for node in nodes if isinstance(node, Tensor)}) > 1

    def _stale(self, index: Index) -> None:
        """An index of another save: it names files that are not there, and all of them are numbered otherwise."""
        gone = [file for file in index.files if file not in self.read]
        other = self.shards
        unnamed = [file for file in self.read if file not in index.files]
        if not gone or not unnamed or other is None or other.missing:
            return
        here = {key for file in unnamed for key in self.entries[file]}
        known = set(gone)
        lost = [key for key, file in index.weight_map.items() if file in known]
        if all(key in self.holders for key in lost) or len(here) >= len(lost):
            # what looked like missing shards is an index that was not written again
            self.gathering.notes = [
                note
                for note in self.gathering.notes
                if note not in self.troubles or note.kind is not NoteKind.FILE_MISSING or note.member not in known
            ]
            message = (
                f"{index.name} names {_listed(gone)}, which {'is' if len(gone) == 1 else 'are'} missing; the "
                f"tensors are in {_listed(unnamed)}"
            )
            self.gathering.note(NoteKind.INDEX_STALE, message, index.name)
            self.stale = True

    def _misplaced(self, index: Index) -> None:
        wrong: list[str] = []
        nowhere: list[str] = []
        for key, file in index.weight_map.items():
            if file in self.read and key not in self.entries[file]:
                (wrong if key in self.holders else nowhere).append(key)
        if wrong:
            first = wrong[0]
            message = (
                f"{index.name} looks for {_listed(wrong)} in the wrong file: {_short(first)} is in "
                f"{self.holders[first][0]}, not in {index.weight_map[first]}"
            )
            self.gathering.note(NoteKind.INDEX_WRONG, message, index.name)
        if nowhere:
            where = "is in none of the files" if len(nowhere) == 1 else "are in none of the files"
            message = f"{index.name} names {_listed(nowhere)}, which {where}"
            self.gathering.note(NoteKind.INDEX_LACKS, message, index.name)

    def _omitted(self, index: Index) -> None:
        if self.stale:
            return
        left = [key for key in self.holders if key not in self.map and self.belongs(key)]
        if not left:
            return
        unnamed = [file for file in dict.fromkeys(self.holders[key][0] for key in left) if file not in index.files]
        are = "is" if len(left) == 1 else "are"
        where = f"in {_listed(unnamed)}" if unnamed else "in its files"
        if unnamed and len(left) > sum(self.holders[key][0] in unnamed for key in left):
            where = f"in its files and {where}"
        message = f"{index.name} does not name {_listed(left)}, which {are} {where}"
        self.gathering.note(NoteKind.INDEX_OMITS, message, index.name)

    def _size(self, index: Index) -> None:
        if index.total_size is None or self.troubles or not index.files.keys() <= self.read.keys():
            return
        listed = [file for file in self.read if file in self.own]
        tensors = [node for file in listed for node in self.entries[file].values() if isinstance(node, Tensor)]
        each = sum([tensor.nbytes for tensor in tensors])
        stored = sum([storage.nbytes for file in listed for storage in self.read[file].storages])
        named = {key: node for file in listed for key, node in self.entries[file].items() if isinstance(node, Tensor)}
        once = sum([named[key].nbytes for key in self.map if key in named])
        if index.total_size not in (each, stored, once):
            message = (
                f"{index.name} counts {plural(index.total_size, 'byte')} of tensors, but there "
                f"{'is' if stored == 1 else 'are'} {stored:,}"
            )
            self.gathering.note(NoteKind.INDEX_SIZE, message, index.name)

    # ---- the union

    def belongs(self, key: Part) -> bool:
        """Return whether a correct index names the key: not one that is only in files of another set than its own."""
        if self.index is None or self.stale or key in self.map:
            return True
        return not self.own.isdisjoint(self.holders[key])

    def joined(self, path: KeyPath) -> Node:
        """Return every key once, from the file that the index names for it, in the order of the files."""
        entries: list[tuple[Part, Node]] = []
        attributes: Mapping | None = None
        made: dict[str, Rebased] = {}
        for file, checkpoint in self.read.items():
            rebased = made[file] = Rebased(file)
            for key, node in self.entries[file].items():
                if self._from(key) == file:
                    entries.append((key, rebased.node(node, path)))
            tree = checkpoint.tree
            if attributes is None and isinstance(tree, Mapping) and tree.attributes is not None:
                own = rebased.node(tree.attributes, path)
                attributes = own if isinstance(own, Mapping) else None
            self.gathering.take(rebased, checkpoint)
        self._rivals(dict(entries), made, path)
        return Mapping("dict", tuple(entries), attributes)

    def _rivals(self, entries: dict[Part, Node], made: dict[str, Rebased], path: KeyPath) -> None:
        """Keep what other files have under a key, so that whoever reads values can compare them."""
        for key, files in self.holders.items():
            if len(files) > 1:
                taken = self._from(key)
                self.gathering.rivals += [
                    Rival((*path, key), file, made[file].node(self.entries[file][key], path), taken, entries[key])
                    for file in files
                    if file != taken
                ]

    def _from(self, key: Part) -> str:
        files = self.holders[key]
        named = self.map.get(key) if isinstance(key, str) else None
        return named if named in files and named is not None else files[0]


def _own_files(index: Index | None, shards: Shards | None) -> frozenset[str]:
    """Return the files of an index: those that it names, and the other numbers of the set that they are from."""
    named = frozenset(index.files if index is not None else ())
    if shards is None:
        return named
    numbered = {*shards.present.values(), *shards.missing}
    return named if named and named.isdisjoint(numbered) else named | numbered


def _listed(names: Sequence[Part]) -> str:
    return and_more(names, _NAMED, say=_short)


def _short(name: Part) -> str:
    text = str(name)
    return text if len(text) <= 80 else f"{text[:79]}…"
