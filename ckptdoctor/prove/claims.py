"""What each kind of edit says of the contents, carried out on places: one function for each, told apart by class.

A tensor in a place is the source's, or says what an edit named about it; its storage stands for a ``Store``, which says
what became of that storage. Nothing in here is shared with what plans a repair or applies it to nouns or bytes, but for
the edits, what they say of themselves (how module prefixes follow keys, which keys come and go, where new ones stand),
and facts that read: what an array holds, which strings Python 2 wrote, what rebuilds a tensor.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import prod
from struct import pack
from typing import Any, Union

from ckptdoctor.checkpoint import (
    Checkpoint,
    DType,
    KeyPath,
    Mapping,
    Node,
    Opaque,
    Part,
    Role,
    Sequence,
    Special,
    Storage,
    Tensor,
)
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import contiguous_stride, is_contiguous
from ckptdoctor.edits import (
    Cast,
    Clone,
    Compact,
    Convert,
    Densify,
    Drop,
    Edit,
    Fill,
    Flatten,
    Fuse,
    MakeContiguous,
    MakeTensors,
    MoveToCpu,
    Rename,
    RenameModules,
    Renumber,
    Reorder,
    Repickle,
    Replace,
    Reshape,
    Retag,
    SetMetadata,
    SetSuffix,
    Split,
    TakeRoot,
    TextMetadata,
    Transpose,
    Truncate,
    Unwrap,
    WriteIndex,
)
from ckptdoctor.edits.computing import LOW_RANK, TURNED
from ckptdoctor.edits.elements import Calculated, Converted, Dequantized, Normed, Scattered
from ckptdoctor.edits.kinds import Compute, Dequantize, FuseNorm, Tie
from ckptdoctor.edits.quantization import SAME
from ckptdoctor.edits.renaming import renamed_modules
from ckptdoctor.edits.tensors import gone_keys, place_of, runs, sources, with_new
from ckptdoctor.facts import rebuilding
from ckptdoctor.facts.array_tensors import held_values
from ckptdoctor.facts.old_strings import BYTES, array_values, of_python_2
from ckptdoctor.facts.rebuilding import FROM_CPU, MOVERS, UTILS
from ckptdoctor.prove.places import (
    Box,
    Place,
    UnaccountedError,
    box_at,
    boxes,
    held,
    noun_of,
    place_at,
    tensor_places,
)
from ckptdoctor.prove.shown import (
    Literal,
    Made,
    Refolded,
    Shown,
    Store,
    Window,
    all_of,
    joined,
    span,
    turned,
    window,
)

_METADATA = "_metadata"
_SAFETENSORS = "safetensors"
_AS_SAVED = frozenset(
    {*[f"{UTILS}{name}" for name in ("tensor_v2", "tensor_v3", "qtensor", "sparse_tensor", "meta_tensor_no_storage")]}
) | {FROM_CPU}
_HASHED = (1 << 61) - 1  # readers spell out integer keys beyond it

Making = Union[Split, Fuse, FuseNorm, Dequantize, Compute, Tie]
_MAKING = (Split, Fuse, FuseNorm, Dequantize, Compute, Tie)


class Account:
    """The source's contents, and what the edits so far say became of them."""

    def __init__(self, source: Checkpoint) -> None:
        self.source = source
        self.root = Place("", held(source.tree))
        self.stores = {storage.key: Store(storage) for storage in source.storages}
        self.retaggings: list[Retag] = []
        self.format, self.size = source.format, source.size
        self.metadata = source.metadata
        self.notes_go: list[Callable[[Any], bool]] = []  # notes that an edit may take away
        self.names: set[str] = set()  # what the pickle may name beside what it did
        self.gone_storages: set[str] = set()
        self.only_viewed = False  # storages that no tensor views are gone
        self._optimizers = [box_at(self.root, each.path) for each in source.state_dicts if each.role is Role.OPTIMIZER]
        self._made: dict[object, str] = {}
        self._ranks = 0

    def after(self, edits: Iterable[Edit]) -> Account:
        """The account after the edits, one after another. Raises UnaccountedError for what is named and not there."""
        for run in runs(edits):
            if isinstance(run[0], Fill):
                self._fill([edit for edit in run if isinstance(edit, Fill)])
            elif isinstance(run[0], _MAKING):
                self._make([edit for edit in run if isinstance(edit, _MAKING)])
            else:
                for edit in run:
                    _SAYS[type(edit)](self, edit)
        return self

    # ---- storages and what they hold

    def store(self, storage: Storage) -> Store:
        """What became of a storage."""
        return self.stores.setdefault(storage.key, Store(storage))

    def shown(self, tensor: Tensor) -> Window:
        """What a tensor with bytes of its own shows. Raises UnaccountedError for any other."""
        if tensor.storage is None:
            raise UnaccountedError(f"an edit takes the bytes of {tensor.key}, which has none of its own")
        return window(tensor, self.store(tensor.storage))

    def new_storage(self, like: Storage, nbytes: int, dtype: str, holds: Shown, owner: object = None) -> Storage:
        """A storage for this, the same one for the same; with an ``owner`` it is that one's alone."""
        mark = (dtype, holds, owner)
        key = self._made.get(mark)
        if key is None:
            key = self._made[mark] = f"\0{len(self._made)}"
            made = Storage(key, nbytes, BY_NAME[dtype], like.device, None)
            self.stores[key] = Store(made, holds, len(self.retaggings), alone=owner is not None)
            self.stores[key].devices = set(self.devices_of(self.store(like), None))
        return self.stores[key].noun

    def devices_of(self, store: Store, key: str | None) -> set[str]:
        """The tags that it may have now; ``key`` is its name in the contents, None where that is not known."""
        found = set(store.devices)
        for edit in self.retaggings[store.born :]:
            named = {each for each in found if (each != edit.to if edit.devices is None else each in edit.devices)}
            if edit.storages is None or key in edit.storages:
                found -= named
            if named and (edit.storages is None or key is None or key in edit.storages):
                found.add(edit.to)
        return found

    def own(self, tensor: Tensor, holds: Shown, owner: object = None, dtype: str = "") -> Tensor:
        """The tensor in C order on a new storage."""
        assert tensor.storage is not None
        kind = BY_NAME[dtype] if dtype else tensor.dtype
        nbytes = prod(holds.shape) * max(1, kind.bits // 8)
        storage = self.new_storage(tensor.storage, nbytes, kind.name, holds, owner)
        stride = contiguous_stride(holds.shape)
        return replace(tensor, dtype=kind, shape=holds.shape, stride=stride, offset=0, storage=storage)

    def fresh(self, dtype: str, device: str, like: Storage | None, holds: Shown, owner: object = None) -> Tensor:
        """A plain tensor that is like no other one, tagged as the one ``like`` which it is made of."""
        kind = BY_NAME[dtype]
        place = like if like is not None else Storage("", 0, kind, device, None)
        storage = self.new_storage(place, prod(holds.shape) * kind.bits // 8, dtype, holds, owner)
        rebuild = f"{UTILS}tensor_v2" if kind.storage_class else f"{UTILS}tensor_v3"
        rebuild = _SAFETENSORS if self.format == _SAFETENSORS else rebuild
        return Tensor(
            (), kind, holds.shape, contiguous_stride(holds.shape), storage, 0, storage.device, rebuild=rebuild
        )

    def tensors_at(self, paths: Iterable[KeyPath]) -> Iterator[tuple[Place, Tensor]]:
        """The tensors at these paths. Raises UnaccountedError where something else stands."""
        for path in dict.fromkeys(paths):
            place = place_at(self.root, path)
            if not isinstance(place.holds, Tensor):
                raise UnaccountedError(f"an edit takes {'/'.join(map(str, path))} for a tensor, which would be lost")
            yield place, place.holds

    # ---- names, order, what goes

    def rename(self, edit: Rename) -> None:
        """Keys of a dict, and what repeats them."""
        names, box = dict(edit.pairs), box_at(self.root, edit.state_dict)
        keys = [each.step for each in box.entries if isinstance(each.step, str)]
        by_name = [each for each in self._optimizers if _calls_by_name(each, set(keys))]
        _rename_keys(box, names)
        follow = None if box.attributes is None else box.attributes.place(_METADATA)
        if follow is not None and isinstance(follow.holds, Box):
            inside = follow.holds
            prefixes = [each.step for each in inside.entries if isinstance(each.step, str)]
            moves = renamed_modules(prefixes, {key: names.get(key, key) for key in keys})
            gone = {prefix for prefix, new in moves.items() if new is None}
            inside.entries = [each for each in inside.entries if each.step not in gone]
            _rename_keys(inside, {prefix: new for prefix, new in moves.items() if new is not None})
        for optimizer in self._optimizers:
            _rename_in(optimizer, "param_names", names)
            if optimizer in by_name:
                _rename_in(optimizer, "params", names)
                state = optimizer.place("state")
                if state is not None and isinstance(state.holds, Box):
                    _rename_keys(state.holds, names)

    def rename_modules(self, edit: RenameModules) -> None:
        """Prefixes in the ``_metadata`` of a state dict."""
        names, attributes = dict(edit.pairs), box_at(self.root, edit.state_dict).attributes
        place = None if attributes is None else attributes.place(_METADATA)
        if place is None or not isinstance(place.holds, Box):
            raise UnaccountedError("an edit renames prefixes of _metadata that is not there")
        _rename_keys(place.holds, names)

    def renumber(self, edit: Renumber) -> None:
        """Integer keys of a dict."""
        numbers = dict(edit.pairs)
        _restep(box_at(self.root, edit.path), lambda step: numbers.get(step, step) if isinstance(step, int) else step)

    def reorder(self, edit: Reorder) -> None:
        """The entries of a dict."""
        box, order = box_at(self.root, edit.path), {key: number for number, key in enumerate(edit.keys)}
        for place in box.entries:
            place.rank = (order[place.step],)
        box.sort()

    def drop(self, edit: Drop) -> None:
        """What goes, all of it told by the paths of before."""
        around: dict[KeyPath, set[int]] = {}
        for path in edit.paths:
            around.setdefault(path[:-1], set()).add(id(place_at(self.root, path)))
        kept = [(box_at(self.root, path), gone) for path, gone in around.items()]
        for box, gone in kept:
            box.without(gone)

    def take_root(self, edit: TakeRoot) -> None:
        """What becomes the whole."""
        self.root = Place("", place_at(self.root, edit.path).holds)

    def replace(self, edit: Replace) -> None:
        """A plain value in the place of anything."""
        place_at(self.root, edit.path).holds = held(_plain(edit.value))

    def flatten(self, edit: Flatten) -> None:
        """An object that becomes a state dict of tensors in it."""
        place = place_at(self.root, edit.path)
        made = Box(Mapping("collections.OrderedDict", ()))
        entries = []
        for number, (key, way) in enumerate(edit.tensors):
            tensor = place_at(place, way).holds
            if not isinstance(tensor, Tensor):
                raise UnaccountedError(f"an edit takes {key} for a tensor, which would be lost")
            rebuild = tensor.rebuild
            if rebuild not in _AS_SAVED:
                rebuild = FROM_CPU if tensor.moved else rebuilding.on_cpu(tensor)
            detached = replace(tensor, requires_grad=False, is_parameter=False, rebuild=rebuild)
            entries.append(Place(key, detached, (number,)))
        made.entries = entries
        place.holds = made
        self.only_viewed |= not edit.path

    # ---- storages

    def retag(self, edit: Retag) -> None:
        """Device tags: a tensor that lies where its storage does follows it."""
        self.retaggings.append(edit)

    def compact(self, edit: Compact) -> None:
        """Storages that keep the bytes that tensors view."""
        wanted, spans = set(edit.storages), dict[str, list[tuple[int, int]]]()
        unknown = not wanted <= self.stores.keys()  # storages that edits made have names of their own there
        for place in tensor_places(self.root):
            for view in _views(place.holds):
                key = view.storage.key if view.storage is not None else ""
                if key in wanted or (unknown and key.startswith("\0")):
                    spans.setdefault(key, []).append(span(view))
        for key, found in spans.items():
            self.stores[key].shrink(tuple(_united(found)))

    def make_contiguous(self, edit: MakeContiguous | Clone) -> None:
        """Storages of their own; equal views of one go on sharing theirs, unless they are to be alone."""
        for path, (place, tensor) in zip(dict.fromkeys(edit.paths), self.tensors_at(edit.paths), strict=True):
            place.holds = self.own(tensor, self.shown(tensor), path if isinstance(edit, Clone) else None)

    def densify(self, edit: Densify) -> None:
        """Dense tensors in the place of sparse ones."""
        for place, tensor in self.tensors_at(edit.paths):
            last = tensor.parts[-1].storage if tensor.parts else None
            if last is None:
                raise UnaccountedError(f"an edit makes {tensor.key} dense, which has no values of its own")
            parts, kinds = (
                tuple([self.shown(part) for part in tensor.parts]),
                [part.dtype.name for part in tensor.parts],
            )
            facts = (("layout", tensor.layout), ("kinds", tuple(kinds[:-1])))
            like = replace(tensor, storage=last, dtype=tensor.dtype)
            dense = self.own(like, Made(Scattered, parts, facts, tensor.shape))
            rebuild = rebuilding.on_cpu(dense) if tensor.rebuild == f"{UTILS}sparse_tensor" else tensor.rebuild
            place.holds = replace(dense, layout="strided", parts=(), details=(), rebuild=_strided(rebuild, tensor))

    def cast(self, edit: Cast) -> None:
        """Another dtype: on one storage as before where all of its tensors get it, else each on one of its own."""
        chosen = [(place, each) for place, each in self.tensors_at(edit.paths) if each.dtype.name != edit.dtype]
        users: dict[str, int] = {}
        for place in tensor_places(self.root):
            for view in _views(place.holds):
                key = view.storage.key if view.storage is not None else ""
                users[key] = users.get(key, 0) + 1
        cast: dict[str, list[Tensor]] = {}
        for _, tensor in chosen:
            cast.setdefault(tensor.storage.key if tensor.storage is not None else "", []).append(tensor)
        for place, tensor in chosen:
            shown, old = self.shown(tensor), tensor.storage
            assert old is not None
            same = cast[old.key]
            kind, width = tensor.dtype.name, tensor.dtype.bits // 8
            together = len(same) == users[old.key] and len({each.dtype.name for each in same}) == 1
            facts = (("kind", kind), ("dtype", edit.dtype), ("exact", edit.exact))
            if not together or shown.store.nbytes % width:
                place.holds = self.own(tensor, Made(Converted, (shown,), facts, tensor.shape), dtype=edit.dtype)
                continue
            row = all_of(shown.store, width)
            made = self.own(tensor, Made(Converted, (row,), facts, row.shape), dtype=edit.dtype)
            offset = (
                0 if 0 in tensor.shape and shown.store.kept is not None else shown.store.place_of(shown.start) // width
            )
            offset = tensor.offset if shown.store.kept is None else offset
            place.holds = replace(tensor, dtype=made.dtype, storage=made.storage, offset=offset)

    def move_to_cpu(self, edit: MoveToCpu) -> None:
        """Tensors that loading would move, where their values are."""
        for place in tensor_places(self.root):
            if isinstance(place.holds, Tensor):
                place.holds = self._on_cpu(place.holds, edit)

    def _on_cpu(self, tensor: Tensor, edit: MoveToCpu) -> Tensor:
        if tensor.parts:
            tensor = replace(tensor, parts=tuple([self._on_cpu(part, edit) for part in tensor.parts]))
        there = tensor.storage is not None or bool(tensor.parts) or tensor.values is not None
        if not tensor.moved or not there or (edit.devices is not None and tensor.device not in edit.devices):
            return tensor
        rebuild = rebuilding.on_cpu(tensor) if tensor.rebuild in MOVERS else tensor.rebuild
        if tensor.values is None:
            place = tensor.storage.device if tensor.storage is not None else tensor.parts[0].device
            return replace(tensor, device=place, rebuild=rebuild)
        width = tensor.dtype.bits // 8
        holds = Literal(tensor.values, width, (len(tensor.values) // width,), (1,))
        mark = (tensor.dtype.name, id(tensor.values))  # tensors of one array hold one object, and share its storage
        key = self._made.setdefault(mark, f"\0{len(self._made)}")
        storage = Storage(key, len(tensor.values), tensor.dtype, "cpu", None)
        self.stores.setdefault(key, Store(storage, holds, len(self.retaggings)))
        return replace(tensor, storage=self.stores[key].noun, device="cpu", rebuild=rebuild, values=None)

    def unwrap(self, edit: Unwrap) -> None:
        """What wrappers wrap, in their place."""
        for place in tensor_places(self.root):
            if isinstance(place.holds, Tensor) and place.holds.subclass in edit.classes:
                (place.holds,) = place.holds.parts
        self.gone_storages |= set(edit.storages)

    # ---- tensors that come

    def make_tensors(self, edit: MakeTensors) -> None:
        """A tensor in the place of each array."""
        for path in edit.paths:
            place = place_at(self.root, path)
            array = held_values(noun_of(place.holds))
            if array is None:
                raise UnaccountedError(f"an edit takes {'/'.join(map(str, path))} for an array, which would be lost")
            width = array.dtype.bits // 8
            holds = Literal(array.values, width, (len(array.values) // width,), (1,))
            like = Storage("", 0, array.dtype, "cpu", None)
            storage = self.new_storage(like, len(array.values), array.dtype.name, holds, path)
            rebuild = f"{UTILS}tensor_v2" if array.dtype.storage_class else f"{UTILS}tensor_v3"
            place.holds = Tensor((), array.dtype, array.shape, array.stride, storage, rebuild=rebuild)

    def reshape(self, edit: Reshape) -> None:
        """The same elements in C order under another shape: on its storage where they lie so."""
        ((place, tensor),) = self.tensors_at([edit.path])
        if prod(edit.shape) != prod(tensor.shape):
            raise UnaccountedError(f"an edit gives {tensor.key} a shape with more or fewer elements")
        if is_contiguous(tensor):
            place.holds = replace(tensor, shape=edit.shape, stride=contiguous_stride(edit.shape))
        else:
            place.holds = self.own(tensor, Refolded(self.shown(tensor), edit.shape))

    def transpose(self, edit: Transpose) -> None:
        """The dimensions in another order, on a storage of its own."""
        ((place, tensor),) = self.tensors_at([edit.path])
        place.holds = self.own(tensor, turned(self.shown(tensor), edit.dims))

    def _make(self, edits: Iterable[Making]) -> None:
        """Tensors of state dicts that are made of others: all are taken, then all go, then all come."""
        found = []
        for edit in edits:
            box = box_at(self.root, place_of(edit))
            made = list(self._made_of(edit, [tensor for _, tensor in self.tensors_at(sources(edit))]))
            old = gone_keys(edit) or [str(path[-1]) for path in sources(edit)]
            found.append((edit, box, made, [place_at(self.root, (*place_of(edit), key)) for key in old]))
        gone: dict[int, tuple[Box, set[int]]] = {}
        come: dict[int, tuple[Box, list[Place]]] = {}
        self._ranks += 1  # what comes later stands nearer to what it was made of
        count = 0
        for edit, box, made, places in found:
            first = min([each.rank for each in places])
            behind = [Place(key, each, (*first, -self._ranks, count + at)) for at, (key, each) in enumerate(made)]
            count += len(made)
            come.setdefault(id(box), (box, []))[1].extend(behind)
            taken = set() if isinstance(edit, Tie) else {id(each) for each in places}
            gone.setdefault(id(box), (box, set()))[1].update(taken)
        for box, them in gone.values():
            box.without(them)
        for box, them_too in come.values():
            box.entries = sorted([*box.entries, *them_too], key=lambda place: place.rank)

    def _made_of(self, edit: Making, given: list[Tensor]) -> Iterator[tuple[str, Tensor]]:
        first = given[0]
        if isinstance(edit, Tie):
            alone = self.format == _SAFETENSORS  # which has no views
            yield edit.key, self.own(first, self.shown(first), edit.key) if alone else first
        elif isinstance(edit, Split):
            whole = self.shown(first)
            for key in dict.fromkeys([key for key, _, _ in edit.parts]):
                order = tuple([(0, start, stop) for name, start, stop in edit.parts if name == key])
                yield key, self.own(first, joined((whole,), edit.dim, order))
        elif isinstance(edit, Fuse):
            every = tuple([(number, 0, each.shape[edit.dim]) for number, each in enumerate(given)])
            yield edit.key, self.own(first, joined(tuple(map(self.shown, given)), edit.dim, edit.order or every))
        elif isinstance(edit, FuseNorm):
            facts = (("norm", edit.norm), ("dim", edit.dim), ("dtype", first.dtype.name))
            yield edit.key, self.own(first, Made(Normed, tuple(map(self.shown, given)), facts, first.shape))
        else:
            yield edit.key, self._computed(edit, [each for one in given for each in (one, *one.parts)])

    def _computed(self, edit: Dequantize | Compute, given: list[Tensor]) -> Tensor:
        parts, kinds = list(map(self.shown, given)), tuple([each.dtype.name for each in given])
        shape, like = given[0].shape, given[0].storage
        if isinstance(edit, Dequantize) and edit.scheme == SAME:
            return self.fresh(edit.dtype, given[0].device, like, parts[0])
        if isinstance(edit, Dequantize):
            facts: tuple[tuple[str, object], ...] = (
                ("scheme", edit.scheme),
                ("affine", edit.affine),
                ("dtype", edit.dtype),
                ("kinds", kinds),
            )
            shape = edit.shape if edit.shape is not None else shape
            return self.fresh(edit.dtype, given[0].device, like, Made(Dequantized, tuple(parts), facts, shape))
        every: list[Shown] = [*parts]
        for _, view in edit.beside:
            every.append(Literal(view.held, view.width, view.shape, view.stride, view.start))
        kinds = (*kinds, *[kind for kind, _ in edit.beside])
        facts = (("form", edit.form), ("numbers", edit.numbers), ("dtype", edit.dtype), ("kinds", kinds))
        if edit.form in (LOW_RANK, TURNED):
            every = [every[0], *_factors(every[1], every[2], edit.form == TURNED)]
        return self.fresh(edit.dtype, given[0].device, like, Made(Calculated, tuple(every), facts, shape))

    def _fill(self, edits: list[Fill]) -> None:
        """New tensors with one number everywhere: those that follow each other are put in at once."""
        by_place: dict[KeyPath, list[Fill]] = {}
        for edit in edits:
            by_place.setdefault(edit.path[:-1], []).append(edit)
        for path, fills in by_place.items():
            box = box_at(self.root, path)
            keys = [each.step for each in box.entries if isinstance(each.step, str)]
            new: dict[str, Tensor] = {}
            for edit in fills:
                element = _element(edit.value, BY_NAME[edit.dtype])
                holds = Literal(element, len(element), edit.shape, (0,) * len(edit.shape))
                new[str(edit.path[-1])] = self.fresh(edit.dtype, edit.device, None, holds, edit.path)
            last: tuple[int, ...] = (-1,)
            entries = list(box.entries)
            ranks = {each.step: each.rank for each in entries}
            self._ranks += 1
            for number, key in enumerate(with_new(keys, new)):
                if key in new:
                    entries.append(Place(key, new[key], (*last, -self._ranks, number)))
                else:
                    last = ranks[key]
            box.entries = sorted(entries, key=lambda place: place.rank)

    # ---- the pickle, and what is around the contents

    def repickle(self, edit: Repickle) -> None:
        """Strings of Python 2 and old tensors as today's pickles have them."""
        encoding = edit.encoding if of_python_2(self.source) else None
        for box in list(boxes(self.root)):
            noun = box.noun()
            values = array_values(noun) if isinstance(noun, Opaque) else None
            for place in box.places():
                if isinstance(place.holds, Tensor):
                    place.holds = _of_today(place.holds)
                elif isinstance(place.holds, bytes):
                    place.holds = _text(place.holds, encoding)
            if values is not None:
                self.names.add("_codecs.encode")
                state = box.state.holds
                last = state.items[-1] if isinstance(state, Box) and state.items else box.arguments[-1]
                last.holds = values
            if encoding is not None:
                _restep(box, lambda step: _text_step(step, encoding))
        if isinstance(self.root.holds, Tensor):
            self.root.holds = _of_today(self.root.holds)

    def set_metadata(self, edit: SetMetadata) -> None:
        """One entry."""
        self.metadata = {**(self.metadata or {}), edit.key: edit.value}

    def text_metadata(self, edit: TextMetadata) -> None:
        """Entries that become text; the notes about them may go."""
        texts = {key: text for key, text in edit.entries if text is not None}
        self.metadata = {**(self.metadata or {}), **texts}
        self.notes_go.append(lambda note: note.kind.value == "header-invalid")

    def truncate(self, edit: Truncate) -> None:
        """Where the file ends."""
        self.size = edit.length

    def convert(self, edit: Convert) -> None:
        """Another container."""
        self.format = edit.format

    def write_index(self, edit: WriteIndex) -> None:
        """The notes about an index may go."""
        self.notes_go.append(lambda note: note.member == edit.name)

    def set_suffix(self, edit: SetSuffix) -> None:
        """Nothing in the file."""


_SAYS: dict[type, Callable[[Account, Any], None]] = {
    Rename: Account.rename,
    RenameModules: Account.rename_modules,
    Renumber: Account.renumber,
    Reorder: Account.reorder,
    Retag: Account.retag,
    MoveToCpu: Account.move_to_cpu,
    Drop: Account.drop,
    TakeRoot: Account.take_root,
    Compact: Account.compact,
    MakeContiguous: Account.make_contiguous,
    Clone: Account.make_contiguous,
    Densify: Account.densify,
    Replace: Account.replace,
    MakeTensors: Account.make_tensors,
    Repickle: Account.repickle,
    Flatten: Account.flatten,
    Reshape: Account.reshape,
    Transpose: Account.transpose,
    Cast: Account.cast,
    SetMetadata: Account.set_metadata,
    TextMetadata: Account.text_metadata,
    SetSuffix: Account.set_suffix,
    Truncate: Account.truncate,
    Convert: Account.convert,
    Unwrap: Account.unwrap,
    WriteIndex: Account.write_index,
}


def _restep(box: Box, change: Callable[[Part], Part]) -> None:
    for place in box.entries:
        place.step = change(place.step)
    box.entries = box.entries  # what was found by the old steps is forgotten


def _rename_keys(box: Box, names: dict[str, str]) -> None:
    _restep(box, lambda step: names.get(step, step) if isinstance(step, str) else step)


def _calls_by_name(optimizer: Box, keys: set[Part]) -> bool:
    """Whether an optimizer calls its parameters by these keys, and by nothing else."""
    state = optimizer.place("state")
    called: list[object] = [each.step for each in state.holds.entries] if state and isinstance(state.holds, Box) else []
    for listed in _lists(optimizer, "params"):
        called += [each.holds for each in listed.items]
    return bool(called) and all(isinstance(each, str) and each in keys for each in called)


def _lists(optimizer: Box, name: str) -> Iterator[Box]:
    groups = optimizer.place("param_groups")
    for group in groups.holds.items if groups is not None and isinstance(groups.holds, Box) else ():
        listed = group.holds.place(name) if isinstance(group.holds, Box) else None
        if listed is not None and isinstance(listed.holds, Box):
            yield listed.holds


def _rename_in(optimizer: Box, name: str, names: dict[str, str]) -> None:
    for listed in _lists(optimizer, name):
        for place in listed.items:
            if isinstance(place.holds, str):
                place.holds = names.get(place.holds, place.holds)


def _views(thing: object) -> Iterator[Tensor]:
    """A tensor and those that it is made of, as far as they have bytes of their own."""
    if isinstance(thing, Tensor):
        if thing.storage is not None:
            yield thing
        for part in thing.parts:
            yield from _views(part)


def _element(value: bool | int | float, dtype: DType) -> bytes:
    """The bytes of one element; of a float8, every one with a mantissa has its zero at 0."""
    if dtype.kind in ("int", "uint", "bool"):
        return int(value).to_bytes(dtype.bits // 8, "little", signed=dtype.kind == "int")
    if dtype.name == "bfloat16":
        return pack("<f", value)[2:]
    one = dtype.bits // (2 if dtype.kind == "complex" else 1)
    code = {64: "d", 32: "f", 16: "e"}.get(one)
    if code is None:
        return bytes(dtype.bits // 8)
    return pack(f"<{code}", value) + (pack(f"<{code}", 0.0) if dtype.kind == "complex" else b"")


def _united(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The ranges (first byte, length) that the spans cover together."""
    ends: list[list[int]] = []
    for start, stop in sorted([each for each in spans if each[0] < each[1]]):
        if ends and start <= ends[-1][1]:
            ends[-1][1] = max(ends[-1][1], stop)
        else:
            ends.append([start, stop])
    for start, stop in ends:
        yield start, stop - start


def _factors(first: Shown, second: Shown, transposed: bool) -> tuple[Shown, Shown]:
    """The left and the right matrix of a product: A and B of LoRA stand in the file in the order right, left."""
    right, left = _matrix(first), _matrix(second)
    return (turned(right, (1, 0)), turned(left, (1, 0))) if transposed else (left, right)


def _matrix(shown: Shown) -> Shown:
    shape = (shown.shape[0], prod(shown.shape[1:]))
    return shown if shape == shown.shape else Refolded(shown, shape)


def _strided(rebuild: str, tensor: Tensor) -> str:
    """What rebuilds a dense tensor where its sparse one was rebuilt plainly."""
    if tensor.rebuild != f"{UTILS}sparse_tensor":
        return rebuild
    return f"{UTILS}tensor_v2" if tensor.dtype.storage_class else f"{UTILS}tensor_v3"


def _plain(value: object) -> Node:
    """A plain value as a reader would show it."""
    if isinstance(value, (list, tuple)):
        return Sequence("list" if isinstance(value, list) else "tuple", tuple([_plain(each) for each in value]))
    if isinstance(value, dict):
        entries = []
        for key, each in value.items():
            plain = isinstance(key, str) or (type(key) is int and abs(key) < _HASHED)
            entries.append((key if plain else Special(repr(key)), _plain(each)))
        return Mapping("dict", tuple(entries))
    if isinstance(value, complex):
        return Opaque("builtins.complex", (value.real, value.imag))
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    raise UnaccountedError(f"an edit puts a {type(value).__name__} in, which is not plain data")


def _of_today(tensor: Tensor) -> Tensor:
    parts = tuple([_of_today(part) for part in tensor.parts])
    rebuild = f"{UTILS}tensor_v2" if tensor.rebuild == f"{UTILS}tensor" else tensor.rebuild
    return replace(tensor, rebuild=rebuild, parts=parts) if parts or rebuild != tensor.rebuild else tensor


def _text(value: bytes, encoding: str | None) -> bytes | str:
    if encoding is None:
        return value
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode(encoding)
    return value


def _text_step(step: Part, encoding: str) -> Part:
    if not isinstance(step, Special) or not step.text.startswith(BYTES):
        return step
    try:
        value = literal_eval(step.text)
    except (ValueError, SyntaxError):
        return step
    text = _text(value, encoding) if isinstance(value, bytes) else step
    return text if isinstance(text, str) else step
