"""The file has the observers and fake quantisation of quantisation-aware training.

Meaning
    ``prepare`` and ``prepare_qat`` of ``torch.ao.quantization`` (and the quantizers of torchao) put modules between the
    layers that record the range of values: ``activation_post_process`` and ``weight_fake_quant`` with ``min_val``,
    ``max_val``, ``scale``, ``zero_point``, ``fake_quant_enabled`` and ``observer_enabled``. The weights themselves are
    still float.

Why it matters
    ``load_state_dict`` into the float model fails, although every weight is there. The observers' numbers are needed
    only to convert the model.

Symptoms
    Unexpected key(s) in state_dict: "conv.weight_fake_quant.fake_quant_enabled",
    "conv.activation_post_process.scale", …
    Missing key(s) in state_dict: "activation_post_process_0.min_val", …

Detection
    By these names. By themselves they are info, not a fault; a warning where a target does not have them.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER`` drops them. Confirmed: the target has no observers to put them into.
    Nothing is dropped without a target, since converting the model needs them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.facts.names import OBSERVERS, keys_of, mentions
from ckptdoctor.facts.quantization import is_observer
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Repair
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.dropping import unexpected_problem
from ckptdoctor.rules.messages import CHECK
from ckptdoctor.rules.signs import Sign, leaf_among
from ckptdoctor.rules.when import observer_keys

_PLAIN: dict[str, object] = {"conv.weight": T((4, 1, 3, 3)), "conv.bias": T((4,)), "fc.weight": T((6, 4))}
_QAT: dict[str, object] = {
    **_PLAIN,
    "conv.weight_fake_quant.fake_quant_enabled": T((1,), "int64"),
    "conv.weight_fake_quant.observer_enabled": T((1,), "int64"),
    "conv.weight_fake_quant.scale": T((4,)),
    "conv.weight_fake_quant.zero_point": T((4,), "int32"),
    "conv.weight_fake_quant.activation_post_process.min_val": T((4,)),
    "conv.activation_post_process.scale": T((1,)),
    "conv.activation_post_process.activation_post_process.eps": T((1,)),
}
_FX: dict[str, object] = {
    **_PLAIN,
    "activation_post_process_0.eps": T((1,)),
    "activation_post_process_0.histogram": T((2048,)),
    "activation_post_process_0.min_val": T(()),
    "activation_post_process_0.max_val": T(()),
}
SIGNS = (
    Sign(
        "the file has the observers of quantisation-aware training, which a float model does not have",
        Repair.NONE,
        (CHECK,),
        unexpected=leaf_among(
            r"activation_post_process(?:_\d+)?\.\w+|fake_quant_enabled|observer_enabled"
            r"|_?(?:input|output|weight|act|activation)_quantizer(?:_\w+)?\.\w+"
        ),
        general=3,
    ),
)
SICK = (
    Example("training with fake quantisation", _QAT),
    Example("training with fake quantisation for a float model", _QAT, like=_PLAIN),
    Example("observers of FX for a float model", {"model": _FX}, like={"model": _PLAIN}),
)
HEALTHY = (
    Example("plain weights", _PLAIN),
    Example("a target with the same observers", _QAT, like=_QAT),
    Example("other scales", {**_PLAIN, "fc.scale": T((1,)), "process.min_val": T(())}, like=_PLAIN),
)


@rule("Q955", "qat-observers", Severity.WARNING, when=observer_keys)
def qat_observers(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report what observers keep, among the weights."""
    if isinstance(subject, Comparison):
        keys = tuple(filter(is_observer, subject.renamed.unexpected))
        if keys and not subject.uncovered:
            yield unexpected_problem(
                subject,
                keys,
                f"{'belongs' if len(keys) == 1 else 'belong'} to observers, which {subject.reference.source} "
                "does not have",
                "The model was prepared for quantising when it was saved: it has observers and fake "
                "quantisation between its layers, and the target has none.",
            )
        return
    for state_dict in weights_among(subject.state_dicts):
        keys = _observers_in(state_dict)
        if keys:
            total = wording.plural(len(state_dict.tensors), "key")
            yield Problem(
                message=f"{len(keys):,} of {total}{wording.of_place(state_dict.path)} "
                f"{'belongs' if len(keys) == 1 else 'belong'} to observers, for quantising",
                cause="The model was prepared for quantising but not converted yet; a float model has no such keys.",
                advice="Load it into a model that was prepared in the same way. For a float model, name it with "
                "--like or --model: then they are dropped.",
                keys=tuple([(*state_dict.path, key) for key in keys]),
                location=Location(path=state_dict.path),
                severity=Severity.INFO,
            )


def _observers_in(state_dict: StateDict) -> tuple[str, ...]:
    """Return the keys of a state dict that belong to observers or to fake quantisation."""
    keys = keys_of(state_dict) if mentions(state_dict, OBSERVERS) else ()
    return tuple(filter(is_observer, keys))
