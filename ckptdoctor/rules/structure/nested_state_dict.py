"""The weights are inside a larger checkpoint, one or more keys deep.

Meaning
    Training scripts and frameworks save the weights together with the epoch, the optimizer and their settings, under a
    key like ``state_dict`` or ``model``. The file is fine; only the weights are not at its top.

Why it matters
    ``load_state_dict`` expects the inner dict. Given the whole one it fails, and so does a program that expects a bare
    state dict.

Symptoms
    Missing key(s) in state_dict: "conv1.weight", "bn1.weight", …
    Unexpected key(s) in state_dict: "epoch", "state_dict", "optimizer".

Detection
    The top of the file is not a model's state dict, but something below it is. That alone is info, not a fault, and not
    reported for a folder in which the weights are a file of their own. With a reference that has its weights elsewhere
    it is a warning; if the file has several sets of weights, all are named. Without one W302 and W304 report several
    sets: the same network more than once, and different networks.

Repair
    ``ckptdoctor fix FILE --root state_dict`` makes the inner dict the whole file. Unsafe: the epoch, the optimizer and
    everything else are dropped. Not offered where more than one set of weights is possible, nor for a folder;
    ``ckptdoctor convert FOLDER OUT --root model`` writes its weights as a file of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, StateDict, show_part, show_path
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.checkpoint.tensor import same_checksums
from ckptdoctor.edits import Fix, Safety, TakeRoot
from ckptdoctor.facts import names
from ckptdoctor.facts.weight_sets import networks, weight_sets
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.second_names import is_one
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.converting import convert_command
from ckptdoctor.rules.messages import SHOW, Message, Way
from ckptdoctor.rules.structure import sets
from ckptdoctor.rules.structure.sets import BESIDE
from ckptdoctor.rules.when import nested_weights
from ckptdoctor.shell import word

_WEIGHTS = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}
_OTHERS = {"fc.weight": T((2, 4), value=0.5), "fc.bias": T((2,), value=0.5)}
ALSO = ("W302",)
MESSAGES = (
    Message(
        ("KeyError: '",),
        'the program looks for the weights under "{key}"; in this file they are elsewhere, or at the top',
        (SHOW,),
        among=("load", "ckpt", "checkpoint"),
        then=r"(?P<key>state_dict|params_ema|params|model_state_dict|model_state|model|net|network|module|weights|ema"
        r"|generator|g_ema|teacher|student)'",
    ),
)
SICK = (
    Example("weights in a training checkpoint", {"epoch": 3, "state_dict": _WEIGHTS, "lr": 0.1}),
    Example("the target expects bare weights", {"epoch": 3, "model": _WEIGHTS}, like=_WEIGHTS),
    Example("weights and statistics", {"model": _WEIGHTS, "normalizer": {"mean": T((3,)), "std": T((3,))}}),
    Example("two sets for the target", {"model": _WEIGHTS, "best": _OTHERS}, like=_WEIGHTS),
    Example("one set twice for the target", {"model": _WEIGHTS, "best": _WEIGHTS}, like=_WEIGHTS),
)
HEALTHY = (
    Example("bare weights", _WEIGHTS),
    Example("two networks", {"generator": _WEIGHTS, "discriminator": {"conv.weight": T((4, 3, 1, 1))}}),
    Example("one network twice", {"model": _WEIGHTS, "model_ema": _WEIGHTS}),
    Example("the target is nested the same way", {"epoch": 3, "model": _WEIGHTS}, like={"epoch": 1, "model": _WEIGHTS}),
)

# folders whose branches are files: "model" is no key that anybody wrote
_OWN_FILE = frozenset({"Hugging Face Trainer checkpoint", "Accelerate checkpoint"})

_NAMED = 5  # sets of weights that are named before they are only counted


@rule("W301", "nested-state-dict", Severity.INFO, when=nested_weights)
def nested_state_dict(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report weights below the top of the file."""
    if isinstance(subject, Comparison):
        if subject.nested and subject.state_dict is not None and subject.renamed.fits:
            found = [subject.state_dict, *subject.rivals]
            yield _problem(subject.checkpoint, found, Severity.WARNING, subject.reference)
        return
    found = [] if subject.format in _OWN_FILE else list(weight_sets(subject))
    if found and all(each.path for each in found) and not _several(subject):
        yield _problem(subject, found, Severity.INFO)


