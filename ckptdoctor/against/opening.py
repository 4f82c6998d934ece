"""Opens the two sides of a comparison; the shards of a GGUF file are read as one.

llama.cpp's converter and ``llama-gguf-split`` name them ``model-00001-of-00003.gguf``. The first one has the metadata
of the model, and perhaps no tensor; each says which it is, and how many tensors all of them have (``split.*``; source:
``tools/gguf-split/gguf-split.cpp`` and ``llama_split_path`` of llama.cpp). Where one of them contradicts the others,
nothing is compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Mapping, Role, Source, StateDict
from ckptdoctor.checkpoint.process import collector_paused
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.registry import FOREIGN
from ckptdoctor.noun import replace
from ckptdoctor.regex import regex
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.wording import and_more, plural

_SHARD = regex(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"


@contextmanager
def opened_whole(path: str) -> Iterator[tuple[Checkpoint, Source]]:
    """Open a file, a folder, or all shards of a GGUF file, of which ``path`` is one or the folder.

    Raises UnreadableError, DamagedError, and RefusedError where shards are missing or do not belong together.
    """
    files = [] if is_address(path) else _shards(path)
    with ExitStack() as stack:
        sides = [stack.enter_context(formats.opened(each)) for each in files or [path]]
        read = [formats.read(source, container) for source, container in sides]
        if files:
            yield _joined(path, files, read), sides[0][0]
            return
        checkpoint = read[0]
        count = metadata_of(checkpoint).get(_COUNT, "1")
        if count not in ("0", "1"):
            name = f"{os.path.basename(path).rpartition('.gguf')[0]}-00001-of-{int(count):05}.gguf"
            raise RefusedError(
                f"{path} is one of {count} shards, and its name does not say which. llama.cpp finds them by names such "
                f"as {name}."
            )
        yield checkpoint, sides[0][0]


def metadata_of(checkpoint: Checkpoint) -> dict[str, str]:
    """Return what a GGUF file says of its model; nothing for any other file."""
    return (checkpoint.metadata or {}) if checkpoint.format in FOREIGN else {}


def _shards(path: str) -> list[str]:
    """Return all files of the GGUF file that ``path`` is a shard or the folder of, in order; none for anything else."""
    if os.path.isdir(path):
        folder, names = path, sorted(name for name in os.listdir(path) if _SHARD.fullmatch(name))
        stems = dict.fromkeys(name.rpartition("-of-")[0][:-6] + name.rpartition("-of-")[2] for name in names)
        if len(stems) > 1:
            firsts = [name for name in names if "-00001-of-" in name] or names
            raise RefusedError(
                f"{path} has the shards of {plural(len(stems), 'GGUF file')}: name the first one of those that are "
                f"meant, such as {os.path.join(path, firsts[0])}."
            )
        if not names:
            return []
        name = names[0]
    else:
        folder, name = os.path.split(path)
    match = _SHARD.fullmatch(name)
    if match is None or not os.path.isdir(folder or os.curdir):
        return []
    every = [f"{match[1]}-{number:05}-of-{match[3]}.gguf" for number in range(1, int(match[3]) + 1)]
    here = set(os.listdir(folder or os.curdir))
    missing = [each for each in every if each not in here]
    if missing and missing != [name]:  # a path that is not there is told by who opens it
        verb = "is" if len(missing) == 1 else "are"
        raise RefusedError(
            f"{path}: {and_more(missing, 3, spelt=str)} {verb} missing, so not all tensors are there. Put all "
            f"{len(every)} shards into one folder."
        )
    return [os.path.join(folder, each) for each in every]


@collector_paused()
def _joined(path: str, files: Sequence[str], read: Sequence[Checkpoint]) -> Checkpoint:
    """Return the shards as one file. Raises RefusedError where one of them belongs to others, or lacks tensors."""
    tensors = tuple([tensor for each in read for tensor in each.tensors])
    for number, (file, each) in enumerate(zip(files, read, strict=True)):
        told = metadata_of(each)
        said = told.get(_NUMBER), told.get(_COUNT), told.get(_TENSORS)
        if said != (str(number), str(len(files)), str(len(tensors))):
            raise RefusedError(
                f"{file} does not belong to the other shards: it is number {number + 1} of {len(files)} with "
                f"{plural(len(tensors), 'tensor')}, and its metadata says {_NUMBER} = {said[0]}, {_COUNT} = {said[1]}, "
                f"{_TENSORS} = {said[2]}. Download all shards of one file again."
            )
    if len({tensor.path for tensor in tensors}) < len(tensors):
        raise RefusedError(f"{path}: two of the shards have the same tensor. Download all shards of one file again.")
    first = read[0]
    return replace(
        first,
        path=path,
        size=sum(each.size for each in read),
        tree=Mapping("dict", tuple([(tensor.key, tensor) for tensor in tensors])),
        tensors=tensors,
        storages=tuple([storage for each in read for storage in each.storages]),
        state_dicts=(StateDict((), Role.MODEL, tensors),),
        notes=tuple([note for each in read for note in each.notes]),
    )
