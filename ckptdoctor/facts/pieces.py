"""Files that hold a piece of each tensor, as torch.distributed.checkpoint's writer of safetensors files leaves them.

Source: ``torch.distributed.checkpoint._hf_utils`` (``SHARDED_FILE_NAME``, ``CUSTOM_METADATA_KEY``).
"""

from __future__ import annotations

import re

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.siblings import folder_of
from ckptdoctor.noun import noun

_INFO = "DCP_SHARDING_INFO"
_NAME = re.compile(r"shard-(\d{1,9})-model-\d{1,9}-of-\d{1,9}\.safetensors")
_LONGEST = 16 << 20  # characters of the places that are read


@noun
class Pieces:
    """``number``: the rank's number in the name, from 1 on. ``shards``: how many ranks' files lie in the folder.

    ``within`` are the tensors whose piece begins within the whole tensor, in the order of the file.
    """

    number: int
    shards: int
    within: tuple[str, ...]

    @property
    def certain(self) -> bool:
        """Whether others have the rest: the first of the files alone might be all that there is."""
        return self.number > 1 or self.shards > 1 or bool(self.within)


def pieces(checkpoint: Checkpoint) -> Pieces | None:
    """What the file says of being a piece; None where it is none."""
    beside = folder_of(checkpoint.path)
    match = _NAME.fullmatch(beside.name)
    told = (checkpoint.metadata or {}).get(_INFO)
    if match is None or told is None:
        return None
    shards = {int(each[1]) for name in beside.names if (each := _NAME.fullmatch(name))}
    return Pieces(int(match[1]), len(shards), tuple(_within(told)))


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
