"""Describes what was asked of a conversion, and tells the container that its output is to be."""

from __future__ import annotations

import os
import re

from ckptdoctor.errors import UsageError
from ckptdoctor.formats.suffixes import (
    DISTRIBUTED,
    SAFETENSORS,
    SHARDED,
    SINGLE,
    TORCH_OUTPUTS,
    TORCH_ZIP,
    not_written,
)
from ckptdoctor.noun import noun
from ckptdoctor.wording import not_one_of

DEFAULT_SHARD = 5 * 10**9
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}

DCP = DISTRIBUTED
KINDS = ("torch", "safetensors", "dcp")


@noun
class ConvertRequest:
    """Checkpoints to write as one, and how.

    ``shard_size`` (bytes) asks for a folder of safetensors files. ``root`` is the part that is wanted; ``flatten``
    takes every tensor, under names made of its whole path. ``clone`` writes tied tensors once for each name. ``force``
    replaces an existing output. ``to`` is one of KINDS, where the output's name does not say what it is to be.
    ``names`` are those of the parts of a model that the paths are, one for each ("": none), or none at all.
    """

    paths: tuple[str, ...]
    output: str
    shard_size: int | None = None
    root: str | None = None
    flatten: bool = False
    clone: bool = False
    force: bool = False
    to: str | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.to is not None and self.to not in KINDS:
            raise UsageError(not_one_of("--to", self.to, KINDS))
        if self.shard_size is not None and not self.shard_size >= 1:
            raise UsageError("--shard-size: a file needs at least one byte. Use 5GB or 500MB.")

    @property
    def target(self) -> str:
        """The container that the output's name asks for. Raises UsageError where it asks for none."""
        suffix = os.path.splitext(self.output)[1].lower()
        if self.to == "dcp":
            return self._distributed(suffix)
        if self.to == "torch":
            if self.shard_size is not None or os.path.isdir(self.output):
                raise UsageError("--to torch writes one file: give its name, and no --shard-size.")
            return TORCH_ZIP
        if self.shard_size is not None or self.output.endswith(("/", os.sep)) or os.path.isdir(self.output):
            if suffix in TORCH_OUTPUTS + SAFETENSORS and not os.path.isdir(self.output):
                raise UsageError(f"With --shard-size the output is a folder of files; {self.output} names one file.")
            return SHARDED
        if suffix in SAFETENSORS or self.to == "safetensors":
            return SINGLE
        if suffix in TORCH_OUTPUTS:
            return TORCH_ZIP
        raise UsageError(not_written(self.output))

    def _distributed(self, suffix: str) -> str:
        if suffix in TORCH_OUTPUTS + SAFETENSORS and not os.path.isdir(self.output):
            raise UsageError(f"With --to dcp the output is a folder; {self.output} names one file.")
        if self.shard_size is not None:
            raise UsageError("--shard-size is for safetensors: --to dcp writes one .distcp file.")
        return DCP

    @property
    def beside(self) -> str:
        """The path of the file for what the output cannot hold."""
        return f"{os.path.splitext(self.output)[0]}.extra.json"

    @property
    def replaces(self) -> bool:
        """Whether the output takes the place of what was read."""
        return os.path.realpath(self.output) in map(os.path.realpath, self.paths)


def size_of(text: str, option: str = "--shard-size") -> int:
    """Return ``5GB`` in bytes. Raises UsageError for anything else that an option was given."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?", text.strip().upper())
    if match is None:
        raise UsageError(f'{option}: "{text}" is not a size. Use 5GB or 500MB.')
    size = int(float(match.group(1)) * _UNITS[match.group(2) or ""])
    if size < 1:
        raise UsageError(f'{option}: "{text}" is less than one byte. Use 5GB or 500MB.')
    return size
