"""The rules about devices share how many storages carry which tag, and the way to the CPU as a fix."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Storage
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.edits import Edit, Fix, MoveToCpu, Retag, Safety
from ckptdoctor.facts import devices
from ckptdoctor.facts.devices import rng_tensors
from ckptdoctor.rules.kit import wording

_NAMED = 4  # tags that a sentence names before it only counts them


def listed_tags(tags: Sequence[str]) -> str:
    """Return tags as a list: ``cuda:0``, ``cuda:0 and cuda:1``, ``a, b, c, d and 12 others``."""
    if len(tags) <= _NAMED:
        return wording.listed(tags)
    return f"{', '.join(tags[:_NAMED])} and {wording.plural(len(tags) - _NAMED, 'other')}"


def are_tagged(tagged: Mapping[str, Sequence[Storage]], tags: Sequence[str]) -> str:
    """Return how many storages carry the tags: ``1,124 storages are tagged cuda:0``."""
    number = sum([len(tagged[tag]) for tag in tags])
    verb = "is" if number == 1 else "are"
    return f"{wording.plural(number, 'storage')} {verb} tagged {listed_tags(tags)}"


def to_cpu(tags: Sequence[str], storages: tuple[str, ...] | None = None, option: str = "--to-cpu") -> Fix:
    """Return the safe fix that makes these tags ``cpu`` (on these storages only)."""
    return Fix(f"{listed_tags(tags)} → cpu", (Retag(devices.CPU, tuple(tags), storages),), Safety.SAFE, option)


def all_to_cpu(checkpoint: Checkpoint, found: Sequence[str]) -> Fix | None:
    """Return the same for devices that some storages are tagged with, and that others are moved to on loading.

    None where the file does not show plainly what some of the latter hold.
    """
    moved = devices.moved(checkpoint)
    there = [device for device in found if device in moved]
    if not all(devices.has_values(tensor) for device in there for tensor in moved[device]):
        return None
    there_are = tagged(checkpoint)
    tags = tuple([device for device in found if device in there_are])
    edits: list[Edit] = [MoveToCpu(tuple(there))] if there else []
    return Fix(
        f"{listed_tags(found)} → cpu",
        (*edits, Retag(devices.CPU, tags)) if tags else tuple(edits),
        Safety.SAFE,
        "--to-cpu",
    )


def paths(checkpoint: Checkpoint, tags: Collection[str]) -> tuple[KeyPath, ...]:
    """Return where the tensors are whose storages carry one of the tags; those of random number generators left out."""
    left_out = set(map(id, devices.rng_tensors(checkpoint)))
    return tuple(
        [
            tensor.path
            for tensor in devices.all_tensors(checkpoint)
            if tensor.storage is not None and tensor.storage.device in tags and id(tensor) not in left_out
        ]
    )


def counted_tags(counts: Mapping[str, int], noun: str) -> str:
    """Return tags with their counts, most first: ``cuda:0 (300 tensors) and cpu (20)``."""
    ranked = sorted(counts.items(), key=lambda each: -each[1])
    words = [
        f"{tag} ({wording.plural(number, noun) if not at else f'{number:,}'})"
        for at, (tag, number) in enumerate(islice(ranked, _NAMED))
    ]
    if len(ranked) > _NAMED:
        words.append(wording.plural(len(ranked) - _NAMED, "other"))
    return wording.listed(words)


# ---- the tags of storages


META = "meta"


def backend(tag: str) -> str:
    """Return the part of a tag before the index: ``cuda`` of ``cuda:1``."""
    return tag.partition(":")[0]


def device_index(tag: str) -> int | None:
    """Return the device index of a tag; ``cuda`` alone means the first.

    None where there is no number after the colon.
    """
    number = tag.partition(":")[2]
    if not number:
        return 0
    return int(number) if number.isascii() and number.isdigit() and len(number) < 10 else None


def is_cuda(tag: str) -> bool:
    """Return whether torch takes the tag for a CUDA device (``cuda``, ``cuda:N``)."""
    return backend(tag) == "cuda" and device_index(tag) is not None


def tagged(checkpoint: Checkpoint, *, rng: bool = False) -> dict[str, list[Storage]]:
    """Return the storages under each device tag, in file order.

    Those of random number generators come only when asked for.
    """
    return _every_tagged(checkpoint) if rng else _tagged(checkpoint)


@cached_by_identity
def _every_tagged(checkpoint: Checkpoint) -> dict[str, list[Storage]]:
    return _by_tag(checkpoint.storages)


@cached_by_identity
def _tagged(checkpoint: Checkpoint) -> dict[str, list[Storage]]:
    states = {each.storage.key for each in rng_tensors(checkpoint) if each.storage is not None}
    if not states:
        return _every_tagged(checkpoint)
    return _by_tag([storage for storage in checkpoint.storages if storage.key not in states])


def _by_tag(storages: Iterable[Storage]) -> dict[str, list[Storage]]:
    found: dict[str, list[Storage]] = {}
    for storage in storages:
        found.setdefault(storage.device, []).append(storage)
    return found
