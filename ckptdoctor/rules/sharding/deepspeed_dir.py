"""This is a DeepSpeed checkpoint; each rank wrote a part of it.

Meaning
    ``mp_rank_00_model_states.pt`` holds the model's 16-bit weights under ``module`` if the ZeRO stage is 0, 1 or 2.
    With stage 3 every rank has a slice of each parameter instead, and ``module`` is full of empty tensors. The fp32
    weights are in the flat partitions of the ``*_optim_states.pt`` files.

Why it matters
    The folder is fine for DeepSpeed. Other programs expect one state dict, and find ``module.`` or tensors without
    elements.

Symptoms
    Missing key(s) in state_dict; Unexpected key(s) in state_dict: "module", "ds_config", …
    size mismatch for wte.weight: copying a param with shape torch.Size([0])

Detection
    The names of the files, and the stage, the ranks and the partitions that they show.

Repair
    Stages 0 to 2: take ``module``, as with ``ckptdoctor convert FILE model.safetensors --root module``. For fp32
    weights of stages 1 to 3, and for all weights of stage 3: the script ``zero_to_fp32.py`` that DeepSpeed puts next to
    the checkpoint. Stage 0 has no such partitions, so the script fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Mapping, Node, Opaque, Sequence
from ckptdoctor.findings import Severity
from ckptdoctor.noun import noun
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.converting import convert_command
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.when import any_of, keys_mention, more_than_weights

_MODULE = {"wte.weight": T((4, 2)), "ln.weight": T((2,))}
_CONFIG = {"zero_optimization": {"stage": 2}}
_STATES: dict[str, object] = {
    "module": _MODULE,
    "ds_version": "0.17.0",
    "ds_config": _CONFIG,
    "dp_world_size": 2,
    "mp_world_size": 1,
}
_PARTITION: dict[str, object] = {
    "optimizer_state_dict": {"zero_stage": 2, "partition_count": [2], "single_partition_of_fp32_groups": [T((5,))]},
    "ds_version": "0.17.0",
}
_STEP = "global_step10"
MESSAGES = (
    Message(
        ("The checkpoint being loaded used a DP world size of",),
        "DeepSpeed's optimizer state is split into {saved} parts, one for each rank, and this run has {ranks}",
        (
            Way(
                "start that many processes, or load only the weights",
                "engine.load_checkpoint(path, load_optimizer_states=False)",
            ),
            Way("or make complete weights from it", "python zero_to_fp32.py . weights.pt"),
        ),
        then=r"(?P<saved>\d{1,9})butthecurrentworldsizeis(?P<ranks>\d{1,9})",
    ),
    Message(
        (
            "of '*_optim_states.pt' under",
            "can't find model states file at",
            "is not a model state checkpoint",
            "is not a zero checkpoint",
        ),
        "DeepSpeed's folder is not complete: a rank did not save its part, files of two saves are mixed, or "
        'the path is not the folder that holds "latest" and global_step…. No command recovers a missing part',
        (Way("see what the folder holds", "ckptdoctor check FILE"),),
    ),
)
SICK = (
    Example(
        "stage 2 of two ranks",
        files={
            "latest": _STEP.encode(),
            f"{_STEP}/mp_rank_00_model_states.pt": _STATES,
            f"{_STEP}/zero_pp_rank_0_mp_rank_00_optim_states.pt": _PARTITION,
            f"{_STEP}/zero_pp_rank_1_mp_rank_00_optim_states.pt": _PARTITION,
        },
    ),
    Example("one of its files", _STATES, name="mp_rank_00_model_states.pt"),
)
HEALTHY = (Example("a module of its own", {"module": _MODULE, "epoch": 3}),)


@rule(
    "X808",
    "deepspeed-dir",
    Severity.INFO,
    when=any_of(more_than_weights, keys_mention("ds_config", "ds_version", "dp_world_size")),
)
def deepspeed_dir(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report a checkpoint of DeepSpeed's."""
    found = deepspeed(checkpoint.tree)
    if found is None:
        return
    missing = found.missing if checkpoint.format == "DeepSpeed checkpoint" and found.partitions else ()
    yield Problem(
        message=f"this is a DeepSpeed checkpoint{_shown(found)}",
        cause=_cause(found, missing),
        advice=_advice(found, missing),
        commands=_commands(checkpoint.path, found, missing),
        severity=Severity.ERROR if missing else Severity.WARNING if found.stage == 3 else Severity.INFO,
    )


