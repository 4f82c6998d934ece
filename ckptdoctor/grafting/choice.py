"""Finds which storages can be healed of what the other copy has, or by one flipped bit, and why others cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Source, Storage, Tensor, show_path
from ckptdoctor.differences import Pair
from ckptdoctor.edits.grafts import Left
from ckptdoctor.errors import RefusedError
from ckptdoctor.examine.flipped_bits import explained
from ckptdoctor.grafting.damage import Health, storages_of
from ckptdoctor.grafting.recipe import Healed, flip_back, heal
from ckptdoctor.grafting.storages import Views, unlike
from ckptdoctor.noun import field, noun
from ckptdoctor.values.damage import Damage


@noun(frozen=False)
class Choice:
    """The tensors that are ``wanted`` (each with its trouble), what they become, and ``why`` the others stay.

    ``its`` is the other copy, None where there is none. ``flips``: what it cannot heal may be healed by flipping back
    the one bit that explains a checksum.
    """

    mine: tuple[Checkpoint, Source, Health]
    its: tuple[Checkpoint, Health] | None
    partners: Mapping[KeyPath, Pair]
    wanted: Mapping[KeyPath, str]
    flips: bool = True
    made: dict[str, Healed] = field(default_factory=dict)
    why: dict[KeyPath, str] = field(default_factory=dict)

    def choose(self) -> None:
        """Work out what every wanted tensor becomes."""
        self._refuse_without_donor()
        users: dict[str, list[KeyPath]] = {}
        storages: dict[str, Storage] = {}
        for tensor in self._tensors():
            for storage in storages_of(tensor):
                users.setdefault(storage.key, []).append(tensor.path)
                storages[storage.key] = storage
        views = self._views(storages)
        for key, paths in users.items():
            try:
                self.made[key] = self._healed(storages[key], paths, views)
            except RefusedError as error:
                self.why.update({path: error.message for path in paths if path not in self.why})
        if self.flips:
            self._flip_back(users, storages)
        self._give_up(users)

    @property
    def left(self) -> tuple[Left, ...]:
        """What stays as it is."""
        return tuple([Left(path, trouble, self.why[path]) for path, trouble in self.wanted.items() if path in self.why])

    def healed(self) -> Iterator[tuple[Tensor, tuple[Healed, ...]]]:
        """Yield the tensors that become others, with their storages."""
        for tensor in self._tensors():
            if tensor.path not in self.why:
                yield tensor, tuple([self.made[storage.key] for storage in storages_of(tensor)])

    def _tensors(self) -> list[Tensor]:
        return [tensor for tensor in self.mine[0].tensors if tensor.path in self.wanted]

    def _refuse_without_donor(self) -> None:
        if self.its is None:
            self.why.update(dict.fromkeys(self.wanted, "nothing in this file shows what it was"))
            return
        broken = self.its[1].troubles.keys() - self.its[1].not_finite
        for tensor in self._tensors():
            pair = self.partners.get(tensor.path)
            if pair is None:
                self.why[tensor.path] = "the other copy has no such tensor"
            elif (reason := unlike(tensor, pair.b)) is not None:
                self.why[tensor.path] = reason
            elif pair.b.path in broken:
                self.why[tensor.path] = f"the other copy's own {self.its[1].troubles[pair.b.path]}"
            elif not any(True for _ in storages_of(tensor)):
                self.why[tensor.path] = "it has no bytes of its own"

    def _views(self, storages: Mapping[str, Storage]) -> Views:
        """Return what is shown of these storages."""
        views = Views((self.mine[0].big_endian, (self.its or self.mine)[0].big_endian))
        for tensor in self.mine[0].tensors:
            if not any(storage.key in storages for storage in storages_of(tensor)):
                continue
            pair = self.partners.get(tensor.path)
            views.add(tensor, None if pair is None else pair.b)
        return views

    def _healed(self, storage: Storage, paths: list[KeyPath], views: Views) -> Healed:
        if not _complete(storage):
            raise RefusedError("the file does not have all of its bytes: see ckptdoctor salvage and ckptdoctor merge")
        if storage.compressed:
            raise RefusedError("it is compressed in the archive, so it cannot be replaced in place")
        damage = self.mine[2].damage.get(storage.key)
        patches = views.whole(storage) if damage is not None else views.some(storage, paths)
        made = heal(self.mine[1], storage, patches, damage)
        for path in paths:
            pair = self.partners.get(path)
            if self.its is None or pair is None or made.fits:
                continue
            if pair.b.path in self.its[1].not_finite:
                raise RefusedError(f"{show_path(pair.b.path)} {self.its[1].troubles[pair.b.path]} there too")
        return made

    def _flip_back(self, users: Mapping[str, list[KeyPath]], storages: Mapping[str, Storage]) -> None:
        """Heal storages by their own checksums where the other copy does not have the bytes that were saved."""
        _, source, here = self.mine
        lacking = {tensor.path for tensor in self._tensors() if not self._all_as_saved(tensor)}
        unhealed = {key for key, paths in users.items() if key in here.damage and not lacking.isdisjoint(paths)}
        # of these the checksum was damaged, not the bytes
        unhealed -= {key for key in unhealed if self._as_saved(key) and self.made[key].crc32 != storages[key].crc32}
        flipped: set[KeyPath] = set()
        # all of the damage is looked at: a published checksum agrees only once everything is healed
        for each in explained(here.damage.values(), source) if unhealed else ():
            key = each.storage.key
            if key in unhealed and each.certain:
                self.made[key] = flip_back(each)
                flipped.update(users[key])
            elif key in unhealed:
                self.why.update({path: f"{self.why[path]}; {each.doubt}" for path in users[key] if path in self.why})
        for key, paths in users.items():
            storage = storages[key]
            sound = key not in here.damage and _complete(storage) and not storage.compressed
            if sound and not self._as_saved(key) and flipped.issuperset(paths):  # a part of a tensor that is healed
                self.made[key] = Healed(storage, (), storage.crc32, True, False)
        for tensor in self._tensors():
            if tensor.path in flipped and self._all_as_saved(tensor):
                self.why.pop(tensor.path, None)

    def _all_as_saved(self, tensor: Tensor) -> bool:
        return all(self._as_saved(storage.key) for storage in storages_of(tensor))

    def _as_saved(self, key: str) -> bool:
        return key in self.made and self.made[key].fits

    def _give_up(self, users: Mapping[str, list[KeyPath]]) -> None:
        """Leave out tensors that cannot be replaced completely, and with each of them everything in its storages."""
        stays = True
        while stays:
            stays = False
            for key, paths in users.items():
                refused = next((path for path in paths if path in self.why), None)
                if refused is not None and (key in self.made or any(path not in self.why for path in paths)):
                    self.made.pop(key, None)
                    reason = f"{show_path(refused)}, which shares its bytes, cannot be healed"
                    self.why.update({path: reason for path in paths if path not in self.why})
                    stays = True


def _complete(storage: Storage) -> bool:
    """Return whether the file has all of its bytes, as far as their number says."""
    extent = storage.extent
    return extent is not None and (extent.length == storage.nbytes or storage.compressed)


def with_others(
    checkpoint: Checkpoint, damage: Mapping[str, Damage], wanted: Mapping[KeyPath, str]
) -> dict[KeyPath, str]:
    """Return what is wanted, and what changes with it: tensors that are one with it, and all of a damaged storage."""
    places: dict[object, KeyPath] = {}
    for tensor in checkpoint.tensors:
        if tensor.path in wanted:
            places.update(dict.fromkeys(_places(tensor, damage), tensor.path))
    found: dict[KeyPath, str] = {}
    for tensor in checkpoint.tensors:
        if tensor.path in wanted:
            found[tensor.path] = wanted[tensor.path]
        elif (other := next((places[each] for each in _places(tensor, damage) if each in places), None)) is not None:
            found[tensor.path] = f"shares its bytes with {show_path(other)}"
    return found


def _places(tensor: Tensor, damage: Mapping[str, Damage]) -> Iterator[object]:
    """Yield what tensors that change together have in common."""
    storage = tensor.storage
    if storage is not None:
        yield storage.key if storage.key in damage else tensor.place_id
    for part in tensor.parts:
        yield from _places(part, damage)
