"""The file holds a piece of each tensor; the other pieces are in other files of the same save.

Meaning
    torch.distributed.checkpoint wrote it: ``HuggingFaceStorageWriter(save_distributed=True)`` lets every rank write
    its own pieces into a file ``shard-00001-model-….safetensors``, each under the name of the whole tensor.

Why it matters
    safetensors silently loads it, with tensors that are too small.

Symptoms
    size mismatch for fc.weight: copying a param with shape torch.Size([4, 8]) from checkpoint, the shape in current
    model is torch.Size([8, 8]).

Detection
    The name of the file, and ``DCP_SHARDING_INFO`` in its metadata, which gives the offset of each piece in the whole
    tensor. A first file without others next to it may be the complete save: then it is info.

Repair
    ``torch.distributed.checkpoint._consolidate_hf_safetensors.consolidate_safetensors_files`` joins the files of a
    folder; ``torch.distributed.checkpoint.HuggingFaceStorageReader`` reads them as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.siblings import folder_of
from ckptdoctor.findings import Severity
from ckptdoctor.noun import noun
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import part_of_tensors

_INFO = {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": '{"w": {"saved_offsets": [2, 0]}}'}
_NAME = "shard-00002-model-00001-of-00001.safetensors"
SICK = (Example("the piece of the second rank", {"w": T((2, 4))}, "safetensors", metadata=_INFO, name=_NAME),)
HEALTHY = (
    Example("a file that was joined", {"w": T((2, 4))}, "safetensors", metadata=_INFO, name="model.safetensors"),
    Example("another's shard", {"w": T((2, 4))}, "safetensors", metadata={"format": "pt"}, name=_NAME),
)

_JOIN = "torch.distributed.checkpoint._consolidate_hf_safetensors.consolidate_safetensors_files"


@rule("X815", "piece-of-tensors", Severity.WARNING, when=part_of_tensors)
def piece_of_tensors(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report one rank's pieces of the tensors."""
    found = _pieces(checkpoint)
    if found is not None:
        yield Problem(
            message=_message(found),
            cause="torch.distributed.checkpoint wrote it with save_distributed=True: every rank its own pieces, each "
            "under the name of the whole tensor.",
            advice=f"Put the files of all ranks into one folder; {_JOIN} joins them, with 1 as the dimension of "
            "each tensor.",
            keys=tuple([(name,) for name in found.within]),
            severity=Severity.WARNING if found.certain else Severity.INFO,
        )


def _message(found: _Pieces) -> str:
    if not found.certain:
        return "this is the first rank's file of a distributed save, which is complete only if there was one rank"
    beside = f", of {found.shards:,} in the folder" if found.shards > 1 else ""
    within = len(found.within)
    begins = f"; it lacks the beginning of {wording.plural(within, 'tensor')}" if within else ""
    return f"this is file {found.number:,} of a distributed save{beside}: it holds pieces of tensors{begins}"


# Files that hold a piece of each tensor, as torch.distributed.checkpoint's writer of safetensors files leaves them.
#
# Source: ``torch.distributed.checkpoint._hf_utils`` (``SHARDED_FILE_NAME``, ``CUSTOM_METADATA_KEY``).

_SHARDING_INFO = "DCP_SHARDING_INFO"
_SHARD_NAME = re.compile(r"shard-(\d{1,9})-model-\d{1,9}-of-\d{1,9}\.safetensors")
_LONGEST = 16 << 20  # characters of the places that are read


@noun
class _Pieces:
    """``number``: the rank's number in the name, from 1 on. ``shards``: how many ranks' files are in the folder.

    ``within`` are the tensors whose piece begins within the whole tensor, in the order of the file.
    """

    number: int
    shards: int
    within: tuple[str, ...]

    @property
    def certain(self) -> bool:
        """Whether others have the rest: the first of the files alone might be all that there is."""
        return self.number > 1 or self.shards > 1 or bool(self.within)


def _pieces(checkpoint: Checkpoint) -> _Pieces | None:
    """Return what the file says of being a piece, or None where it is none."""
    beside = folder_of(checkpoint.path)
    match = _SHARD_NAME.fullmatch(beside.name)
    told = (checkpoint.metadata or {}).get(_SHARDING_INFO)
    if match is None or told is None:
        return None
    shards = {int(each[1]) for name in beside.names if (each := _SHARD_NAME.fullmatch(name))}
    return _Pieces(int(match[1]), len(shards), tuple(_within(told)))


def _within(told: str) -> list[str]:
    import json

    try:
        places = json.loads(told) if len(told) <= _LONGEST else None
    except (ValueError, RecursionError):
        places = None
    entries = places.items() if isinstance(places, dict) else ()
    return [name for name, place in entries if isinstance(place, dict) and _starts_within(place.get("saved_offsets"))]


def _starts_within(offsets: object) -> bool:
    return isinstance(offsets, list) and any(isinstance(each, int) and each > 0 for each in offsets)
