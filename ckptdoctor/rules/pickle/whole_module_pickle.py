"""A whole model was saved, not its state dict: loading it needs the code that it was made with.

Meaning
    ``torch.save(model)`` pickles the ``nn.Module`` with all its attributes. The file names the classes of the model and
    of every layer, and loading it imports them.

Why it matters
    The same classes must exist, under the same names, in the program that loads it: after a renaming, or in another
    repository, it fails. torch has rejected it since 2.6, and ``weights_only=False`` runs any code in the file.

Symptoms
    WeightsUnpickler error: Unsupported global: GLOBAL models.Net was not an allowed global by default.
    Can't get attribute 'Net' on <module '__main__' …
    No module named 'models'

Detection
    An object whose state holds ``_parameters`` and ``_modules``, as that of every ``nn.Module`` does.

Repair
    ``ckptdoctor fix FILE --select P204`` replaces the model with its state dict, made without the code: parameters and
    persistent buffers under the keys, in the order and with the shared storages of ``model.state_dict()``. Safe: no
    value changes. Anything that a state dict does not hold stays only in the original: classes, hooks, other
    attributes, and ``_metadata``, without which torch takes every layer for version 1, which all of torch.nn can load.
    A ``state_dict()`` or ``get_extra_state()`` of the class itself cannot be seen in the file. Where hooks would change
    the state dict, the repair needs ``--unsafe-fixes``. Quantized layers, which pack their weights, parameters without
    values yet, and tensors of other classes are left as they are: then use the code, if you trust the file:
    ``torch.save(torch.load(FILE, weights_only=False).state_dict(), NEW)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Mapping, Opaque
from ckptdoctor.edits import Fix, Flatten, Safety
from ckptdoctor.facts.globals import Blocked, BlockedCause, BlockedPlace, blocked_by, is_standard
from ckptdoctor.facts.whole_modules import (
    ModuleState,
    UnknownStateError,
    module_state,
    outermost_modules,
)
from ckptdoctor.findings import Severity
from ckptdoctor.noun import noun
from ckptdoctor.rules.examples import Example, Obj, Odict, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import blocked as refused
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.refusals import not_importable
from ckptdoctor.rules.messages import CHECK, Message, Way, Weight
from ckptdoctor.rules.when import unusual_names


def _module(class_name: str, parameters: dict[str, object], modules: dict[str, object], **more: object) -> Obj:
    state = {"training": True, "_parameters": parameters, "_buffers": {}, "_modules": modules}
    return Obj(class_name, {**state, **more})


_LAYER = _module("torch.nn.Linear", {"weight": T((2, 2), parameter=True), "bias": T((2,), parameter=True)}, {})
_TAKE_OUT = (
    Way("take the weights from", "model.state_dict()"),
    Way("or out of the file", "ckptdoctor fix FILE --select P204 --unsafe-fixes"),
)
MESSAGES = (
    Message(
        ("GLOBAL",),
        "the file holds a whole pickled model ({global}), not a state dict, and torch 2.6 and later load "
        "only tensors and plain values",
        (Way("extract the weights", "ckptdoctor fix FILE --select P204 --unsafe-fixes"),),
        then=r"(?P<global>(?:torch\.nn\.(?!parameter|functional|init|modules\.activation)|"
        r"torchvision\.models\.|timm\.models\.|models\.|ultralytics\.nn\.)"
        r"[\w.]{1,300}?)wasnotanallowedglobal",
        also=("P201", "P205"),
        general=1,
    ),
    Message(
        # inspect.getfile of Python, which torch.serialization asks for the source of each module in a pickle
        ("<module '__main__'> is a built-in class", "<module '__main__' (built-in)> is a built-in class"),
        "the whole model was pickled in a notebook or shell, and torch needs the source of its class, which "
        "does not exist: save its state dict",
        (CHECK, Way("extract the weights", "ckptdoctor fix FILE --select P204,P205 --unsafe-fixes")),
    ),
    Message(
        ("Can't get attribute", "Can not get attribute"),
        "the file names the class {name} of {module}, which the program that loads it does not have: either "
        "the whole model was pickled, or an object of the training script is in the file with the weights",
        (CHECK, Way("extract the weights", "ckptdoctor fix FILE --select P204,P205 --unsafe-fixes")),
        then=r"['‘\"](?P<name>[\w.]{1,200})['’\"]on<?module['‘\"](?P<module>[\w.]{1,200})",
        also=("P205", "P201"),
        general=1,
    ),
    Message(
        ("No module named '", "ModuleNotFoundError: No module named "),
        "the file names code in the module {module}, which the loading program does not have: the whole "
        "model was pickled, or an object of the training script is in the file with the weights",
        (CHECK, Way("extract the weights", "ckptdoctor fix FILE --select P204,P205 --unsafe-fixes")),
        then=r"(?P<module>(?:models?|nets?|networks?|utils|src|modules?|lib|core|archs?|backbones?|ultralytics)"
        r"(?:\.[\w.]{1,200})?)(?=['’\"]|$)",
        also=("P205", "P201"),
        general=1,
    ),
    Message(
        ("No module named '",),
        "loading the file needs the module {module}, which is not installed: the whole model was pickled, or "
        "an object of the training script is in the file with the weights",
        (CHECK, Way("extract the weights", "ckptdoctor fix FILE --select P204,P205 --unsafe-fixes")),
        then=r"(?P<module>[\w.]{1,200})'",
        near=("torch.load", "torch/serialization", "pickle_module", "unpickler.load", "find_class"),
        also=("P205", "P201", "P210"),
        general=1,
    ),
    Message(
        ("ModuleNotFoundError: No module named '", "ImportError: No module named "),
        "if the program was loading a checkpoint with torch.load or pickle, the file names code in the "
        "module {module}: the whole model was pickled, or an object of the training script with the weights. "
        "Otherwise a package is missing, and the checkpoint is not the cause",
        (Way("see what the file asks for", "ckptdoctor check FILE"),),
        then=r"'?(?P<module>[A-Za-z_][\w.]{0,200})(?=['’]|$)",
        also=("P205", "P210", "P201"),
        weight=Weight.ECHO,
        general=1,
    ),
    Message(
        ("' object is not subscriptable",),
        "the loaded object is a whole pickled model, and the program expects a dict of weights",
        _TAKE_OUT,
        near=("torch.load", "checkpoint[", "ckpt[", "state_dict["),
    ),
    Message(
        ("Expected state_dict to be dict-like, got <class '",),
        "load_state_dict was given an object of the class {kind}, most likely the whole model instead of its "
        "state dict",
        _TAKE_OUT,
        then=r"(?P<kind>[\w.]{1,200})'",
        also=("W305",),
        general=1,
    ),
    Message(
        ("object has no attribute 'copy'",),
        "the file holds a whole model rather than its state dict",
        _TAKE_OUT,
        near=("in load_state_dict",),
        also=("W305",),
    ),
)
SICK = (
    Example("a model of a user-defined class", {"model": _module("models.Net", {}, {"fc": _LAYER}), "epoch": 3}),
    Example("a model as the whole file", _module("torch.nn.Sequential", {}, {"0": _LAYER})),
    Example("a wrapped model", _module("torch.nn.DataParallel", {}, {"module": _LAYER}, device_ids=[0])),
    Example("a model with hooks", _module("models.Net", {}, {"fc": _LAYER}, _state_dict_hooks={1: Obj("models.hook")})),
    Example("a model without values", _module("models.Net", {"w": Obj("torch.nn.UninitializedParameter")}, {})),
)
HEALTHY = (Example("its state dict", Odict({"fc.weight": T((2, 2)), "fc.bias": T((2,))}, {"": {"version": 1}})),)


@noun
class _Model:
    """A model in the file with its state dict, or with the reason why that cannot be told."""

    place: BlockedPlace
    module: Opaque
    state: ModuleState | None
    reason: str = ""


@rule("P204", "whole-module-pickle", Severity.ERROR, when=unusual_names)
def whole_module_pickle(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report a pickled nn.Module."""
    found = blocked_by(checkpoint, BlockedCause.MODULE)
    if not found:
        return
    models = list(_models(checkpoint))
    told = [model for model in models if model.state is not None and not model.state.doubts]
    doubtful = [model for model in models if model.state is not None and model.state.doubts]
    if told:
        yield _problem(found, told, _fix(told, Safety.SAFE))
    if doubtful:
        yield _problem(found, doubtful, _fix(doubtful, Safety.UNSAFE))
    unknown = [model for model in models if model.state is None]
    if unknown:
        yield _problem(found, unknown, None)


