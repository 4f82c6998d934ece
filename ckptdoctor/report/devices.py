"""Which tensors lie on which device tag, and what happens on a machine with fewer devices."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Storage, show_path
from ckptdoctor.report.escape import escape
from ckptdoctor.report.numbers import plural, size
from ckptdoctor.report.wrapping import abridged, columns

_PLACES = 3  # places named for a tag before the rest is counted


def devices(checkpoint: Checkpoint) -> str:
    """One line for each device tag; then, for every smaller number of GPUs, which tags have no home there."""
    tags = _tags(checkpoint)
    rows = [
        (abridged(escape(tag), 40), plural(len(held), "storage"), size(_bytes(held)), _places(checkpoint, tag))
        for tag, held in tags.items()
    ]
    lines = list(columns(rows, right=frozenset({1, 2})))
    return "\n".join([*lines, *_fewer(tags)]) if lines else "no tensors"


def as_data(checkpoint: Checkpoint) -> list[dict[str, object]]:
    """The same for JSON: tag, storages, bytes."""
    tags = _tags(checkpoint)
    return [{"device": tag, "storages": len(held), "bytes": _bytes(held)} for tag, held in tags.items()]


def _tags(checkpoint: Checkpoint) -> dict[str, list[Storage]]:
    tags: dict[str, list[Storage]] = {}
    for storage in checkpoint.storages:
        tags.setdefault(storage.device, []).append(storage)
    return dict(sorted(tags.items()))


def _bytes(storages: list[Storage]) -> int:
    return sum([storage.nbytes for storage in storages])


def _places(checkpoint: Checkpoint, tag: str) -> str:
    """The state dicts, or top-level entries, whose tensors carry the tag."""
    roots = {each.path for each in checkpoint.state_dicts}
    found: dict[str, None] = {}
    for tensor in checkpoint.tensors:
        if tensor.device == tag:
            path = tensor.path[:-1] if tensor.path[:-1] in roots else tensor.path[:1]
            found[abridged(escape(show_path(path)), 40)] = None
    names = list(found)
    rest = len(names) - _PLACES
    return ", ".join(names[:_PLACES]) + (f" and {rest} more" if rest > 0 else "")


def _fewer(tags: dict[str, list[Storage]]) -> Iterator[str]:
    """What torch.load does with the tags on machines that have fewer GPUs than the file names."""
    cuda = {index: _bytes(held) for tag, held in tags.items() if (index := _cuda_index(tag)) is not None}
    if not cuda:
        return
    yield ""
    yield 'Without CUDA torch.load stops unless it is told map_location="cpu".'
    for gpus in range(1, min(max(cuda) + 1, 9)):
        lost = sorted(index for index in cuda if index >= gpus)
        if lost:
            names = ", ".join(f"cuda:{index}" for index in lost)
            yield f"With {plural(gpus, 'GPU')} {names} {'is' if len(lost) == 1 else 'are'} missing: torch.load stops."
    if len(cuda) > 1:
        together, largest = sum(cuda.values()), max(cuda.values())
        yield (
            f'map_location="cuda:0" would put {size(together)} on one GPU; the fullest holds {size(largest)} as it is.'
        )


def _cuda_index(tag: str) -> int | None:
    """The index of a tag as torch writes them ("cuda", "cuda:1"); None for any other."""
    kind, colon, index = tag.partition(":")
    if kind != "cuda" or (colon and not (index.isascii() and index.isdigit() and len(index) < 6)):
        return None
    return int(index or 0)
