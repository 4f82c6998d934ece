"""Reports the tensors of each device, and what happens on a machine with fewer devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ckptdoctor.checkpoint import Checkpoint, Tensor, show_path
from ckptdoctor.noun import noun
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import plural, size
from ckptdoctor.rendering.wrapping import abridged, columns
from ckptdoctor.wording import and_more

_PLACES = 3  # places named for a tag before the rest is counted


@noun(frozen=False)
class _Held:
    """The contents of one device: storages, arrays in the pickle that stand for tensors, and the bytes of both."""

    storages: int = 0
    arrays: int = 0
    bytes: int = 0


def devices(checkpoint: Checkpoint) -> str:
    """Return a line for each device; then, for every smaller number of GPUs, which have no home there."""
    tags = _tags(checkpoint)
    rows = [
        (abridged(escape(tag), 40), _counted(held), size(held.bytes), _places(checkpoint, tag))
        for tag, held in tags.items()
    ]
    lines = list(columns(rows, right=frozenset({1, 2})))
    return "\n".join([*lines, *_fewer(tags)]) if lines else "no tensors"


def as_data(checkpoint: Checkpoint) -> list[dict[str, object]]:
    """Return the devices for JSON: device, storages, bytes."""
    tags = _tags(checkpoint)
    return [{"device": tag, "storages": held.storages, "bytes": held.bytes} for tag, held in tags.items()]


def _tags(checkpoint: Checkpoint) -> dict[str, _Held]:
    """Return what is held by tag of the storage, or by the device to which loading moves the tensors in it."""
    moved = [tensor for tensor in _all(checkpoint.tensors) if tensor.moved]
    places = {tensor.storage.key: tensor.device for tensor in moved if tensor.storage is not None}
    tags: dict[str, _Held] = {}
    for storage in checkpoint.storages:
        held = tags.setdefault(places.get(storage.key, storage.device), _Held())
        held.storages += 1
        held.bytes += storage.nbytes
    for tensor in moved:
        if tensor.storage is None and not tensor.parts:
            held = tags.setdefault(tensor.device, _Held())
            held.arrays += 1
            held.bytes += tensor.nbytes
    return dict(sorted(tags.items()))


def _all(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    for tensor in tensors:
        yield tensor
        yield from _all(tensor.parts)


def _counted(held: _Held) -> str:
    kinds = [(held.storages, "storage"), (held.arrays, "array")]
    return ", ".join([plural(number, noun) for number, noun in kinds if number])


def _places(checkpoint: Checkpoint, tag: str) -> str:
    """Return the state dicts, or top-level entries, whose tensors carry the tag."""
    roots = {each.path for each in checkpoint.state_dicts}
    found: dict[str, None] = {}
    for tensor in checkpoint.tensors:
        if tensor.device == tag:
            path = tensor.path[:-1] if tensor.path[:-1] in roots else tensor.path[:1]
            found[abridged(escape(show_path(path)), 40)] = None
    return and_more(list(found), _PLACES, spelt=str)


def _fewer(tags: dict[str, _Held]) -> Iterator[str]:
    """Yield the effect of the tags in torch.load on machines that have fewer GPUs than the file names."""
    cuda = {index: held.bytes for tag, held in tags.items() if (index := _cuda_index(tag)) is not None}
    if not cuda:
        return
    yield ""
    yield 'Without CUDA torch.load fails unless you pass map_location="cpu".'
    for gpus in range(1, min(max(cuda) + 1, 9)):
        lost = sorted(index for index in cuda if index >= gpus)
        if lost:
            names = ", ".join(f"cuda:{index}" for index in lost)
            yield f"With {plural(gpus, 'GPU')} {names} {'is' if len(lost) == 1 else 'are'} missing: torch.load fails."
    if len(cuda) > 1:
        together, largest = sum(cuda.values()), max(cuda.values())
        yield (
            f'map_location="cuda:0" would put {size(together)} on one GPU; the fullest holds {size(largest)} as it is.'
        )


def _cuda_index(tag: str) -> int | None:
    """Return the index of a tag as torch writes them ("cuda", "cuda:1"); None for any other."""
    kind, colon, index = tag.partition(":")
    if kind != "cuda" or (colon and not (index.isascii() and index.isdigit() and len(index) < 6)):
        return None
    return int(index or 0)
