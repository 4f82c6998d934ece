"""Holds the source's contents as the edits so far leave them: places, storages, and what is around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from ckptdoctor.account.places import Place, UnaccountedError, box_at, held, place_at
from ckptdoctor.account.shown import Shown, Store, Window, window
from ckptdoctor.checkpoint import Checkpoint, DType, KeyPath, Role, Storage, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.edits import Retag
from ckptdoctor.facts.devices import UTILS
from ckptdoctor.noun import replace

_SAFETENSORS = "safetensors"


class Account:
    """The source's contents, and what the edits so far say became of them."""

    def __init__(self, source: Checkpoint) -> None:
        self.source = source
        self.root = Place("", held(source.tree))
        self.stores = {storage.key: Store(storage) for storage in source.storages}
        self.retaggings: list[Retag] = []
        self.format, self.size = source.format, source.size
        self.metadata = source.metadata
        self.notes = source.notes
        self.names: set[str] = set()  # what the pickle may name beside what it did
        self.names_go: frozenset[str] = frozenset()  # what it may no longer name, shown or not
        self.gone_storages: set[str] = set()
        self.only_viewed = False  # storages that no tensor views are gone
        self.optimizers = [box_at(self.root, each.path) for each in source.state_dicts if each.role is Role.OPTIMIZER]
        self.made: dict[object, str] = {}
        self.ranks = 0

    def store(self, storage: Storage) -> Store:
        """Return what became of a storage."""
        found = self.stores.get(storage.key)
        if found is None:
            found = self.stores[storage.key] = Store(storage)
        return found

    def shown(self, tensor: Tensor) -> Window:
        """Return what a tensor with bytes of its own shows. Raises UnaccountedError for any other."""
        if tensor.storage is None:
            raise UnaccountedError(f"an edit takes the bytes of {tensor.key}, which has none of its own")
        return window(tensor, self.store(tensor.storage))

    def new_storage(self, like: Storage | str, nbytes: int, dtype: str, holds: Shown, owner: object = None) -> Storage:
        """Return a storage for this, the same one for the same; with an ``owner`` it is that one's alone.

        It is tagged as ``like`` is, or with that tag.
        """
        mark = (dtype, holds, owner)
        key = self.made.get(mark)
        if key is None:
            key = self.made[mark] = f"\0{len(self.made)}"
            made = Storage(key, nbytes, BY_NAME[dtype], like if isinstance(like, str) else like.device, None)
            self.stores[key] = Store(made, holds, len(self.retaggings))
            if not isinstance(like, str):
                old = self.store(like)
                self.stores[key].devices = self.devices_of(old, like.key if old.holds is None else None)
        return self.stores[key].noun

    def devices_of(self, store: Store, key: str | None) -> frozenset[str]:
        """Return the tags that it may have now; ``key`` is its name in the contents, None where that is not known."""
        found = set(store.devices)
        for edit in self.retaggings[store.born :]:
            named = {each for each in found if (each != edit.to if edit.devices is None else each in edit.devices)}
            if edit.storages is None or key in edit.storages:
                found -= named
            if named and (edit.storages is None or key is None or key in edit.storages):
                found.add(edit.to)
        return frozenset(found)

    def own(self, tensor: Tensor, holds: Shown, owner: object = None, dtype: str = "") -> Tensor:
        """Return the tensor in C order on a new storage."""
        assert tensor.storage is not None
        kind = BY_NAME[dtype] if dtype else tensor.dtype
        nbytes = prod(holds.shape) * max(1, kind.bits // 8)
        storage = self.new_storage(tensor.storage, nbytes, kind.name, holds, owner)
        stride = contiguous_stride(holds.shape)
        return replace(tensor, dtype=kind, shape=holds.shape, stride=stride, offset=0, storage=storage)

    def fresh(self, dtype: str, like: Storage | str, holds: Shown, owner: object = None) -> Tensor:
        """Return a plain tensor that is like no other one, tagged as ``like`` is, or with that tag."""
        kind = BY_NAME[dtype]
        storage = self.new_storage(like, prod(holds.shape) * kind.bits // 8, dtype, holds, owner)
        rebuild = _SAFETENSORS if self.format == _SAFETENSORS else rebuilt(kind)
        stride = contiguous_stride(holds.shape)
        return Tensor((), kind, holds.shape, stride, storage, 0, storage.device, rebuild=rebuild)

    def tensors_at(self, paths: Iterable[KeyPath]) -> Iterator[tuple[Place, Tensor]]:
        """Yield the tensors at these paths. Raises UnaccountedError where there is not a tensor."""
        for path in dict.fromkeys(paths):
            place = place_at(self.root, path)
            if not isinstance(place.holds, Tensor):
                raise UnaccountedError(f"an edit takes {'/'.join(map(str, path))} for a tensor, which would be lost")
            yield place, place.holds


def rebuilt(dtype: DType) -> str:
    """Return what makes a plain tensor in torch's files."""
    return f"{UTILS}tensor_v2" if dtype.storage_class else f"{UTILS}tensor_v3"