def _models(checkpoint: Checkpoint) -> Iterator[_Model]:
    """Yield the outermost modules: what was given to torch.save, or was under a key of its dict."""
    hidden = _has_hidden_storages(checkpoint)
    for path, module, plain in outermost_modules(checkpoint.tree):
        place = BlockedPlace(path, module)
        if not plain:
            yield _Model(place, module, None, "it belongs to an object that needs its own code as well")
        elif hidden and path:
            yield _Model(place, module, None, "the file also has storages that belong to no known tensor")
        else:
            yield _judged(place, module)


def _has_hidden_storages(checkpoint: Checkpoint) -> bool:
    """Return whether some storages belong to nothing that the tree shows, such as attributes of a Parameter."""
    seen: set[str] = set()
    stack = list(checkpoint.tensors)
    while stack:
        tensor = stack.pop()
        stack.extend(tensor.parts)
        if tensor.storage is not None:
            seen.add(tensor.storage.key)
    return any(storage.key not in seen for storage in checkpoint.storages)


def _judged(place: BlockedPlace, module: Opaque) -> _Model:
    try:
        state = module_state(module)
    except UnknownStateError as error:
        return _Model(place, module, None, str(error))
    if not state.tensors and not place.path:
        return _Model(place, module, None, "it has neither parameters nor buffers")
    return _Model(place, module, state)


