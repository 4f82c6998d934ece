"""A weight is stored as the original that a parametrization computes it from, and the file does not record how.

Meaning
    ``torch.nn.utils.parametrize`` keeps ``parametrizations.weight.original`` in place of ``weight``, and computes the
    weight in the model. ``torch.nn.utils.parametrizations.orthogonal`` keeps ``parametrizations.weight.0.base`` next to
    it. The target has the plain weight.

Why it matters
    ``load_state_dict`` fails. The original is not the weight: renamed, it would load, and the model would compute
    something else.

Symptoms
    Missing key(s) in state_dict: "fc.weight".
    Unexpected key(s) in state_dict: "fc.parametrizations.weight.original", "fc.parametrizations.weight.0.base".

Detection
    Only with a reference: it has the plain weight, and the original is here. Weight norm and spectral norm have rules
    of their own.

Repair
    ``orthogonal`` has three maps, ``matrix_exp``, ``cayley`` and ``householder``, and saves the same for each:
    ``matrix_exp`` is its default for square matrices, ``householder`` for others. Where the model was made with it,
    ``ckptdoctor fix FILE --auto --like OTHER --orthogonal-map matrix_exp`` computes the weight, in float64 and rounded
    once. torch computes in the weight's own dtype, whose last digits differ. Without that option nothing is computed:
    another map gives another matrix, which is orthogonal as well. The file does not describe a parametrization of your
    own: remove it in Python with ``torch.nn.utils.parametrize.remove_parametrizations``, and save the model again.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.edits.computing import ORTHOGONAL
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.parametrized import beside, orthogonals, parametrized
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option
from ckptdoctor.rules.kit.shaping import key_places
from ckptdoctor.rules.kit.weight_forms import WeightForm, changes
from ckptdoctor.rules.messages import Way
from ckptdoctor.rules.naming.plain_weights import load_before

_BIAS = {"fc.bias": T((4,)), "head.weight": T((2, 4))}
_PLAIN = {**_BIAS, "fc.weight": T((4, 4))}
_ORIGINAL = {**_BIAS, "fc.parametrizations.weight.original": T((4, 4))}
_BASE = {**_ORIGINAL, "fc.parametrizations.weight.0.base": T((4, 4))}
SICK = (
    Example("an orthogonal weight with its base", _BASE, like=_PLAIN),
    Example("a parametrization without a name", _ORIGINAL, like=_PLAIN),
)
HEALTHY = (
    Example("a target with the same one", _BASE, like=_BASE),
    Example("a target without the layer", _BASE, like=_BIAS),
)

_MAPS = (
    "The file does not record how it is computed. If it is torch.nn.utils.parametrizations.orthogonal, "
    "specify the map that it was made with (matrix_exp is the default for square matrices, householder for "
    "others): another one gives another matrix. Remove any other one in Python with "
    "torch.nn.utils.parametrize.remove_parametrizations, and save the model again."
)
_OWN = (
    "The file does not record how it is computed. Remove the parametrization in Python with "
    "torch.nn.utils.parametrize.remove_parametrizations, and save the model again; no command can do that."
)


@rule("N430", "parametrized-weight", Severity.ERROR)
def parametrized_weight(comparison: Comparison) -> Iterator[Problem]:
    """Report originals whose plain weights are wanted."""
    found = parametrized(comparison)
    if not found:
        return
    known = orthogonals(comparison)
    parts = [part for _, original in found for part in beside(comparison, original)]
    (key, first), more = found[0], len(found) - 1
    likewise = wording.beyond(more, "weight", before="; ", after=" likewise")
    whole = len(known) == len(found)
    option = f"ckptdoctor fix FILE {auto_option(comparison)} --orthogonal-map"
    yield Problem(
        message=f"{first} here, {key} in the model{likewise}",
        cause="Saved from a model with torch.nn.utils.parametrize, which computes the weight from an original; the "
        "target has the weight itself.",
        torch_says=(wording.missing_line([each for each, _ in found]), wording.unexpected_line(parts)),
        advice=_MAPS if whole else _OWN,
        keys=key_places(comparison, parts),
        location=Location(path=comparison.path),
        commands=tuple([f"{option} {each}" for each in ORTHOGONAL]) if whole else (),
    )


_PLAIN_THERE = (
    "the file keeps weights as parametrisations (torch.nn.utils.parametrize), and the model has plain ones. "
    "Only the model's code defines how they are computed, so no command can do it unless you specify that: "
    "load them into a model with the same parametrisations, and make its weights plain"
)
_REMOVE = Way(
    "in the model that loads the file", 'torch.nn.utils.parametrize.remove_parametrizations(module, "weight")'
)
_TOLD = Way("or, if they are orthogonal, see which option to give", "ckptdoctor check FILE TARGET")
# the weights that other rules know of
_NORMS = (
    {WeightForm.OLD_WEIGHT_NORM, WeightForm.NEW_WEIGHT_NORM, WeightForm.PLAIN},
    {WeightForm.OLD_SPECTRAL_NORM, WeightForm.NEW_SPECTRAL_NORM, WeightForm.PLAIN},
    {WeightForm.PRUNED, WeightForm.PLAIN},
)


@judges(Turn.FORM)
def of_parts(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Parts of weights are on one side, which no other rule knows of, and the weights or other parts on the other."""
    for change in changes(rest.missing, rest.unexpected):
        here, there = change.here, change.there
        if WeightForm.LORA in (here, there) or any({here, there} <= norm for norm in _NORMS):
            continue
        if there is WeightForm.PLAIN:
            yield change.cause(_PLAIN_THERE, Repair.BY_HAND, (_REMOVE, _TOLD))
        elif here is WeightForm.PLAIN:
            meaning = (
                "the model keeps weights as parametrisations (torch.nn.utils.parametrize), and the file has plain ones"
            )
            ways = (load_before("the model gets its parametrisations"),)
            yield change.cause(meaning, Repair.BY_HAND, ways, code="")
        else:
            meaning = (
                f"file and model keep weights in different ways: {here.value} in the file, {there.value} in "
                "the model; no command converts one into the other"
            )
            yield change.cause(meaning, Repair.NONE, code="")
