"""Matrices are stored transposed: inputs × outputs instead of outputs × inputs.

Meaning
    ``nn.Linear`` keeps outputs × inputs. The Conv1D of GPT-2 in transformers, TensorFlow, Flax and many dumps of NumPy
    arrays keep inputs × outputs.

Why it matters
    ``load_state_dict`` fails. Square matrices of the same family still load silently, and are wrong: so the whole
    family has to be transposed, never single tensors.

Symptoms
    size mismatch for h.0.attn.c_attn.weight: copying a param with shape torch.Size([768, 2304]) from checkpoint, the
    shape in current model is torch.Size([2304, 768]).

Detection
    Only with a reference: at least three matrices of a family (the linear layers of one stack of blocks, or those
    outside of all stacks) have the target's shape reversed; or fewer, where a bias shows that the outputs are the same.
    Embeddings are not part of it. A bias with another size refutes it.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER`` transposes the family where every matrix of it shows it, by its shape
    and its bias, and GPT-2's with its square matrices, since all of it is known to be Conv1D (``c_attn``, ``c_proj``,
    ``c_fc``). Other families are transposed with ``--unsafe-fixes``, including their square matrices: nothing shows
    that these belong to them. Where some matrices of the family have the target's shape as they are, no repair is
    offered.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.edits import Fix, Safety, Transpose
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.causes import shapes
from ckptdoctor.match.shapes.pairs import Pair
from ckptdoctor.match.shapes.transposed import TransposedFamily
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, both_shapes, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option
from ckptdoctor.rules.kit.shapes_in_errors import pairs_for
from ckptdoctor.rules.kit.shaping import likewise, mismatch


def _gpt2(*, turned: bool) -> dict[str, object]:
    found: dict[str, object] = {"wte.weight": T((11, 4)), "wpe.weight": T((8, 4))}
    for index in range(2):
        for name, shape in (("attn.c_attn", (12, 4)), ("attn.c_proj", (4, 4)), ("mlp.c_fc", (16, 4))):
            found[f"h.{index}.{name}.weight"] = T(shape[::-1] if turned else shape)
            found[f"h.{index}.{name}.bias"] = T(shape[:1])
        found[f"h.{index}.ln_1.weight"] = T((4,))
    return found


_CNN = {"conv.weight": T((4, 3, 3, 3)), "conv.bias": T((4,)), "fc.bias": T((2,))}
SICK = (
    Example("Conv1D for Linear", _gpt2(turned=True), like=_gpt2(turned=False)),
    Example("Linear for Conv1D", _gpt2(turned=False), like=_gpt2(turned=True)),
    Example(
        "one layer, as its bias shows",
        {**_CNN, "fc.weight": T((4, 2))},
        like={**_CNN, "fc.weight": T((2, 4))},
    ),
)
HEALTHY = (
    Example("the same orientation", _gpt2(turned=True), like=_gpt2(turned=True)),
    Example(
        "inputs and outputs are swapped",
        {**_CNN, "fc.weight": T((4, 2)), "fc.bias": T((4,))},
        like={**_CNN, "fc.weight": T((2, 4))},
    ),
    Example(
        "a table",
        {**_CNN, "embed.weight": T((4, 6))},
        like={**_CNN, "embed.weight": T((6, 4))},
    ),
)

# the layers that are Conv1D in transformers' GPT-2, and Linear in nanoGPT and minGPT: ``transposed`` of their
# from_pretrained(), model.py
_CONV1D = frozenset({"c_attn", "c_proj", "c_fc"})

_CAUSE = (
    "One side keeps matrices as outputs × inputs, like nn.Linear, the other as inputs × outputs, like Conv1D "
    "in transformers, TensorFlow and Flax."
)


@rule("S505", "transposed-linear", Severity.ERROR)
def transposed_linear(comparison: Comparison) -> Iterator[Problem]:
    """Report families of matrices that are stored transposed."""
    here, there = comparison.renamed.here, comparison.reference.tensors
    for family in shapes(comparison).transposed:
        pairs = [Pair(key, here[key].shape, there[key].shape) for key in family.reversed]
        fix, advice = _fix(comparison, family)
        yield mismatch(comparison, pairs, likewise(pairs), _CAUSE + _squares(family), advice, fix)


def _squares(family: TransposedFamily) -> str:
    if not family.squares or family.others:
        return ""
    number = len(family.squares)
    return (
        f" {wording.plural(number, 'square matrix', 'square matrices')} of the same family "
        f"{'loads' if number == 1 else 'load'} silently, and would be wrong."
    )


def _fix(comparison: Comparison, family: TransposedFamily) -> tuple[Fix | None, str]:
    """Return the whole family turned; advice where it is not of one kind."""
    if family.others:
        number, some = len(family.others), wording.abridged(family.others, 2)
        verb = "has" if number == 1 else "have"
        return None, (
            f"No repair is offered: {wording.plural(number, 'matrix', 'matrices')} next to them {verb} the "
            f"model's shape as {'it is' if number == 1 else 'they are'} ({some}), so nothing shows which "
            "square matrices to transpose."
        )
    keys = (*family.reversed, *family.squares)
    title = f"transpose {wording.plural(len(keys), 'matrix', 'matrices')}{f' of {family.name}' if family.name else ''}"
    edits = tuple([Transpose(comparison.renamed.here[key].path) for key in keys])
    known = all(_CONV1D.intersection(key.split(".")[-2:-1]) for key in keys)
    sure = known or (family.proven and not family.squares)
    return Fix(title, edits, Safety.CONFIRMED if sure else Safety.UNSAFE, auto_option(comparison)), ""


@judges(Turn.SHAPE, general=4)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """The pairs of shapes that say so by themselves."""
    found = pairs_for(rest, "S505")
    if found:
        meaning = f"a matrix is stored transposed ({both_shapes(found[0])}), as in Conv1D, TensorFlow and Flax"
        yield Cause(meaning, Repair.LOSS, mismatched=[pair.key for pair in found])
