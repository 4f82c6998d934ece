"""The state dict is that of a model with an adapter in it: base layers and adapter are side by side.

Meaning
    ``model.state_dict()`` of a model that peft wrapped was saved in full: its keys begin with ``base_model.model.``, a
    layer with an adapter holds its own weights in ``base_layer``, and the adapter's tensors are next to them.

Why it matters
    The model itself has none of these names, and peft does not look for the base in an adapter. Only the adapter's
    tensors were trained: a layer works as ``W + lora_alpha / r · B A``.

Symptoms
    Missing key(s) in state_dict: "layers.0.q_proj.weight", …
    Unexpected key(s) in state_dict: "base_model.model.layers.0.q_proj.base_layer.weight",
    "base_model.model.layers.0.q_proj.lora_A.default.weight", …

Detection
    A module has tensors of one of peft's tuners, and weights of its own next to them. Biases and embeddings that peft
    saves with an adapter do not count. With a reference that has adapters itself nothing is wrong.

Repair
    ``ckptdoctor fix FILE --select L906 --unsafe-fixes`` gives the state dict of the base model: the prefix and
    ``base_layer`` are removed from the keys. Unsafe: the adapter, and with it the training, is left out, unless its
    ``lora_B`` are all zero or ``merge_adapter()`` had been called. Layers that were trained in full
    (``modules_to_save``) are in the file twice: choose one of the two first, with the commands that the finding gives.
    Since it leaves out trained weights, ``check`` does not print this command.

    To keep what was trained, merge: ``ckptdoctor fix FILE --merge-adapter adapter_config.json``. ``lora_alpha`` is not
    in any tensor, but in that file; if the file is lost, give it as ``--merge-adapter alpha=16``. The sum is computed
    in float64 and rounded once; peft's own ``merge_and_unload`` rounds the product, its multiple and the sum, so the
    last digits may differ. The adapter cannot be recovered from the sum. An adapter in a folder of its own is added to
    its base in the same way: ``ckptdoctor fix BASE --merge-adapter FOLDER``. DoRA, LoHa, LoKr and others are not
    merged: peft's ``merge_and_unload`` does it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict, Tensor
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.edits import Fix, Safety
from ckptdoctor.facts.adapters import Adapter, adapter_in, base_name, has_adapters
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, Odict, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.renames import how_many, rename_fix
from ckptdoctor.rules.kit.weight_forms import WeightForm, changes
from ckptdoctor.rules.messages import CHECK, NO_MODULE, Way, unknown_key
from ckptdoctor.rules.signs import Sign
from ckptdoctor.rules.when import adapter_keys
from ckptdoctor.shell import quote

_LEAD = "base_model.model."
_Q = f"{_LEAD}layers.0.q_proj"
_WRAPPED: dict[str, object] = {
    f"{_LEAD}emb.weight": T((9, 4)),
    f"{_Q}.base_layer.weight": T((4, 4)),
    f"{_Q}.lora_A.default.weight": T((2, 4)),
    f"{_Q}.lora_B.default.weight": T((4, 2)),
    f"{_LEAD}head.weight": T((9, 4)),
}
_TWICE: dict[str, object] = {
    f"{_LEAD}score.original_module.weight": T((9, 4)),
    f"{_LEAD}score.modules_to_save.default.weight": T((9, 4)),
}
_BASE = {"emb.weight": T((9, 4)), "layers.0.q_proj.weight": T((4, 4)), "head.weight": T((9, 4))}
_ADAPTER = {f"{_Q}.lora_A.weight": T((2, 4)), f"{_Q}.lora_B.weight": T((4, 2))}
_IN_IT = (
    "the file has layers of an adapter (LoRA) in it ({key}): it was saved from a PEFT model without merging, "
    "and the program expects a plain model"
)
_UNLOAD = Way("merge before saving", "model = model.merge_and_unload()")
ALSO = ("L901", "L902", "L909")
MESSAGES = (
    *unknown_key(r"base_model[\w.]{0,300}", _IN_IT, (_UNLOAD, CHECK), says=(NO_MODULE,)),
    *unknown_key(r"[\w.]{0,400}?(?:lora_[AB]|base_layer)[\w.]{0,100}", _IN_IT, (_UNLOAD, CHECK), ("L901",), general=1),
)
_SIDE_BY_SIDE = (
    "the file was saved from a model with LoRA layers in it (PEFT): adapter and base are side by side, and not merged"
)
_TO_MERGE = (
    Way("merge them, with the settings of the adapter", "ckptdoctor fix FILE --merge-adapter adapter_config.json"),
    Way("or in the model that was saved", "model = model.merge_and_unload()"),
)
SIGNS = (
    Sign(
        _SIDE_BY_SIDE,
        Repair.BY_HAND,
        _TO_MERGE,
        unexpected=r".*(?:\.base_layer\.|lora_[AB]\.).*",
        general=4,
    ),
    Sign(
        "the model has LoRA layers in it (PEFT, which calls the weights under them base_layer), and the file "
        "lacks these weights: it holds the adapter alone, or the base model alone, or was saved by PEFT "
        "before 0.6. No command makes a complete model from an adapter alone: that needs its base too",
        Repair.BY_HAND,
        (
            Way("see which of them the file is", "ckptdoctor check FILE"),
            Way("if it is an adapter", "peft.PeftModel.from_pretrained(model, FOLDER)"),
        ),
        missing=r"(?:.*\.)?base_layer\..*",
        general=4,
    ),
)
SICK = (
    Example("a complete model with its adapter", Odict(_WRAPPED, {"": {"version": 1}, _Q: {"version": 1}})),
    Example("within a training checkpoint", {"epoch": 2, "model": _WRAPPED}),
    Example("for the base model", _WRAPPED, like=_BASE),
    Example("with a layer that was trained in full", {**_WRAPPED, **_TWICE}),
    Example("with the magnitudes of DoRA", {**_WRAPPED, f"{_Q}.lora_magnitude_vector.default.weight": T((4,))}),
    Example(
        "as old versions of peft wrapped layers",
        {f"{_Q}.weight": T((4, 4)), f"{_Q}.lora_A.default.weight": T((2, 4)), f"{_Q}.lora_B.default.weight": T((4, 2))},
    ),
)
HEALTHY = (
    Example("an adapter", _ADAPTER),
    Example("an adapter with biases", {**_ADAPTER, f"{_Q}.base_layer.bias": T((4,))}),
    Example(
        "an adapter with its embeddings",
        {
            f"{_LEAD}model.embed_tokens.lora_embedding_A": T((2, 9)),
            f"{_LEAD}model.embed_tokens.lora_embedding_B": T((4, 2)),
            f"{_LEAD}model.embed_tokens.base_layer.weight": T((9, 4)),
        },
    ),
    Example("a target with an adapter", _WRAPPED, like=_WRAPPED),
    Example("the base model", _BASE, like=_BASE),
)
_MERGE = "To keep what was trained, add it to the weights, W + lora_alpha / r · B A"
_CONFIG = "adapter_config.json"
# what ``--merge-adapter`` adds, and what peft calls the parameters of others
_MERGED = frozenset({"lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "ia3_l"})
_OTHERS = (("lora_magnitude_vector", "DoRA"), ("hada_", "LoHa"), ("lokr_", "LoKr"), ("oft_", "OFT"), ("vera_", "VeRA"))
_BY_PEFT = (
    "Load it with peft into the model with its adapter, and save the result of merge_and_unload(): that "
    "needs the adapter_config.json."
)
_SHOWN = 3  # parameters that a sentence names
_TWICE_HERE = (
    "Some layers are here twice, before and after training: give one of the two the name of the layer first. "
    "Then check shows how to merge the adapter."
)


@rule("L906", "adapter-not-merged", Severity.ERROR, when=adapter_keys)
def adapter_not_merged(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report base layers with adapters next to them."""
    checkpoint = subject
    if isinstance(subject, Comparison):
        if has_adapters(subject.reference.tensors):
            return
        checkpoint = subject.checkpoint
    assert isinstance(checkpoint, Checkpoint)
    for state_dict in checkpoint.state_dicts:
        adapter = adapter_in(state_dict) if state_dict.role in WEIGHTS else None
        if adapter is not None and adapter.wrapped:
            yield _problem(state_dict, adapter, checkpoint.path)


