"""Asks the target and files next to both checkpoints for the number of heads of attention; it is never guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.checkpoint.expectation import PAIRED, Reference
from ckptdoctor.facts.siblings import Config, config_beside, folder_of, read_config
from ckptdoctor.match.published.matching import LayoutConversion
from ckptdoctor.match.published.table import QUERIES
from ckptdoctor.noun import replace

# what Meta publishes beside its params.json, whole or by rank, and what others made of it
_META = re.compile(r"consolidated(?:\.\d+)?\.(?:pth|pt|safetensors)")


def with_heads(
    found: LayoutConversion, here: Mapping[str, Tensor], checkpoint: Checkpoint, wanted: Reference
) -> LayoutConversion:
    """Return the conversion with the number of heads that it needs; or with what it lacks, where that is not known.

    The target says it, or the config next to it, or the config or params.json next to the checkpoint.
    """
    if not found.rotary:
        return found
    said = {wanted.source: wanted.heads} if wanted.heads is not None else dict(_said(checkpoint))
    if wanted.heads is None and wanted.beside is not None:
        said.update(_said(wanted.beside))
    numbers = set(said.values())
    if len(numbers) != 1:
        told = " and ".join(f"{path} has {number:,}" for path, number in sorted(said.items()))
        return replace(found, lacks=told or "no config gives their number")
    heads = numbers.pop()
    wrong = _not_divided(found, here, heads)
    return replace(found, lacks=wrong) if wrong else replace(found, heads=heads)


def _not_divided(found: LayoutConversion, here: Mapping[str, Tensor], heads: int) -> str:
    """Return why there cannot be so many heads, or "" where there can."""
    sizes = set()
    for piece in found.rotary:
        rows = here[piece.old[0]].shape[0]
        if piece.how == QUERIES:
            if heads < 1 or rows % heads or rows // heads % 2:
                return f"{heads:,} heads of an even size do not make up the {rows:,} rows of {piece.old[0]}"
            sizes.add(rows // heads)
    for piece in found.rotary:
        rows = here[piece.old[0]].shape[0]
        if any(rows % size for size in sizes):
            return f"with {heads:,} heads the {rows:,} rows of {piece.old[0]} are not a whole number of heads"
    return "" if len(sizes) == 1 else f"with {heads:,} heads those of the layers differ in size"


def _said(checkpoint: Checkpoint) -> Iterator[tuple[str, int]]:
    """Yield what the files next to a checkpoint say: a config of transformers, and Meta's params.json."""
    config = config_beside(checkpoint)
    if config is not None and config.fields.get("model_type") not in PAIRED:
        yield from _number(config, "num_attention_heads")
    folder = folder_of(checkpoint.path)
    if not folder.name or _META.fullmatch(folder.name):
        params = read_config(folder, "params.json")
        inner = params.fields.get("model") if params is not None else None
        if params is not None and isinstance(inner, dict):
            params = Config(params.path, inner)
        if params is not None:
            yield from _number(params, "n_heads")


def _number(config: Config, name: str) -> Iterator[tuple[str, int]]:
    found = config.number((name,))
    if found is not None and found[1] > 0:
        yield config.path, found[1]
