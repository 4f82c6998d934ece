"""A loss, a metric or a teacher was saved with the model, which has everything that the target expects.

Meaning
    A LightningModule, or any object that trains a model, may hold other modules too: ``criterion``, ``loss.lpips``,
    ``val_metrics``, a ``teacher``. All of them are in its state dict.

Why it matters
    ``load_state_dict`` of the bare model fails, although every weight is there.

Symptoms
    Unexpected key(s) in state_dict: "criterion.weight", "loss.lpips.lin0.weight", …

Detection
    Only with a reference, and only where none of its keys is missing or has a different shape: unexpected keys under
    one top-level name that contains loss, criterion, metric or teacher, and under which the target has nothing. Every
    other name is for R002.

Repair
    ``ckptdoctor fix FILE --drop 'criterion.*'``. Confirmed for counts, and weights of classes: the target is complete
    without them. Unsafe where the block may hold trained weights (a teacher, or the network of a perceptual loss): then
    you confirm that in a draft map, for which the finding gives the command.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.edits import Safety
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.leftovers import Block, leftovers
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Repair
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.dropping import unexpected_problem
from ckptdoctor.rules.signs import Sign

_NET = {"conv.weight": T((4, 3, 3, 3)), "fc.weight": T((2, 4)), "fc.bias": T((2,))}
_MODEL = {f"model.{key}": value for key, value in _NET.items()}
SIGNS = (
    Sign(
        "the file also holds something that only training needs: a loss, a metric, a teacher",
        Repair.SAFE,
        unexpected=r"(?:criterion|loss|loss_fn|metric|metrics|train_metrics|val_metrics|teacher|lpips)\..*",
        general=7,
    ),
)
SICK = (
    Example("a weighted loss next to the model", {**_NET, "criterion.weight": T((2,))}, like=_NET),
    Example(
        "a perceptual loss and metrics in a Lightning checkpoint",
        {
            "pytorch-lightning_version": "2.6.0",
            "state_dict": {
                **_MODEL,
                "loss.lpips.lin0.weight": T((1, 4, 1, 1)),
                "val_metrics.confusion": T((2, 2), "int64"),
            },
        },
        like=_NET,
    ),
    Example("a teacher next to its student", {**_NET, **{f"teacher.{key}": _NET[key] for key in _NET}}, like=_NET),
)
HEALTHY = (
    Example("a target with the same loss", {**_NET, "loss.weight": T((2,))}, like={**_NET, "loss.weight": T((2,))}),
    Example("a head with another name", {**_NET, "aux_head.weight": T((2, 4))}, like=_NET),
    Example(
        "a target with a missing key",
        {**_NET, "criterion.weight": T((2,))},
        like={**_NET, "fc2.weight": T((2, 2))},
    ),
    Example("a parameter that only sounds like it", {**_NET, "glossary.weight": T((2,))}, like=_NET),
)


@rule("N422", "loss-or-metric-state", Severity.WARNING)
def loss_or_metric_state(comparison: Comparison) -> Iterator[Problem]:
    """Report losses, metrics and teachers next to a model that is complete."""
    for block in leftovers(comparison).blocks:
        yield unexpected_problem(
            comparison,
            block.keys,
            f'{"is" if len(block.keys) == 1 else "are"} under "{block.name}.", next to a model that is '
            f"complete for {comparison.reference.source}",
            _cause(comparison, block),
            Safety.UNSAFE if block.copies or block.trained else Safety.CONFIRMED,
        )


def _cause(comparison: Comparison, block: Block) -> str:
    size = wording.plural(sum([comparison.renamed.here[key].numel for key in block.keys]), "parameter")
    if block.copies:
        return (
            f"Under that name are the target's own layers a second time ({size}), such as a teacher's: "
            "decide which of the two to keep."
        )
    if block.trained:
        return (
            f"A teacher, or the network of a perceptual loss, was saved with the model ({size}); the target does "
            "not have it."
        )
    return f"A loss, a metric or something similar was saved with the model ({size}); the target does not have it."
