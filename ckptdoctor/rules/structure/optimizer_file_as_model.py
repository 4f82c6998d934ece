"""The file holds the state of an optimizer, a scheduler or random number generators, but not a model.

Meaning
    Frameworks save the weights and the state of the training in files side by side (``pytorch_model.bin`` and
    ``optimizer.pt``, ``scheduler.pt``, ``rng_state.pth``). This is one of the latter.

Why it matters
    It is fine for resuming training. Loaded as a model it fails, or with ``strict=False`` silently loads nothing at
    all.

Symptoms
    Missing key(s) in state_dict: "conv1.weight", "bn1.weight", …
    Unexpected key(s) in state_dict: "state", "param_groups".

Detection
    The top of the file has the keys ``state`` and ``param_groups``, or those of a scheduler's ``state_dict()``, or
    every tensor is the state of a generator; and there are no model weights anywhere. By itself that is info, not a
    fault; with a reference, which is a model, it is an error.

Repair
    None: the weights are in another file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Mapping, show_part
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import CHECK
from ckptdoctor.rules.structure.without_weights import purpose
from ckptdoctor.rules.when import any_of, generator_states, more_than_weights

_OPTIMIZER = {
    "state": {0: {"step": T(()), "exp_avg": T((2, 4)), "exp_avg_sq": T((2, 4))}},
    "param_groups": [{"lr": 0.1, "params": [0]}],
}
SICK = (
    Example("an optimizer's file", _OPTIMIZER),
    Example("a scheduler's file", {"base_lrs": [0.1], "last_epoch": 3, "_step_count": 4, "_last_lr": [0.01]}),
    Example("an optimizer's file instead of a model's", _OPTIMIZER, like={"fc.weight": T((2, 4))}),
)
HEALTHY = (
    Example("a training checkpoint", {"model": {"fc.weight": T((2, 4))}, "optimizer": _OPTIMIZER}),
    Example("bare weights", {"fc.weight": T((2, 4)), "fc.bias": T((2,))}),
)


@rule("W303", "optimizer-file-as-model", Severity.INFO, when=any_of(more_than_weights, generator_states))
def optimizer_file_as_model(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Files that hold the state of a training but not a model."""
    compared = isinstance(subject, Comparison)
    checkpoint = subject.checkpoint if isinstance(subject, Comparison) else subject
    kind = purpose(checkpoint)
    if kind is None:
        return
    tree = checkpoint.tree
    top = [show_part(part) for part, _ in tree.entries] if isinstance(tree, Mapping) else []
    missing = (wording.missing_line(subject.reference.tensors),) if isinstance(subject, Comparison) else ()
    yield Problem(
        message=f"the file holds {kind}, not a model",
        cause="It serves to resume training; a model's load_state_dict finds nothing in it.",
        torch_says=(*missing, wording.unexpected_line(top)) if top else missing,
        advice="The weights are in another file next to it, such as model.safetensors or pytorch_model.bin.",
        severity=Severity.ERROR if compared else Severity.INFO,
    )


@judges(Turn.FILE)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """What an optimizer keeps at its top is unexpected."""
    top = ("state", "param_groups")
    if rest.top.issuperset(top):
        meaning = (
            "the file holds the state of an optimizer, not the weights of a model, and no command can make "
            "weights from it: load the file of the model that was saved with it"
        )
        yield Cause(meaning, Repair.NONE, (CHECK,), missing=rest.missing, unexpected=top)
