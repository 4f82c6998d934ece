"""The file was saved by one rank of several.

Meaning
    Its name, or that of its folder, contains a rank, and there are files of other ranks. Where the model was split over
    the ranks (FSDP, a pipeline, tensor parallelism), each has a part; where every rank had all of it (DDP), they are
    the same.

Why it matters
    One part alone lacks layers or has tensors that are too small.

Symptoms
    Missing key(s) in state_dict

Detection
    The names in the folder, or of the folders next to it (``rank_0/model.pt``, ``rank_1/model.pt``), one of which is
    rank 0. Layers that begin above 0 show that this is a later stage of a pipeline: then it is a warning.

Repair
    None: whether the parts are joined by names or along a dimension depends on how the model was split.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.sharding.layer_lists import layer_lists
from ckptdoctor.rules.sharding.rank_files import files_of_ranks
from ckptdoctor.rules.when import rank_in_path

_INNER = ("attn.q.weight", "attn.k.weight", "mlp.up.weight", "mlp.down.weight")
_STAGE = {f"layers.{number}.{name}": T((2, 2)) for number in range(4, 8) for name in _INNER}
_WHOLE = {f"layers.{number}.{name}": T((2, 2)) for number in range(4) for name in _INNER}
SICK = (
    Example("a stage of a pipeline", _STAGE, name="model_rank_1.pt", beside={"model_rank_0.pt": b"PK"}),
    Example("a rank of an unknown sort", _WHOLE, name="model_rank_0.pt", beside={"model_rank_1.pt": b"PK"}),
)
HEALTHY = (
    Example("adapters of two ranks", _WHOLE, name="lora_rank_8.pt", beside={"lora_rank_16.pt": b"PK"}),
    Example("the only rank", _WHOLE, name="model_rank_0.pt"),
    Example("states of random generators", {"cpu": T((4,))}, name="rng_rank_0.pt", beside={"rng_rank_1.pt": b"PK"}),
)


@rule("X812", "rank-local-checkpoint", Severity.WARNING, when=rank_in_path)
def rank_local_checkpoint(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report the part of one rank."""
    found = files_of_ranks(checkpoint.path)
    if found is None:
        return
    late = [each for state_dict in checkpoint.state_dicts for each in layer_lists(state_dict) if each.present[0] > 0]
    first = f" Its {late[0].name} begin with number {late[0].present[0]}." if late else ""
    others = len(found.ranks) - 1
    beside = "that of another is" if others == 1 else f"those of {others:,} others are"
    where = "in the folder next to its own" if others == 1 else "in the folders next to its own"
    yield Problem(
        message=f"this is the file of rank {found.rank}, and {beside} {where if found.apart else 'next to it'}",
        cause=f"If the model was split over the ranks, one file is only a part of it.{first}",
        advice="Join the parts with the program that split it; if every rank had the whole model, any file will do.",
        severity=Severity.WARNING if late else Severity.INFO,
    )
