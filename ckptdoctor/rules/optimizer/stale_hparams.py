"""The hyper-parameters of a Lightning checkpoint hold objects of your program.

Meaning
    ``save_hyperparameters()`` kept every argument of ``__init__``: a network, a loss, a tokenizer, an omegaconf config.
    The checkpoint holds them complete, next to the weights.

Why it matters
    ``load_from_checkpoint`` needs every class, in the version of that time, before it reaches the weights; a network
    among them is in the file a second time, with its values from the start of training.

Symptoms
    Weights only load failed.
    AttributeError: Can't get attribute 'Net' on <module '__main__'>
    TypeError: __init__() missing 1 required positional argument: 'net'

Detection
    Values in ``hyper_parameters`` and ``datamodule_hyper_parameters`` that are objects, in a file that Lightning wrote.
    Info only: if all classes are available, it loads.

Repair
    ``ckptdoctor fix FILE --select O762 --unsafe-fixes`` replaces each with the name of its class, as text;
    ``load_from_checkpoint(path, net=...)`` supplies the missing argument. Next time:
    ``save_hyperparameters(ignore=["net"])``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Named, Node, Opaque
from ckptdoctor.edits import Fix, Replace, Safety
from ckptdoctor.facts.optimizers import LIGHTNING, top
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, Obj, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import SHOW, Message, Way
from ckptdoctor.rules.when import more_than_weights

_MOST = 64  # objects that a repair turns into text
_NAMED = 3


def _saved(**settings: object) -> dict[str, object]:
    net = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}
    return {"pytorch-lightning_version": "2.4.0", "state_dict": net, "hyper_parameters": settings}


MESSAGES = (
    Message(
        ("__init__() missing",),
        "the arguments of the model are not in the checkpoint: its __init__ did not call save_hyperparameters()",
        (Way("name them", "MODEL.load_from_checkpoint(path, NAME=VALUE)"), SHOW),
        then=r"\d{1,3}requiredpositionalargument",
        near=("load_from_checkpoint", "_load_state", "core/saving.py"),
    ),
)
SICK = (
    Example("a network of your program", _saved(lr=0.1, net=Obj("nets.Net", {"training": True}))),
    Example("a class and an object", _saved(lr=0.1, tokenizer=Obj("tokens.Tokenizer", {"size": 3}), size=Obj("a.B"))),
)
HEALTHY = (
    Example("plain settings", _saved(lr=0.1, layers=[1, 2], name="adam")),
    Example("another program's", {"state_dict": {"w": T((2, 2))}, "hyper_parameters": {"net": Obj("nets.Net")}}),
)


@rule("O762", "stale-hparams", Severity.INFO, when=more_than_weights)
def stale_hparams(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report objects among the hyper-parameters."""
    entries = top(checkpoint)
    if LIGHTNING not in entries:
        return
    for place in HPARAMS:
        node = entries.get(place)
        if isinstance(node, Mapping):
            found = [((place, part), child) for part, child in node.entries if _is_object(child)]
            if found:
                yield _problem(place, found)


def _problem(place: str, found: Sequence[tuple[KeyPath, Node]]) -> Problem:
    named = wording.listed([f"{path[-1]} ({_class(node)})" for path, node in found], _NAMED)
    title = f"replace {wording.plural(len(found), 'object')} with the names of their classes"
    edits = tuple([Replace(path, _class(node)) for path, node in found])
    are = "is an object" if len(found) == 1 else "are objects"
    plain = all(isinstance(path[-1], str) for path, _ in found) and len(found) <= _MOST
    return Problem(
        message=f"{wording.plural(len(found), 'value')} in {place} {are}: {named}",
        cause="load_from_checkpoint needs their classes, in the version of that time, before it reaches the weights.",
        advice='Next time: save_hyperparameters(ignore=["net"]), and load_from_checkpoint(path, net=…).',
        keys=tuple([path for path, _ in found]),
        location=Location(path=(place,)),
        fix=Fix(title, edits, Safety.UNSAFE, "--select O762") if plain else None,
    )


def _is_object(node: Node) -> bool:
    """Return whether it is an object, or a class or function.

    Names of torch's own, such as dtypes, are plain enough.
    """
    return isinstance(node, Opaque) or (isinstance(node, Named) and not node.name.startswith("torch."))


def _class(node: Node) -> str:
    return node.class_name if isinstance(node, Opaque) else node.name if isinstance(node, Named) else ""


HPARAMS = ("hyper_parameters", "datamodule_hyper_parameters")
