"""The same tensors have two names, and the target has only one of them.

Meaning
    A module that is reachable under two attributes (``mixer``, and ``mlp`` kept for older code) is in the state dict
    twice: the same memory under both names. The target has only one of them.

Why it matters
    ``load_state_dict`` fails, although every weight is there.

Symptoms
    Unexpected key(s) in state_dict: "layers.0.mlp.weight", "layers.0.mlp.bias", …

Detection
    Only with a reference: unexpected keys that view the same elements of the same storage as a key that fits, under a
    name that differs in exactly one token; and everything under that name does. Equal values in memory of their own
    (as in safetensors files) are not compared here; `fix --auto` compares them where all else fits.

Repair
    ``ckptdoctor fix FILE --drop 'layers.0.mlp.*'``. Confirmed: every element stays in the file under the name that the
    target expects.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.leftovers import leftovers
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.dropping import unexpected_problem

_WANTED = {f"layers.{layer}.mixer.{name}": T((4, 4), storage=f"{layer}{name}") for layer in range(2) for name in "ab"}
_ALIASES = {key.replace("mixer", "mlp"): value for key, value in _WANTED.items()}
_COPIES = {key: T((4, 4)) for key in _ALIASES}
SICK = (
    Example("a module under two attributes", {**_WANTED, **_ALIASES}, like=_WANTED),
    Example(
        "the same in a wrapper",
        {f"module.{key}": {**_WANTED, **_ALIASES}[key] for key in [*_ALIASES, *_WANTED]},
        like=_WANTED,
    ),
)
HEALTHY = (
    Example("a target with both names", {**_WANTED, **_ALIASES}, like={**_WANTED, **_ALIASES}),
    Example("memory of its own", {**_WANTED, **_COPIES}, like=_WANTED),
    Example("other views of the same memory", {**_WANTED, "layers.0.mlp.a": T((2, 8), storage="0a")}, like=_WANTED),
    Example(
        "a block that is an alias only in part",
        {**_WANTED, "layers.0.mlp.a": _WANTED["layers.0.mixer.a"], "layers.0.mlp.c": T((4, 4))},
        like=_WANTED,
    ),
)

_SHOWN = 3  # names that the cause gives


@rule("N425", "alias-prefixed-duplicates", Severity.WARNING)
def alias_prefixed_duplicates(comparison: Comparison) -> Iterator[Problem]:
    """Report tensors under a second name that the target does not know."""
    found = leftovers(comparison).aliases
    if found:
        keys = tuple([key for alias in found for key in alias.keys])
        pairs = wording.abridged([f"{alias.name} is {alias.twin}" for alias in found], _SHOWN)
        yield unexpected_problem(
            comparison,
            keys,
            f"{'is' if len(keys) == 1 else 'are'} the same memory under a second name, which "
            f"{comparison.reference.source} does not have",
            f"One module was reachable under two attributes: {pairs}. Nothing is lost without the second.",
        )
