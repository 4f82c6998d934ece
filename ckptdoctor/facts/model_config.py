"""The ``config.json`` beside a Hugging Face checkpoint: its fields, and the line on which each of them is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.facts.siblings import Folder, folder_of
from ckptdoctor.noun import field, noun
from ckptdoctor.regex import regex

NAME = "config.json"
_LONGEST = 1 << 20

# the weights that such a config describes, whole or in parts
_WHOLE = frozenset({"model.safetensors", "pytorch_model.bin"})
_SHARD = regex(r"(?:model|pytorch_model)-\d{5}-of-\d{5}\.(?:safetensors|bin)")


@noun
class Config:
    """A config beside the weights: its path, its fields, and the line (from 1) on which each of the outer ones is."""

    path: str
    fields: Mapping[str, object]
    lines: Mapping[str, int] = field(default_factory=dict)

    def number(self, names: tuple[str, ...]) -> tuple[str, int] | None:
        """The first of these fields that is a number."""
        for name in names:
            value = self.fields.get(name)
            if type(value) is int:
                return name, value
        return None


def is_shard_of_model(name: str) -> bool:
    """Whether a file has the name of one of several files with a model's weights."""
    return _SHARD.fullmatch(name) is not None


@cached_by_identity
def config_beside(checkpoint: Checkpoint) -> Config | None:
    """The config of the weights; None where there is none, or where it describes several models at once."""
    folder = folder_of(checkpoint.path)
    if folder.name and folder.name not in _WHOLE and not is_shard_of_model(folder.name):
        return None
    config = read_config(folder, NAME)
    return None if config is None or _composite(config.fields) else config


def read_config(folder: Folder, name: str) -> Config | None:
    """The JSON object in the file ``name`` of the folder; None where there is none, or none that can be read."""
    text = folder.read(name)
    if not text or len(text) > _LONGEST:
        return None
    from json import loads

    try:
        fields = loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    return Config(os.path.join(folder.path, name), fields, dict(_lines(text)))


def _composite(fields: Mapping[str, object]) -> bool:
    """Whether the config holds configs of models inside (text, vision): which tensors they speak of is not said."""
    return any(
        name.endswith("_config") and name != "quantization_config" and isinstance(value, dict)
        for name, value in fields.items()
    )


def _lines(text: str) -> Iterator[tuple[str, int]]:
    """The line of each field, where the file is laid out with one field to a line and its own indented least."""
    found = re.compile(r'^([ \t]*)"(\w+)"\s*:')
    matches = [(found.match(line), number) for number, line in enumerate(text.splitlines(), 1)]
    named = [(match, number) for match, number in matches if match is not None]
    least = min((len(match[1]) for match, _ in named), default=0)
    for match, number in named:
        if len(match[1]) == least:
            yield match[2], number