def _problem(state_dict: StateDict, adapter: Adapter, path: str) -> Problem:
    going = [tensor for tensor in state_dict.tensors if tensor.key in adapter.parts or tensor.key in adapter.copies]
    gone = {tensor.key for tensor in going}
    renamed = [key for key in state_dict.keys if key not in gone and base_name(key) != key]
    modules = wording.plural(len(adapter.wrapped), "layer")
    fix, advice = (None, _TWICE_HERE) if adapter.copies else _base_fix(state_dict, going)
    more, commands = ("", _choice(adapter)) if adapter.copies else _merging(adapter, path)
    return Problem(
        message=f"{how_many(len(going), state_dict)} {'is' if len(going) == 1 else 'are'} an adapter on {modules}, "
        "whose own weights are next to it",
        cause="Saved from a model that peft wrapped. The model itself has none of these names, and with "
        "strict=False loads next to nothing; only the adapter was trained.",
        torch_says=(
            *((wording.missing_line([base_name(key) for key in renamed]),) if renamed else ()),
            wording.unexpected_line([*renamed, *[tensor.key for tensor in going]]),
        ),
        advice=f"{advice} {more}".strip(),
        keys=tuple([tensor.path for tensor in going]),
        location=Location(path=state_dict.path),
        fix=fix,
        commands=commands,
    )


