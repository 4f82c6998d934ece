"""Keys end with ``_flat_param``: FSDP saved its own flat tensors instead of the model's parameters.

Meaning
    FullyShardedDataParallel (and fairscale before it) flattens all parameters of a module into one 1-D tensor, and cuts
    it into pieces for the ranks. ``state_dict()`` under ``StateDictType.LOCAL_STATE_DICT`` gives these pieces, as
    ``_flat_param`` or ``flat_param_0``.

Why it matters
    No model has such keys, and the file alone does not show which parameter, of which shape, begins where. It may hold
    only one rank's piece.

Symptoms
    Missing key(s) in state_dict: "layers.0.weight", "layers.0.bias", …
    Unexpected key(s) in state_dict: "_fsdp_wrapped_module._flat_param", …

Detection
    Keys whose last token is ``flat_param``, ``_flat_param`` or the same with a number, on 1-D tensors or on values that
    are not tensors (pieces that refer to their neighbours). With a reference that has such keys nothing is wrong.

Repair
    None from this file. Where the run can still be loaded, save it again: ``get_model_state_dict(model,
    options=StateDictOptions(full_state_dict=True))`` of ``torch.distributed.checkpoint.state_dict`` gives the model's
    own keys; fairscale's pieces go through ``FullyShardedDataParallel.consolidate_shard_weights``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.facts import names
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, both_shapes, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import CHECK, Way
from ckptdoctor.rules.when import flat_parameters

_FLAT = {"_fsdp_wrapped_module.layers.0._fsdp_wrapped_module._flat_param": T((72,)), "_flat_param": T((18,))}
SICK = (
    Example("a local state dict of FSDP", _FLAT),
    Example("a local state dict of fairscale", {"model": {"flat_param_0": T((90,)), "_fpw_module.bn.bias": T((8,))}}),
    Example(
        "a local state dict for a bare model", _FLAT, like={"layers.0.weight": T((8, 8)), "layers.0.bias": T((8,))}
    ),
)
HEALTHY = (
    Example("a full state dict of FSDP", {"_fsdp_wrapped_module.layers.0.weight": T((8, 8))}),
    Example("a matrix of that name", {"_flat_param": T((8, 8)), "layers.0.weight": T((8, 8))}),
    Example("a longer name", {"my_flat_param.weight": T((8,)), "inflat_param": T((8,))}),
    Example("a target that is sharded the same way", _FLAT, like=_FLAT),
)


@rule("N406", "flat-param", Severity.ERROR, when=flat_parameters)
def flat_param(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report state dicts with flat parameters."""
    if isinstance(subject, Comparison):
        if names.flat_parameter(subject.reference.tensors) is not None:
            return
        subject = subject.checkpoint
    for state_dict in subject.state_dicts:
        found = _flat(state_dict) if state_dict.role in WEIGHTS else []
        if found:
            yield _problem(state_dict, found)


def _flat(state_dict: StateDict) -> list[str]:
    if not names.mentions(state_dict, ("flat_param",)) and not any("flat_param" in key for key in state_dict.others):
        return []
    vectors = [tensor.key for tensor in state_dict.tensors if len(tensor.shape) == 1]
    return [key for key in (*vectors, *state_dict.others) if names.flat_parameter((key,)) is not None]


def _problem(state_dict: StateDict, found: list[str]) -> Problem:
    total = wording.plural(len(state_dict.tensors) + len(state_dict.others), "key")
    verb = "is a flat parameter" if len(found) == 1 else "are flat parameters"
    return Problem(
        message=f"{len(found):,} of {total}{wording.of_place(state_dict.path)} {verb} of FSDP",
        cause="FSDP saved the flat tensors that it works with (LOCAL_STATE_DICT). The file does not record which "
        "parameter, of which shape, begins where in them, and the other ranks' pieces may be missing.",
        torch_says=(wording.unexpected_line(found),),
        advice="Load it into the same FSDP model and save that with get_model_state_dict(model, "
        "options=StateDictOptions(full_state_dict=True)) of torch.distributed.checkpoint.state_dict.",
        keys=tuple([(*state_dict.path, key) for key in found]),
        location=Location(path=state_dict.path),
    )


_GATHER = Way("save again with", "FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)")


@judges(Turn.WRAPPER, general=3)
def of_its_names(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Flat parameters are unexpected."""
    found = [key for key in rest.unexpected if key.split(".")[-1].startswith(("_flat_param", "flat_param_"))]
    if found:
        meaning = (
            "the file holds FSDP's flat parameters, each rank its own part; names and shapes cannot be "
            "recovered from them, and no command makes complete weights of this file alone"
        )
        yield Cause(meaning, Repair.NONE, (_GATHER,), missing=rest.missing, unexpected=found)


@judges(Turn.SHAPE, general=3)
def of_its_shape(rest: IncompatibleKeys) -> Iterator[Cause]:
    """A run of numbers is longer than any side of the matrix that it should be."""
    found = [
        pair for pair in rest.mismatched if len(pair.here) == 1 < len(pair.there) and pair.here[0] > max(pair.there)
    ]
    if found:
        meaning = (
            f"the file has one flat run of numbers where the model has a matrix ({both_shapes(found[0])}), "
            "as FSDP keeps its parameters when they are not gathered; no command makes complete weights of "
            "this file alone"
        )
        yield Cause(meaning, Repair.BY_HAND, (_GATHER, CHECK), mismatched=[pair.key for pair in found])
