"""The weights of one network are in the file more than once.

Meaning
    In addition to the trained weights, programs save a running average of them (EMA, SWA), a teacher, or the best ones
    so far. All have the same keys and shapes.

Why it matters
    All of them load silently, and they give different results: averages are often better by a few per cent. The file is
    two or three times as large as one set.

Symptoms
    Nothing. Or poor figures, where the wrong set was loaded; or, where the whole file was,
    Unexpected key(s) in state_dict: "model", "model_ema".

Detection
    Two or more state dicts of the file have the same keys, names of wrappers aside, with the same shapes; an average
    may leave out buffers. That is info, not a fault. With a reference, sets that W301 names are not named again.

Repair
    Choose: ``ckptdoctor fix FILE --root KEY`` keeps only one of them. The file does not show which one you need, so
    none is proposed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.facts.weight_sets import Network, networks
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, Odict, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.structure import sets
from ckptdoctor.rules.when import nested_weights

_NET: dict[str, object] = {"fc.weight": T((2, 4)), "fc.bias": T((2,)), "bn.running_mean": T((2,))}
_AVERAGE = {"n_averaged": T((), "int64"), "module.fc.weight": T((2, 4)), "module.fc.bias": T((2,))}
SICK = (
    Example("raw and averaged weights", {"epoch": 3, "model": _NET, "model_ema": _NET}),
    Example("an average without buffers", {"state_dict": _NET, "ema": {"state_dict": _AVERAGE}}),
    Example("the last and the best", {"current_model_state": _NET, "best_model_state": _NET}),
    Example("raw and averaged weights for a model", {"model": _NET, "ema": _NET}, like=_NET),
)
HEALTHY = (
    Example("one set of weights", {"epoch": 3, "model": Odict(_NET)}),
    Example("two networks", {"generator": _NET, "discriminator": {"conv.weight": T((4, 3, 1, 1))}}),
    Example("the same keys with other shapes", {"small": _NET, "large": {"fc.weight": T((3, 4)), "fc.bias": T((3,))}}),
    Example("weights and statistics", {"model": _NET, "normalizer": {"mean": T((3,)), "std": T((3,))}}),
)


@rule("W302", "multiple-weight-sets", Severity.INFO, when=nested_weights)
def multiple_weight_sets(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report networks of which there is more than one set of weights."""
    checkpoint = subject.checkpoint if isinstance(subject, Comparison) else subject
    named = _named_by_w301(subject) if isinstance(subject, Comparison) else set()
    for network in networks(checkpoint):
        if len(network.sets) > 1 and not all(id(each) in named for each in network.sets):
            yield _problem(checkpoint, network, subject.reference if isinstance(subject, Comparison) else None)


def _named_by_w301(comparison: Comparison) -> set[int]:
    if not (comparison.nested and comparison.rivals and comparison.renamed.fits):
        return set()
    return {id(each) for each in (comparison.state_dict, *comparison.rivals)}


def _problem(checkpoint: Checkpoint, network: Network, wanted: Reference | None) -> Problem:
    first = network.sets[0]
    return Problem(
        message=f"{wording.plural(len(network.sets), 'set')} of weights for one network: "
        f"{sets.described(network.sets)}",
        cause=_cause(network.sets),
        advice=(
            "--root chooses which one is compared and kept:"
            if wanted is not None
            else "Usually you evaluate and publish an average. fix keeps the one that --root names:"
            if any(map(sets.is_average, network.sets))
            else "fix keeps the one that --root names, and nothing else:"
        ),
        keys=tuple([each.path for each in network.sets]),
        location=Location(path=first.path),
        commands=sets.commands(checkpoint, network.sets, wanted),
    )


def _cause(found: tuple[StateDict, ...]) -> str:
    if _one_copy(found):
        return "All of them are the same tensors: the intended copy changed along with the original."
    return "They have the same keys and shapes: each loads silently, and gives different results."


def _one_copy(sets: Sequence[StateDict]) -> bool:
    """Return whether the sets view the very same storages: one was saved under two names, and nothing was copied."""
    views = [
        frozenset([(each.key, each.storage.key) for each in one.tensors if each.storage is not None]) for one in sets
    ]
    return bool(views[0]) and all(each == views[0] for each in views)