def _fix(models: Sequence[_Model], safety: Safety) -> Fix:
    edits = tuple([Flatten(model.place.path, model.state.tensors) for model in models if model.state is not None])
    number = wording.plural(sum([len(edit.tensors) for edit in edits]), "tensor")
    hooks = ", without what its hooks do" if safety is Safety.UNSAFE else ""
    return Fix(
        f"replace it with its state dict, made without the code ({number}){hooks}", edits, safety, "--select P204"
    )


def _problem(found: Sequence[Blocked], models: Sequence[_Model], fix: Fix | None) -> Problem:
    own = [each for each in found if not each.path.startswith("torch.") and not is_standard(each.path)]
    needed = f", which must exist under the same names: {refused.classes(own)}." if own else "."
    return Problem(
        message=f"{_where(models)} is a whole model ({_class(models)}), not a state dict",
        cause=f"Saved with torch.save(model). Loading it imports the classes of the model{needed}{_doubt(models)}",
        torch_says=(*refused.refusal_lines(found[:1]), *[not_importable(each.path) for each in own[:1]]),
        advice=_WITH_CODE if fix is None else _left_behind(models),
        keys=tuple([model.place.path for model in models]),
        location=refused.first_use(found),
        fix=fix,
    )


_WITH_CODE = (
    "If you have the code and trust the file: torch.save(torch.load(FILE, weights_only=False).state_dict(), "
    '"weights.pt")'
)


def _where(models: Sequence[_Model]) -> str:
    places = [model.place for model in models]
    return refused.where(places[0]) if len(places) == 1 else f"each of {refused.listed_places(places)}"


def _class(models: Sequence[_Model]) -> str:
    return wording.abridged(dict.fromkeys([model.module.class_name for model in models]))


def _doubt(models: Sequence[_Model]) -> str:
    """Return what prevents a repair, or makes it uncertain."""
    for model in models:
        if model.state is None:
            return f" Without that code the state dict cannot be determined: {model.reason}."
        if model.state.doubts:
            return f" Only the code determines the state dict for certain: {model.state.doubts[0]}."
    return ""


def _left_behind(models: Sequence[_Model]) -> str:
    """Return the attributes of the user's own classes that no state dict holds, such as names and strides."""
    names: dict[str, None] = {}
    for model in models:
        state = model.module.state
        if isinstance(state, Mapping) and not model.module.class_name.startswith("torch."):
            own = [part for part, _ in state.entries if isinstance(part, str) and part[:1] != "_"]
            names.update(dict.fromkeys([part for part in own if part != "training"]))
    return f"Other attributes of the model stay only in the original: {wording.abridged(names)}." if names else ""
