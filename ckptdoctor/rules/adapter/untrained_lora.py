"""The adapter changes nothing: all its second matrices are zero, as they are before training.

Meaning
    LoRA adds ``B · A`` to a weight. ``B`` begins as zeros, so that an adapter changes nothing until it is trained. In
    this file every ``lora_B`` is still zero: the optimizer never saw these parameters, the wrong object was saved, or
    the file was written before the first step.

Why it matters
    The model answers exactly as its base does, without any message.

Symptoms
    Nothing.

Detection
    ``check --deep`` reads every value.

Repair
    None: there is nothing trained in the file. Make sure that the adapter's parameters require gradients and are in the
    optimizer (``model.print_trainable_parameters()`` of peft counts them), and save the model that was trained.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.facts.adapters import adapter_in
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.values.statistics import Values

_A, _B = "base_model.model.q.lora_A.weight", "base_model.model.q.lora_B.weight"
SICK = (Example("an adapter before its first step", {_A: T((2, 6), value=0.5), _B: T((6, 2), value=0.0)}, deep=True),)
HEALTHY = (
    Example("a trained adapter", {_A: T((2, 6), value=0.5), _B: T((6, 2), value=0.1)}, deep=True),
    Example("no adapter", {"q.weight": T((6, 6), value=0.5), "q.bias": T((6,), value=0.0)}, deep=True),
)


@rule("L904", "untrained-lora", Severity.WARNING)
def untrained_lora(values: Values) -> Iterator[Problem]:
    """Report adapters that add nothing."""
    for state_dict in values.checkpoint.state_dicts:
        adapter = adapter_in(state_dict)
        if adapter is None:
            continue
        lora_b = [each for part, each in adapter.factors(state_dict.tensors) if part.parameter.endswith("_B")]
        read = [found for each in lora_b if (found := values.of(each)) is not None]
        if not read or len(read) < len(lora_b) or any(each.zeros < each.count for each in read):
            continue
        yield Problem(
            message=f"lora_B is zero in {wording.all_of(len(lora_b), 'layer')} of the adapter: it adds nothing",
            cause="They begin as zeros, so it was never trained, or the wrong object was saved.",
            advice=(
                "Make sure that its parameters require gradients and are in the optimizer "
                "(print_trainable_parameters() of peft counts them), and save the model that was trained."
            ),
            keys=tuple([each.path for each in lora_b]),
            location=Location(path=state_dict.path),
        )
