"""Knows the names of a Hugging Face folder's files, which of them hold weights, and what an index says of them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable

from ckptdoctor.checkpoint import FolderSource
from ckptdoctor.checkpoint.source import MOST_NAMES
from ckptdoctor.errors import DamagedError, HostileError
from ckptdoctor.noun import noun

# a file of weights by itself, in the order in which transformers, diffusers and peft look for one
SINGLE = (
    "model.safetensors",
    "diffusion_pytorch_model.safetensors",
    "adapter_model.safetensors",
    "pytorch_model.bin",
    "diffusion_pytorch_model.bin",
    "adapter_model.bin",
)
CONFIGS = frozenset({"config.json", "adapter_config.json", "model_index.json"})

_SHARD = re.compile(r"(.+)-(\d{5,6})-of-(\d{5,6})\.(safetensors|bin|pt|pth)")
_INDEX = re.compile(r".+\.(safetensors|bin)\.index(?:\.\w+)?\.json")


@noun
class Shards:
    """Files that number themselves as parts of one checkpoint: ``stem-00001-of-00003.suffix``."""

    stem: str
    suffix: str
    total: int
    present: dict[int, str]

    @property
    def missing(self) -> list[str]:
        """The names of those that are not there, in order."""
        width = len(next(iter(self.present.values())).rpartition("-of-")[2].partition(".")[0])
        return [
            f"{self.stem}-{number:0{width}}-of-{self.total:0{width}}.{self.suffix}"
            for number in range(1, self.total + 1)
            if number not in self.present
        ]


# more shards than this are not counted one by one: no folder that can be listed has them
_MOST = 20_000


def shard_sets(names: Iterable[str]) -> list[Shards]:
    """Return the sets of numbered shards among names, the largest part of each set first where there are several."""
    found: dict[tuple[str, str, int], dict[int, str]] = {}
    for name in names:
        match = _SHARD.fullmatch(name)
        if match is not None and 0 < int(match[2]) <= int(match[3]) <= _MOST:
            found.setdefault((match[1], match[4], int(match[3])), {})[int(match[2])] = name
    sets = [Shards(stem, suffix, total, present) for (stem, suffix, total), present in found.items()]
    return sorted(sets, key=lambda each: (each.total - len(each.present), -len(each.present), each.stem))


def indexes(names: Iterable[str]) -> list[str]:
    """Return the index files, safetensors before bin, and those without a variant (``fp16``) before others."""
    found = [name for name in names if _INDEX.fullmatch(name)]
    return sorted(found, key=lambda name: (".safetensors." not in name, name.count("."), name))


# stems of shards that transformers and diffusers look for, and only by their index
_INDEXED = {
    ("model", "safetensors"): "model.safetensors.index{}.json",
    ("pytorch_model", "bin"): "pytorch_model.bin.index{}.json",
    ("diffusion_pytorch_model", "safetensors"): "diffusion_pytorch_model.safetensors.index{}.json",
    ("diffusion_pytorch_model", "bin"): "diffusion_pytorch_model.bin.index{}.json",
}


def index_wanted(shards: Shards) -> str:
    """Return the name of the index by which ``from_pretrained`` finds such shards, "" where it never does."""
    stem, dot, variant = shards.stem.partition(".")
    return _INDEXED.get((stem, shards.suffix), "").format(f"{dot}{variant}")


# ---- the index of a sharded checkpoint, which says which tensor lies in which file


# half a million entries of 130 bytes
LONGEST = 64 << 20


@noun
class Index:
    """What an index says: tensor → file, and the bytes of all tensors together (None: it does not say).

    ``files`` are those that it names, in order, with how many tensors it looks for in each. ``metadata`` is all that it
    says in addition (None: there is none, or it is not an object).
    """

    name: str
    weight_map: dict[str, str]
    files: dict[str, int]
    total_size: int | None
    metadata: dict[str, object] | None


def read_index(folder: FolderSource, name: str) -> Index:
    """Return the index ``name``. Raises DamagedError when it is none, and UnreadableError when it cannot be opened."""
    source = folder.open(name)
    if source.size > LONGEST:
        raise HostileError(f"{name} has {source.size:,} bytes; no checkpoint index is that long.", member=name)
    try:
        said = json.loads(source.read(0, source.size))
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{name} is not JSON: {_short(str(error))}.", member=name) from error
    table = said.get("weight_map") if isinstance(said, dict) else None
    if not isinstance(table, dict) or not all(isinstance(file, str) for file in table.values()):
        raise DamagedError(f"{name} has no weight_map from the names of tensors to those of files.", member=name)
    table = {key: _relative(folder, file) for key, file in table.items()}
    metadata = said.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    whole = isinstance(total, (int, float)) and not isinstance(total, bool) and total == total // 1
    files: dict[str, int] = {}
    for file in table.values():
        files[file] = files.get(file, 0) + 1
    if len(files) > MOST_NAMES:
        raise HostileError(f"{name} names {len(files):,} files; no checkpoint has so many.", member=name)
    own = metadata if isinstance(metadata, dict) else None
    return Index(name, table, files, int(total) if whole and total is not None else None, own)


def _relative(folder: FolderSource, file: str) -> str:
    """Return the name in the folder of a file whose absolute path is written in the index, as transformers reads it."""
    if not os.path.isabs(file) or ".." in file.replace("\\", "/").split("/"):
        return file
    own = os.path.join(os.path.abspath(folder.path), "")
    return file[len(own) :] if file.startswith(own) else file


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:99]}…"
