"""The checkpoint is split into a great many small files.

Meaning
    It was sharded far more finely than the usual limit of a few gigabytes per file requires.

Why it matters
    Each file costs a request when it is downloaded, and hubs reject folders with many thousands of files.

Symptoms
    Nothing; downloads take a long time.

Detection
    More than a hundred shards, of less than 100 MB each on average.

Repair
    ``ckptdoctor convert FILE FOLDER --shard-size 5GB`` writes the same tensors in larger shards.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.converting import convert_command
from ckptdoctor.rules.when import format_is

_MANY = 100  # files that are still few
_SMALL = 100_000_000  # bytes of a file that are still few


def _shards(total: int) -> dict[str, bytes | dict[str, object]]:
    numbers = range(1, total + 1)
    return {f"model-{number:05}-of-{total:05}.safetensors": {f"layers.{number}": T((2,))} for number in numbers}


SICK = (Example("a file for each layer", files=_shards(101)),)
HEALTHY = (Example("some files", files=_shards(3)),)


@rule("X814", "oversharded", Severity.INFO, when=format_is("sharded Hugging Face checkpoint"))
def oversharded(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report many small shards."""
    if checkpoint.format != "sharded Hugging Face checkpoint":
        return
    files = {storage.extent.file for storage in checkpoint.storages if storage.extent is not None}
    if len(files) > _MANY and checkpoint.size < len(files) * _SMALL:
        yield Problem(
            message=f"{len(files):,} shards together hold {checkpoint.size:,} bytes",
            cause="Each file costs a request when it is downloaded; one of up to 5 GB would do.",
            advice="convert writes the same tensors in larger shards:",
            commands=(convert_command(checkpoint.path, "-resharded", "--shard-size 5GB"),),
        )
