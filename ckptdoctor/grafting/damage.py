"""Finds what is damaged in a checkpoint, tensor by tensor, as a graft sees it: bytes, checksums, holes, NaN."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Role, Source, Storage, Tensor, show_path
from ckptdoctor.checkpoint.progress import Progress, Work, in_thread
from ckptdoctor.examine.deep import integrity_of
from ckptdoctor.noun import field, noun, replace
from ckptdoctor.sealing.verify import changed_tensors, compared_with_seal
from ckptdoctor.values.damage import Damage
from ckptdoctor.values.statistics import Values, not_finite


@noun
class Health:
    """What is known to be wrong with a checkpoint.

    ``damage`` holds storages (by key) whose bytes are wrong, ``troubles`` the tensors that are, with the words for it.
    ``unsummed`` are storages that no checksum vouches for.
    """

    damage: dict[str, Damage]
    troubles: dict[KeyPath, str]
    unsummed: int = 0
    not_finite: frozenset[KeyPath] = field(default_factory=frozenset)


def examined(
    checkpoint: Checkpoint, source: Source, only: Iterable[Tensor] | None = None
) -> Generator[Progress, None, Health]:
    """Read every byte, and the values of all tensors, or of those in ``only``.

    Of a file on another machine nothing but those is read. Raises DamagedError for a seal that contradicts itself.
    """
    if only is not None and source.distant:
        only = tuple(only)
        keys = {storage.key for tensor in only for storage in storages_of(tensor)}
        storages = tuple([each for each in checkpoint.storages if each.key in keys])
        checkpoint = replace(checkpoint, tensors=only, storages=storages, state_dicts=())
    integrity = (yield from integrity_of(checkpoint, source)).require()
    damage = {each.storage.key: each for each in integrity.damage}
    troubles = dict(_of_bytes(checkpoint, damage))
    wanted = checkpoint.tensors if only is None else tuple(only)
    odd: dict[KeyPath, str] = {}
    if wanted:
        odd = dict(_of_values((yield from _values(replace(checkpoint, tensors=wanted), source))))
    only_odd = frozenset(odd.keys() - troubles.keys())
    if integrity.bad_seals:  # one that contradicts itself is said here; one that cannot be read proves nothing
        compared_with_seal(source.path)
    promise = integrity.promise
    if promise is not None and promise.sealed and integrity.digest != promise.digits:
        troubles = {**_of_seal(checkpoint, source), **troubles}
        only_odd -= troubles.keys()
    return Health(damage, {**odd, **troubles}, integrity.without_checksum, only_odd)


def storages_of(tensor: Tensor) -> Iterator[Storage]:
    """Yield the storages that hold the bytes of a tensor, those of its parts and pieces included."""
    if tensor.storage is not None:
        yield tensor.storage
    for part in (*tensor.parts, *[chunk for _, chunk in tensor.chunks]):
        yield from storages_of(part)


def _of_bytes(checkpoint: Checkpoint, damage: dict[str, Damage]) -> Iterator[tuple[KeyPath, str]]:
    for tensor in checkpoint.tensors:
        for storage in storages_of(tensor):
            trouble = _trouble(storage, damage.get(storage.key))
            if trouble:
                yield tensor.path, trouble
                break


def _of_seal(checkpoint: Checkpoint, source: Source) -> dict[KeyPath, str]:
    """Return the tensors that are not as they were sealed, where the file or its folder has a seal."""
    changed = changed_tensors(source.path)
    return {each.path: "is not as it was sealed" for each in checkpoint.tensors if show_path(each.path) in changed}


def _trouble(storage: Storage, damage: Damage | None) -> str:
    extent = storage.extent
    if extent is None:
        return "is not in the file" if storage.nbytes else ""
    if extent.length < storage.nbytes and not storage.compressed:
        return "is not completely in the file"
    if damage is None:
        return ""
    return "has a hole of zero bytes" if damage.holes else "does not match its checksum"


def _values(checkpoint: Checkpoint, source: Source) -> Generator[Progress, None, Values]:
    from ckptdoctor.values.distinct import bytes_to_read

    def read(work: Work) -> Values:
        from ckptdoctor.values.examine import examine_values

        return examine_values(checkpoint, source, work, only_finite=True)

    return (yield from in_thread(read, "values", bytes_to_read(checkpoint))).require()


def _of_values(values: Values) -> Iterator[tuple[KeyPath, str]]:
    for tensor, read in (*not_finite(values), *not_finite(values, Role.OPTIMIZER)):
        words = [f"{read.nan:,} NaN"] if read.nan else []
        words += [f"{read.infinite:,} infinite"] if read.infinite else []
        yield tensor.path, f"has {' and '.join(words)} of {read.count:,} {'value' if read.count == 1 else 'values'}"