def _base_fix(state_dict: StateDict, going: list[Tensor]) -> tuple[Fix | None, str]:
    title = f"leave out the adapter ({wording.plural(len(going), 'tensor')}) and give the base model its names"
    return rename_fix(state_dict, base_name, title, Safety.UNSAFE, "--select L906", going)


def _merging(adapter: Adapter, path: str) -> tuple[str, tuple[str, ...]]:
    """Return how to add the adapter to its base: by the command where the file with lora_alpha is there.

    What ``repair.merge_adapter`` does not know is peft's to merge.
    """
    kinds = {part.parameter for part in adapter.parts.values()}
    if not kinds <= _MERGED:
        named = next((name for stem, name in _OTHERS if any(each.startswith(stem) for each in kinds)), "")
        what = f"It is {named}, and" if named else f"It has {', '.join(sorted(kinds - _MERGED)[:_SHOWN])}, and"
        return f"{what} ckptdoctor merges only LoRA and IA3. {_BY_PEFT}", ()
    config = os.path.join(os.path.dirname(path), _CONFIG)
    if os.path.isfile(config):
        return f"{_MERGE}:", (f"ckptdoctor fix FILE --merge-adapter {quote(config)}",)
    said = "lora_alpha is not in any tensor, and its adapter_config.json is not here. If you know it (N)"
    return f"{_MERGE}; {said}:", ("ckptdoctor fix FILE --merge-adapter alpha=N",)


def _choice(adapter: Adapter) -> tuple[str, ...]:
    """Return the commands that give one of the two states of a layer its name: nobody else can know which is wanted.

    The other one stays, under a name of its own.
    """
    names = list(dict.fromkeys([part.adapter for part in adapter.copies.values()]))
    trained = [f"--rename '\\.modules_to_save\\.{name}='" for name in names if re.fullmatch(r"\w+", name)]
    return (
        f"ckptdoctor fix FILE --rename '\\.original_module=.untrained' {' '.join(trained)}",
        "ckptdoctor fix FILE --rename '\\.modules_to_save\\.=.trained_' --rename '\\.original_module='",
    )


@judges(Turn.FILE, general=3)
def of_an_adapter_alone(rest: IncompatibleKeys) -> Iterator[Cause]:
    """All that is unexpected is an adapter's, and the target is a model."""
    adapter = [key for key in rest.unexpected if any(part in key for part in (".lora_", ".hada_", ".lokr_"))]
    if not adapter or len(adapter) < len(rest.unexpected) or any("lora_" in key for key in rest.missing):
        return
    meaning = (
        "the file holds an adapter (LoRA), which adds to the weights of a model and is not one; no command "
        "makes a model from it alone"
    )
    load = "peft.PeftModel.from_pretrained(model, FOLDER)  # the folder with the adapter and its adapter_config.json"
    ways = (Way("load it onto the base model", load),)
    yield Cause(meaning, Repair.NONE, ways, missing=rest.missing, unexpected=adapter)


@judges(Turn.FORM)
def of_wrapped_layers(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Layers have an adapter next to them, on one side only."""
    if rest.unexpected and all(key.startswith(_LEAD) for key in rest.unexpected):
        inner = {key.removeprefix(_LEAD): key for key in rest.unexpected}
        if any(change.here is WeightForm.LORA for change in changes(rest.missing, inner)):
            yield Cause(_SIDE_BY_SIDE, Repair.BY_HAND, _TO_MERGE, missing=rest.missing, unexpected=rest.unexpected)
            return
    for change in changes(rest.missing, rest.unexpected):
        if change.here is WeightForm.LORA:
            yield change.cause(_SIDE_BY_SIDE, Repair.BY_HAND, _TO_MERGE)
        elif change.there is WeightForm.LORA:
            meaning = "the model has LoRA layers in it (PEFT), and the file was saved from one without"
            ways = (Way("load before peft.get_peft_model", "model.load_state_dict(weights)"),)
            yield change.cause(meaning, Repair.BY_HAND, ways)
