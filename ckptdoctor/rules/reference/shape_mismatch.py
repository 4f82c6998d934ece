"""Keys do not have the shape that the target expects, and no other rule explains it.

Meaning
    The checkpoint's layer and the target's have the same name but different sizes: another width, another kernel, or
    another layer with the same name. Heads, vocabularies, positions and whole models of a different size have rules of
    their own.

Why it matters
    ``load_state_dict`` fails, with ``strict=False`` too.

Symptoms
    size mismatch for fc.weight: copying a param with shape torch.Size([10, 84]) from checkpoint, the shape in current
    model is torch.Size([100, 84]).

Detection
    The shapes under equal keys are compared, after the proposed renames; what another rule explains is not listed
    again. If one pair of sizes explains every shape, it is named.

Repair
    None: values cannot be made up. Build the target with the checkpoint's sizes, or leave these layers out when you
    load the file, and train them again: the finding gives the line of code.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.expectation import Expected
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.leftovers import explained
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, both_shapes, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.dropping import leaving_out
from ckptdoctor.rules.kit.shapes_in_errors import pairs_for
from ckptdoctor.rules.messages import CHECK, CUT, CUT_OFF, MISMATCH, SEE, SEE_SHAPES, Message, Way, Weight

_BODY = {"conv1.weight": T((4, 3, 3, 3)), "conv2.weight": T((4, 4, 3, 3))}
MESSAGES = (
    Message(
        ("Size mismatch between saved torch.Size(",),
        "a tensor is {here} in the folder that torch.distributed.checkpoint wrote and {there} in the model",
        (Way("see the shapes", "ckptdoctor show FILE"),),
        then=r"(?P<here>\[[\d,]{0,80}\])\)andcurrent:torch\.Size\((?P<there>\[[\d,]{0,80}\])",
        also=("S501", "S502", "S510"),
    ),
    Message(
        MISMATCH,
        f"a tensor has different shapes in the file and in the model ({{key}}; {CUT_OFF})",
        SEE_SHAPES,
        then=r"(?P<key>[\w.]{1,400})" + CUT,
        also=("S510", "S501", "S502", "S503"),
        weight=Weight.ECHO,
        general=2,
    ),
    Message(
        ("Attempted to load weight (",),
        "a tensor is {here} in the file and {there} in the model that the program built: the configuration "
        "belongs to another model, or the weights are packed and the program does not know it",
        (CHECK,),
        then=r"(?:torch\.Size\()?(?P<here>\[[\d,]{0,80}\])\)?\)intoparameter\((?:torch\.Size\()?(?P<there>\[[\d,]{0,80}\])",
        also=("M974", "S502", "Q953"),
    ),
    Message(
        (
            "assert param_data.shape == loaded_weight.shape",
            "assert param.shape == loaded_weight.shape",
            "assert loaded_weight.shape[output_dim] == self.org_vocab_size",
        ),
        "a tensor has different shapes in the file and in the model that the program built: the "
        "configuration belongs to another model, or the weights are packed and the program does not know it",
        (CHECK,),
        also=("M974", "S502", "Q953"),
    ),
)
SICK = (
    Example(
        "a layer with another width",
        {**_BODY, "mix.weight": T((8, 4)), "mix.bias": T((8,)), "fc.weight": T((2, 8))},
        like={**_BODY, "mix.weight": T((6, 4)), "mix.bias": T((6,)), "fc.weight": T((2, 6))},
    ),
    Example(
        "another kernel",
        {**_BODY, "last.weight": T((4, 4, 3, 3)), "fc.weight": T((2, 4))},
        like={**_BODY, "last.weight": T((4, 4, 5, 5)), "fc.weight": T((2, 4))},
    ),
)
HEALTHY = (
    Example("the same shapes", _BODY, like=_BODY),
    Example("another dtype", {key: T(value.shape, "float64") for key, value in _BODY.items()}, like=_BODY),
    Example(
        "another number of classes, which another rule reports",
        {**_BODY, "fc.weight": T((5, 4)), "fc.bias": T((5,))},
        like={**_BODY, "fc.weight": T((2, 4)), "fc.bias": T((2,))},
    ),
)

_SHOWN = 3  # keys whose shapes the message gives


@rule("R003", "shape-mismatch", Severity.ERROR)
def shape_mismatch(comparison: Comparison) -> Iterator[Problem]:
    """Report equal keys of different shapes."""
    if not comparison.renamed.mismatched or comparison.uncovered:
        return
    known = explained(comparison).mismatched
    mismatched = tuple([key for key in comparison.renamed.mismatched if key not in known])
    if not mismatched:
        return
    here, there = comparison.renamed.here, comparison.reference.tensors
    first = [_shapes(key, here[key], there[key]) for key in mismatched[:_SHOWN]]
    more = f" and {wording.plural(len(mismatched) - _SHOWN, 'key')} more" if len(mismatched) > _SHOWN else ""
    verb = "has" if len(mismatched) == 1 else "have"
    yield Problem(
        message=f"{wording.plural(len(mismatched), 'key')} {verb} a different shape in "
        f"{comparison.reference.source}: {', '.join(first)}{more}",
        cause=_explanation(comparison, mismatched) or "The checkpoint's layers and the target's have different sizes.",
        torch_says=tuple(
            [wording.mismatch_line(key, here[key].shape, there[key].shape) for key in mismatched[:_SHOWN]]
        ),
        advice=_advice(comparison, mismatched),
        keys=tuple([here[key].path for key in mismatched]),
        location=Location(path=comparison.path),
    )


def _shapes(key: str, tensor: Tensor, expected: Expected) -> str:
    return f"{key} {wording.shape(tensor.shape)} here, {wording.shape(expected.shape)} there"


def _advice(comparison: Comparison, keys: tuple[str, ...]) -> str:
    line = leaving_out(comparison, keys)
    said = "Build the target with these sizes, or leave the layers out when you load the file, and train them again"
    return f"{said}: {line}" if line else f"{said}."


def _explanation(comparison: Comparison, keys: tuple[str, ...]) -> str:
    """Return the one pair of sizes that would explain every shape, where there is one."""
    here, there = comparison.renamed.here, comparison.reference.tensors
    changes = {_change(here[key].shape, there[key].shape) for key in keys}
    if len(changes) != 1 or None in changes:
        return ""
    [(ours, theirs)] = [change for change in changes if change is not None]
    return f"One size explains {'it' if len(keys) == 1 else 'all of them'}: {ours:,} here, {theirs:,} there."


def _change(here: tuple[int, ...], there: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the two sizes of the one dimension that differs, or None where more than one does."""
    if len(here) != len(there):
        return None
    differing = [(ours, theirs) for ours, theirs in zip(here, there, strict=True) if ours != theirs]
    return differing[0] if len(differing) == 1 else None


@judges(Turn.SIZE)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Shapes differ, and nothing says why."""
    found = pairs_for(rest, "R003")
    if found:
        differs = f"a tensor has different shapes in the file and in the model ({both_shapes(found[0])})"
        meaning = f"{differs}; no command changes it: build the model as it was for the file"
        yield Cause(meaning, Repair.NONE, (SEE,), mismatched=[pair.key for pair in found])