def _several(checkpoint: Checkpoint) -> bool:
    """Return whether W302 or W304 speak of the sets of weights: of one network more than once, or of several."""
    found = networks(checkpoint)
    return len(found) > 1 or any(len(network.sets) > 1 for network in found)


def _problem(
    checkpoint: Checkpoint, found: Sequence[StateDict], severity: Severity, wanted: Reference | None = None
) -> Problem:
    first = found[0]
    where = wording.listed([f'"{show_path(each.path)}"' for each in found[:_NAMED]])
    more = wording.beyond(len(found) - _NAMED)
    choices = found if len(found) > 1 else _same_network(checkpoint, first)
    several = len(choices) > 1 and not _are_one(choices)
    lie = f"{wording.plural(len(found), 'set')} of weights are" if len(found) > 1 else "the weights are"
    cause = "load_state_dict expects the inner dict."
    if wanted is not None:
        cause = f"{wanted.source} has its weights elsewhere. {cause}"
    advice, commands = _how_to_load(checkpoint, first.path)
    if several:
        advice, commands = (
            "The file does not show which one you need. Choose:",
            sets.commands(checkpoint, choices, wanted),
        )
    return Problem(
        message=f"{lie} under {where}{more}",
        cause=cause,
        torch_says=_torch_says(checkpoint, first, wanted),
        advice=advice,
        keys=tuple([each.path for each in found]),
        location=Location(path=first.path),
        fix=None if several else _take(first.path),
        severity=severity,
        commands=commands,
    )


def _same_network(checkpoint: Checkpoint, one: StateDict) -> Sequence[StateDict]:
    """Return all sets of weights of the network that this is one of."""
    return next((each.sets for each in networks(checkpoint) if any(one is other for other in each.sets)), (one,))


def _how_to_load(checkpoint: Checkpoint, path: KeyPath) -> tuple[str, tuple[str, ...]]:
    if not is_address(checkpoint.path) and os.path.isdir(checkpoint.path):
        root = word(show_path(path))
        return "convert writes them as a file of their own:", (
            convert_command(checkpoint.path, options=f"--root {root}"),
        )
    return f"Load them with torch.load(path){_subscripts(path)}.", ()


def _take(path: KeyPath) -> Fix:
    place = show_path(path)
    return Fix(f"keep only {place}", (TakeRoot(path),), Safety.UNSAFE, f"--root {word(place)}")


def _torch_says(checkpoint: Checkpoint, first: StateDict, wanted: Reference | None) -> tuple[str, ...]:
    tree = checkpoint.tree
    if isinstance(tree, Items):
        return (f"Expected state_dict to be dict-like, got <class '{tree.kind}'>.",)
    missing = wording.missing_line(wanted.tensors if wanted is not None else map(names.bare, names.keys_of(first)))
    if not isinstance(tree, Mapping) or not tree.entries:
        return (missing,)
    return (missing, wording.unexpected_line([show_part(part) for part, _ in tree.entries]))


def _subscripts(path: KeyPath) -> str:
    return "".join([f"[{part}]" if isinstance(part, int) else f'["{show_part(part)}"]' for part in path])


# where training code keeps the weights of a model, the likeliest first
_CONTAINERS = (
    *("state_dict", "model_state_dict", "model", "net", "network", "params_ema", "params", "module", "weights"),
    *("model_state", "generator", "ema", "g_ema"),
)


@judges(Turn.FILE, general=2)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """The training checkpoint was given to load_state_dict whole."""
    top = rest.top
    container = next((name for name in _CONTAINERS if name in top), None)
    named = container is not None and container.endswith("state_dict")
    if container is None or not (rest.missing or top & BESIDE or named):
        return
    take = f"ckptdoctor fix FILE --root {container} --auto TARGET"
    yield Cause(
        f'the file is a training checkpoint; the weights are one level down, in "{container}"',
        Repair.BY_HAND,
        (Way("load it with", f'model.load_state_dict(weights["{container}"])'), Way("or extract them", take)),
        missing=rest.missing,
        unexpected=top,
    )


def _are_one(sets: Sequence[StateDict]) -> bool:
    """Return whether all sets hold the same values under the same names, as far as storages and checksums tell."""
    first, *others = [{each.key: each for each in one.tensors} for one in sets]
    return all(
        other.keys() == first.keys()
        and all(is_one(first[key], other[key]) or same_checksums(first[key], other[key]) is True for key in first)
        for other in others
    )
