"""Keys that the target expects are not in the checkpoint, and no other rule explains it.

Meaning
    After every fix that the other rules propose, these keys of the reference have no counterpart: the target has layers
    that the saved model did not have, or names them differently.

Why it matters
    ``load_state_dict`` fails. With ``strict=False`` these layers silently keep their random weights.

Symptoms
    Missing key(s) in state_dict: "fc.weight", "fc.bias".

Detection
    The reference's keys are looked up among the checkpoint's, after the proposed renames; what another rule explains is
    not listed again. If less than half of the reference fits, W311 is reported instead. ``num_batches_tracked`` counts
    only if ``_metadata`` gives its BatchNorm version 2: otherwise torch does not expect it.

Repair
    None: the weights are not in the file, or their name there is unknown. The nearest keys with the same shape are
    named; if one is the same layer, ``--rename 'REGEX=REPL'`` gives it the name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.leftovers import explained
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges, some_keys
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import CHECK, Message, Way, Weight

_BODY = {"conv1.weight": T((4, 3, 3, 3)), "conv2.weight": T((4, 4, 3, 3)), "conv3.weight": T((4, 4, 3, 3))}
MESSAGES = (
    Message(
        ("Missing key in checkpoint state_dict:",),
        "the folder that torch.distributed.checkpoint wrote lacks a key of the state dict that is being "
        "loaded: it was saved under another name, or not at all",
        (
            Way("see what it has", "ckptdoctor show FILE"),
            Way(
                "or leave what the folder lacks as it is",
                "torch.distributed.checkpoint.load(state, checkpoint_id=path,"
                " planner=torch.distributed.checkpoint.DefaultLoadPlanner(allow_partial_load=True))",
            ),
        ),
        also=("N404", "N405", "N407", "O754"),
    ),
    Message(
        ("clip missing:", "unet missing:"),
        "the file lacks some of the keys that ComfyUI's model has; the parts that need them keep random values",
        (CHECK,),
        then=r"\[",
        weight=Weight.OUTCOME,
    ),
    Message(
        ("is on the meta device, we need a `value` to put in on",),
        "the checkpoint lacks a tensor that the model needs: a shard is missing, the names begin with "
        "another prefix, or tied weights were not tied",
        (CHECK,),
        near=("accelerate", "set_module_tensor_to_device", "meta"),
        also=("X801", "A702", "N410"),
    ),
    Message(
        ("Cannot load model parameters from checkpoint",),
        "fairseq could not load the weights: file and model do not have the same architecture. The error "
        "above this line names the keys",
        (CHECK,),
        near=("please ensure that the architectures match",),
        weight=Weight.OUTCOME,
        also=("R002", "R003"),
    ),
    Message(
        ("Weights for this component appear to be missing in the checkpoint",),
        "the file does not hold every part of the pipeline (a text encoder or the VAE is not in it)",
        (Way("see what it holds", "ckptdoctor show FILE"),),
        also=("W304",),
    ),
)
SICK = (
    Example("a target with one more layer", _BODY, like={**_BODY, "fc.weight": T((2, 4)), "fc.bias": T((2,))}),
    Example(
        "a head with another name and shape",
        {"model": {**_BODY, "head.0.weight": T((2, 4))}},
        like={"model": {**_BODY, "fc.weight": T((5, 4))}},
    ),
)
HEALTHY = (
    Example("the same keys", _BODY, like=_BODY),
    Example(
        "BatchNorm does not expect its counter",
        {**_BODY, "bn.running_var": T((4,))},
        like={**_BODY, "bn.running_var": T((4,)), "bn.num_batches_tracked": T((), "int64")},
    ),
)

_NEAREST = 3  # missing keys for which a namesake is looked for


@rule("R001", "missing-keys", Severity.ERROR)
def missing_keys(comparison: Comparison) -> Iterator[Problem]:
    """Report keys of the reference without a counterpart."""
    if comparison.uncovered or not comparison.renamed.missing:
        return
    known = explained(comparison).missing
    missing = [key for key in comparison.renamed.missing if key not in known]
    if not missing:
        return
    wanted = comparison.reference.tensors
    sizes = {key: prod(wanted[key].shape) for key in missing}
    share = wording.proportion(sum(sizes.values()), comparison.total_parameters)
    verb = "is" if len(missing) == 1 else "are"
    yield Problem(
        message=f"{len(missing):,} of {wording.plural(len(wanted), 'key')} of {comparison.reference.source} {verb} "
        f"missing{wording.in_place(comparison.path)} ({share} of its parameters)",
        cause="The target has layers that the saved model did not have, or names them differently: "
        f"{wording.module_groups(sizes)}.",
        torch_says=(wording.missing_line(missing),),
        advice=_kin(comparison, missing),
        keys=tuple([(*comparison.path, key) for key in missing]),
        location=Location(path=comparison.path),
    )


def _kin(comparison: Comparison, missing: list[str]) -> str:
    renamed, wanted = comparison.renamed, comparison.reference.tensors
    known = explained(comparison).unexpected
    candidates = {key: renamed.here[key].shape for key in renamed.unexpected if key not in known}
    pairs = [(key, nearest_key(key, wanted[key].shape, candidates)) for key in missing[:_NEAREST]]
    found = [f"{near} {wording.shape(wanted[key].shape)} for {key}" for key, near in pairs if near is not None]
    return f"The nearest keys here with the same shape: {', '.join(found)}." if found else ""


@judges(Turn.REST)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """What nothing else explains is missing."""
    if rest.missing:
        why = (
            ": the loader gives them random values, which is right only for layers yet to be trained"
            if rest.error.warning
            else "; no command can make up weights: they have to come from another file, or from training"
        )
        meaning = f"the checkpoint lacks {some_keys(rest.missing)} that the model expects{why}"
        yield Cause(meaning, Repair.NONE, missing=rest.missing)


def nearest_key(key: str, shape: tuple[int, ...], candidates: Mapping[str, tuple[int, ...]]) -> str | None:
    """Return the candidate of the same shape that shares most tokens with ``key``, at its end and beginning.

    One that does not even share the last token (``weight``) is no kin.
    """
    tokens = key.split(".")
    best, most = None, 0
    for other, other_shape in candidates.items():
        if other_shape == shape:
            parts = other.split(".")
            tail = _common(tokens[::-1], parts[::-1])
            score = 2 * tail + _common(tokens, parts) if tail else 0
            if score > most:
                best, most = other, score
    return best


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))
