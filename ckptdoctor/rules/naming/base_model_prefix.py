"""Some keys lack the name of the base model as a prefix, or have it where the target does not.

Meaning
    A model with a head holds the base model in an attribute (``bert``, ``roberta``, ``transformer``, ``model``); the
    base model alone has the same layers without that name. One was saved, the other is to be loaded.

Why it matters
    ``load_state_dict`` fails. Lenient loaders start the whole base model from random weights, with a warning that is
    easy to miss.

Symptoms
    Missing key(s) in state_dict: "bert.embeddings.word_embeddings.weight", …
    Some weights of BertForSequenceClassification were not initialized from the model checkpoint

Detection
    Only with a reference: keys that fit one of its keys, with the same shape, once one prefix is added or stripped,
    while other keys stay as they are. A prefix that all keys share is N409, unless it is one of the names that
    transformers gives to base models.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER``: keys are renamed one to one, in ``_metadata`` and an optimizer's
    ``param_names`` as well; no value changes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.prefixes import prefix_code
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.moving import moved_problems
from ckptdoctor.rules.kit.names_in_errors import lead_cause
from ckptdoctor.rules.messages import CHECK, NOT_MAPPED, Way, unknown_key
from ckptdoctor.rules.naming.prefixing import prefix_problem

_BASE = {"embeddings.weight": T((9, 4)), "encoder.0.weight": T((4, 4)), "encoder.1.weight": T((4, 4))}
_HEAD = {"classifier.weight": T((2, 4)), "classifier.bias": T((2,))}
_WHOLE = {**{f"bert.{key}": value for key, value in _BASE.items()}, **_HEAD}
_CAUSE = "The base model and the same model with a head differ in the name of the attribute that holds it."
ALSO = ("N409",)
MESSAGES = (
    *unknown_key(
        r"(?:embed_tokens|layers\.\d{1,4}|norm)\.[\w.]{1,200}",
        'llama.cpp\'s converter expects keys that begin with "model.", and the file has {key}: it holds the '
        "bare inner model",
        (Way("where all of its keys lack it", "ckptdoctor fix FILE --add-prefix model."), CHECK),
        ("N409", "R002"),
        general=3,
        says=(NOT_MAPPED,),
    ),
)
SICK = (
    Example("a head that already exists", {**_BASE, **_HEAD}, like=_WHOLE),
    Example("the base model for one with a head", _BASE, like={f"bert.{key}": value for key, value in _BASE.items()}),
)
HEALTHY = (
    Example("the same keys", _WHOLE, like=_WHOLE),
    Example("another attribute", _BASE, like={f"model.{key}": value for key, value in _BASE.items()}),
)


@rule("N410", "base-model-prefix", Severity.WARNING)
def base_model_prefix(comparison: Comparison) -> Iterator[Problem]:
    """Report one step of the chain, or one prefix for all keys."""
    prefix, state_dict = comparison.prefix, comparison.state_dict
    if prefix is not None and state_dict is not None and prefix_code(prefix) == "N410":
        yield prefix_problem(comparison, state_dict, prefix, _CAUSE)
    yield from moved_problems(
        comparison,
        "N410",
        _CAUSE,
    )


@judges(Turn.PREFIX, general=1)
def of_a_prefix(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Half of the keys of one side begin with it."""
    yield from lead_cause(rest, "N410", wording.fragment(_CAUSE))