def _shown(found: DeepSpeed) -> str:
    stage = f" of ZeRO stage {found.stage}" if found.stage is not None else ""
    ranks = f", saved by {wording.plural(found.ranks, 'data-parallel rank')}" if found.ranks else ""
    parallel = f" and {wording.plural(found.parallel, 'model-parallel rank')}" if found.parallel > 1 else ""
    return f"{stage}{ranks}{parallel}"


def _cause(found: DeepSpeed, missing: tuple[int, ...]) -> str:
    if missing:
        ranks = wording.abridged(map(str, missing))
        return f"The partitions of {wording.plural(len(missing), 'rank')} are missing ({ranks}): they cannot be joined."
    if found.stage == 3:
        return "Every rank holds a slice of each parameter, in flat fp32 tensors; the tensors under module are empty."
    return "The model's 16-bit weights are complete, under module; other programs expect them on their own."


def _advice(found: DeepSpeed, missing: tuple[int, ...]) -> str:
    if missing:
        return "Copy the files of those ranks from the machines that wrote them."
    script = "DeepSpeed's script zero_to_fp32.py, which is next to the checkpoint, joins the fp32 weights."
    if found.stage == 3:
        return script
    taken = "convert extracts them:"
    return f"{script} {taken}" if found.stage else taken


def _commands(path: str, found: DeepSpeed, missing: tuple[int, ...]) -> tuple[str, ...]:
    return () if missing or found.stage == 3 else (convert_command(path, options="--root module"),)


# ---- what DeepSpeed's files say of the whole


_OPTIM = re.compile(r"(\w*)zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states")
_MODEL = re.compile(r"mp_rank_(\d+)_model_states")
_ZERO = re.compile(r"zero_pp_rank_\d+_mp_rank_\d+_model_states")


@noun
class DeepSpeed:
    """What a DeepSpeed checkpoint is. ``stage`` and ``ranks`` (who saved partitions) are None where it does not say.

    ``partitions`` are the data-parallel ranks whose partition is there, ``parallel`` how many model-parallel ranks.
    """

    stage: int | None
    ranks: int | None
    partitions: tuple[int, ...]
    parallel: int

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks whose partition is not there."""
        return tuple(sorted(set(range(min(self.ranks or 0, 1 << 16))) - set(self.partitions)))


def deepspeed(tree: Node) -> DeepSpeed | None:
    """Return what the branches of a DeepSpeed folder, or the contents of one of its files, say of the whole."""
    top = _entries(tree)
    states = {name: _entries(node) for name, node in top.items() if isinstance(node, Mapping)}  # few, tensors are not
    optimizers = {name: each for name, each in states.items() if _OPTIM.fullmatch(name)}
    models = [each for name, each in states.items() if _MODEL.fullmatch(name) or _ZERO.fullmatch(name)]
    if "module" in top and ("ds_config" in top or "ds_version" in top or "dp_world_size" in top):
        models.append(top)
    if not optimizers and not models:
        return None
    stages = [_entries(each.get("optimizer_state_dict")) for each in optimizers.values()]
    stage = next((found for each in stages if (found := _number(each.get("zero_stage"))) is not None), None)
    if stage is None:
        stage = next((found for each in models if (found := _configured(each)) is not None), None)
    ranks = max((found for each in stages if (found := _count(each.get("partition_count")))), default=None)
    if ranks is None:
        ranks = next((found for each in models if (found := _number(each.get("dp_world_size"))) is not None), None)
    places = {match for name in optimizers if (match := _OPTIM.fullmatch(name)) is not None}
    partitions = tuple(sorted({int(match[2]) for match in places}))
    parallel = len({match[1] for name in states if (match := _MODEL.fullmatch(name)) is not None}) or 1
    return DeepSpeed(3 if any(map(_ZERO.fullmatch, states)) else stage, ranks, partitions, parallel)


def _entries(node: Node) -> dict[str, Node]:
    return {part: child for part, child in node.entries if isinstance(part, str)} if isinstance(node, Mapping) else {}


def _number(node: Node) -> int | None:
    """Return a whole number, or that of a member of an enum."""
    if isinstance(node, Opaque) and len(node.arguments) == 1:
        node = node.arguments[0]
    return node if type(node) is int else None


def _count(node: Node) -> int:
    """Return how many partitions: one number, or one for each group of parameters."""
    if isinstance(node, Sequence):
        return max([number for item in node.items if (number := _number(item)) is not None], default=0)
    return _number(node) or 0


def _configured(states: dict[str, Node]) -> int | None:
    """Return the stage in the configuration that the model's states carry."""
    config = _entries(states.get("ds_config"))
    return _number(_entries(config.get("zero_optimization")).get("stage", 0 if config else None))
