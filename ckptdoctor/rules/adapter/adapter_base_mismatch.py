"""An adapter is compared with a model that it was not made for.

Meaning
    Its matrices do not have the sizes of the layers that they adapt, the embeddings in it have a different vocabulary,
    or the model has no layers with these names.

Why it matters
    peft fails on the sizes. Missing layers are left out with a warning, and the model is not the one that was trained.

Symptoms
    size mismatch for base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight: copying a param with shape
    torch.Size([8, 4096]) from checkpoint, the shape in current model is torch.Size([8, 5120]).

Detection
    Only with the model as a reference: neither dimension of a layer's weight is the outer one of its matrix, a layer
    that was saved in full has a different shape, or more than half of the adapter's layers are not in the model under
    any prefix. Quantized weights, and those of convolutions, do not show the sizes.

Repair
    None: take the model that the adapter was made for. ``base_model_name_or_path`` in ``adapter_config.json`` names it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import StateDict
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.adapter.config import adapter_config_beside, text_of
from ckptdoctor.rules.adapter.layouts import PEFT, is_of_adapter, lora_layout, only_rank_differs
from ckptdoctor.rules.adapter.on_base_model import OnBase, on_base
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, both_shapes, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import BASE_MODEL, SEE, Message

_BASE = {"model.layers.0.q_proj.weight": T((4, 4)), "model.layers.0.v_proj.weight": T((4, 4)), "h.weight": T((9, 4))}
_LEAD = "base_model.model."


def _adapter(width: int, head: int = 9, lead: str = f"{_LEAD}model.layers.0.") -> dict[str, T]:
    return {
        f"{lead}q_proj.lora_A.weight": T((2, width)),
        f"{lead}q_proj.lora_B.weight": T((4, 2)),
        f"{_LEAD}h.weight": T((head, 4)),
    }


MESSAGES = (
    Message(
        ("not found in the base model. Please check the target modules",),
        "the adapter is for layers that this base model does not have: it was made for another one",
        (BASE_MODEL,),
        also=("L902", "L908"),
    ),
    Message(
        ("ERROR lora",),
        "the adapter's matrices do not have the sizes of this model's layers: it was made for another base model",
        (BASE_MODEL,),
        then=r".{1,300}?shape'\[[\d,]{1,40}\]'isinvalid",
        also=("L905",),
    ),
)
SICK = (
    Example("a wider model than its own", _adapter(6), like=_BASE),
    Example("a different vocabulary", _adapter(4, head=10), like=_BASE),
    Example("a different architecture", _adapter(4, lead=f"{_LEAD}encoder.block.0."), like=_BASE),
)
HEALTHY = (
    Example("its own model", _adapter(4), like=_BASE),
    Example("no adapter", {"model.layers.0.q_proj.weight": T((6, 6))}, like=_BASE),
)


@rule("L909", "adapter-base-mismatch", Severity.ERROR)
def adapter_base_mismatch(comparison: Comparison) -> Iterator[Problem]:
    """Report adapters of another model."""
    found, state_dict = on_base(comparison), comparison.state_dict
    if found is None or state_dict is None or not comparison.reference.tensors:  # an error that gives no shapes
        return
    if found.other_shapes:
        yield _other_shape(comparison, state_dict, found)
    layout = lora_layout(state_dict.keys)  # kohya's names have lost their dots: they cannot be looked up
    if 2 * len(found.found) < len(found.modules) and (layout is None or layout.name == PEFT):
        yield _absent(comparison, state_dict, found)


def _other_shape(comparison: Comparison, state_dict: StateDict, found: OnBase) -> Problem:
    first = found.other_shapes[0]
    source = comparison.reference.source
    number = len(found.other_shapes)
    return Problem(
        message=f"{wording.plural(number, 'tensor')} of the adapter {_do(number)} not fit "
        f"{source}: {first.tensor.key} is {wording.shape(first.tensor.shape)}, and {first.key} there is "
        f"{wording.shape(first.wanted)}",
        cause="The adapter was made for a model with other sizes or a different vocabulary.",
        advice=_advice(comparison),
        keys=tuple([each.tensor.path for each in found.other_shapes]),
        location=Location(path=state_dict.path),
    )


def _absent(comparison: Comparison, state_dict: StateDict, found: OnBase) -> Problem:
    here = set(found.found)
    gone = [each for each in found.modules if found.wanted + each.removeprefix(found.lead) not in here]
    gone = gone if found.found else list(found.modules)
    return Problem(
        message=f"{len(found.modules) - len(found.found):,} of {wording.plural(len(found.modules), 'layer')} of the "
        f"adapter {'is' if len(found.modules) == 1 else 'are'} not in {comparison.reference.source}: "
        f"{wording.abridged(gone)}",
        cause="The adapter was made for another model. peft leaves these tensors out with a warning.",
        advice=_advice(comparison),
        keys=tuple([tensor.path for tensor in state_dict.tensors if tensor.key in found.adapter.parts]),
        location=Location(path=state_dict.path),
    )


def _do(number: int) -> str:
    return "does" if number == 1 else "do"


def _advice(comparison: Comparison) -> str:
    name = text_of(adapter_config_beside(comparison.checkpoint), "base_model_name_or_path")
    where = (
        f"adapter_config.json names {name}" if name else "base_model_name_or_path in its adapter_config.json names it"
    )
    return f"Take the model that the adapter was made for: {where}."


@judges(Turn.SHAPE, general=2)
def of_a_shape(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Matrices of an adapter differ in more than their rank."""
    pairs = [pair for pair in rest.mismatched if is_of_adapter(pair.key)]
    found = [pair for pair in pairs if not only_rank_differs(pair)]
    if found:
        meaning = (
            f"an adapter's matrix is for a layer of a different size ({both_shapes(found[0])}): the adapter "
            "was made for another base model, and no command changes it"
        )
        yield Cause(meaning, Repair.BY_HAND, (SEE,), mismatched=[pair.key for pair in found])
