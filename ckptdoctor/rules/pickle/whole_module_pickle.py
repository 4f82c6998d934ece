"""A whole model was saved, not its state dict: loading it needs the code that it was made with.

What it means
    ``torch.save(model)`` pickles the ``nn.Module`` with all its attributes. The file names the classes of the model and
    of every layer, and loading it imports them.

Why it matters
    The same classes must exist, under the same names, in the program that loads it: after a renaming, or in another
    repository, it fails. torch refuses it since 2.6, and ``weights_only=False`` runs whatever the file says.

What you see
    WeightsUnpickler error: Unsupported global: GLOBAL models.Net was not an allowed global by default.
    Can't get attribute 'Net' on <module '__main__' …
    No module named 'models'

How it is found
    An object whose state holds ``_parameters`` and ``_modules``, as that of every ``nn.Module`` does.

Repair
    None yet. Where the code is at hand and the file is trusted:
    ``torch.save(torch.load(FILE, weights_only=False).state_dict(), NEW)``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Opaque
from ckptdoctor.facts.blocked_globals import Cause, Place, blocked_by, is_module
from ckptdoctor.facts.globals import is_standard
from ckptdoctor.findings import Severity
from ckptdoctor.rules import blocked as refused
from ckptdoctor.rules.examples import Example, Obj, Odict, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.refusals import not_importable


def _module(class_name: str, parameters: dict[str, object], modules: dict[str, object]) -> Obj:
    state = {"training": True, "_parameters": parameters, "_buffers": {}, "_modules": modules}
    return Obj(class_name, state)


_LAYER = _module("torch.nn.Linear", {"weight": T((2, 2), parameter=True), "bias": T((2,), parameter=True)}, {})
SICK = (
    Example("a model of the user's own class", {"model": _module("models.Net", {}, {"fc": _LAYER}), "epoch": 3}),
    Example("a model as the whole file", _module("torch.nn.Sequential", {}, {"0": _LAYER})),
)
HEALTHY = (Example("its state dict", Odict({"fc.weight": T((2, 2)), "fc.bias": T((2,))}, {"": {"version": 1}})),)


@rule("P204", "whole-module-pickle", Severity.ERROR)
def whole_module_pickle(checkpoint: Checkpoint) -> Iterator[Problem]:
    """A pickled nn.Module."""
    found = blocked_by(checkpoint, Cause.MODULE)
    if not found:
        return
    models = _models([place for each in found for place in each.places])
    own = [each for each in found if not each.path.startswith("torch.") and not is_standard(each.path)]
    needed = f", which must exist under the same names: {refused.classes(own)}." if own else "."
    yield Problem(
        message=f"{_where(models)} is a whole model ({_class(models)}), not a state dict",
        cause=f"Saved with torch.save(model). Loading it imports the classes of the model{needed}",
        torch_says=(*refused.lines(found[:1]), *[not_importable(each.path) for each in own[:1]]),
        advice=(
            "Where the code is at hand and you trust the file: "
            "torch.save(torch.load(FILE, weights_only=False).state_dict(), NEW)"
        ),
        keys=tuple([place.path for place in models]),
        location=refused.first_use(found),
    )


def _models(places: list[Place]) -> list[Place]:
    """The outermost modules: what was given to torch.save, or stood under a key of its dict."""
    modules = {place.path: place for place in places if isinstance(place.node, Opaque) and is_module(place.node)}
    return [place for path, place in modules.items() if not any(path[:end] in modules for end in range(len(path)))]


def _where(models: list[Place]) -> str:
    return refused.where(models[0]) if len(models) == 1 else f"each of {refused.places(models)}"


def _class(models: list[Place]) -> str:
    names = [place.node.class_name for place in models if isinstance(place.node, Opaque)]
    return ", ".join(dict.fromkeys(names))
