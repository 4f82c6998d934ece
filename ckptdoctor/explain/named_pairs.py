"""What it means, and what to do, where missing and unexpected keys are the same weights."""

from __future__ import annotations

from ckptdoctor.explain.cause import Cause
from ckptdoctor.explain.formats import Change, Form
from ckptdoctor.explain.pairs import Pairs
from ckptdoctor.rules.messages import Way
from ckptdoctor.rules.signs import Repair

_WEIGHT_NORM = (Form.OLD_WEIGHT_NORM, Form.NEW_WEIGHT_NORM)
_SPECTRAL_NORM = (Form.OLD_SPECTRAL_NORM, Form.NEW_SPECTRAL_NORM)
_NORMS = {
    **dict.fromkeys(_WEIGHT_NORM, ("N412", "weight norm")),
    **dict.fromkeys(_SPECTRAL_NORM, ("N413", "spectral norm")),
}
_SINCE = "as a parametrisation since torch 2.1, with hooks before"
_UNPRUNED = (
    'model.load_state_dict({key.removesuffix("_orig"): value * weights[key[:-5] + "_mask"] if key.endswith("_orig")'
    ' else value for key, value in weights.items() if not key.endswith("_mask")})'
)


def of_change(change: Change) -> Cause:
    """Weights that file and model keep in different ways."""
    here, there = change.here, change.there
    if Form.LORA in (here, there):
        return _lora(here)
    if here in _NORMS and there in _NORMS and _NORMS[here] == _NORMS[there]:
        code, norm = _NORMS[here]
        meaning = f"{norm} is kept in two ways ({_SINCE}): {here.value} in the file, {there.value} in the model"
        return Cause(code, meaning, Repair.SAFE)
    if here in _NORMS and there is Form.PLAIN:
        code, norm = _NORMS[here]
        meaning = f"the file keeps weights with {norm} ({here.value}), the model plain ones, which can be computed"
        return Cause(code, meaning, Repair.LOSS)
    if there in _NORMS and here is Form.PLAIN:
        code, norm = _NORMS[there]
        meaning = f"the model keeps weights with {norm} ({there.value}), the file plain ones"
        return Cause(code, meaning, Repair.BY_HAND, _first(f"load before the model gets its {norm}"))
    if here is Form.PRUNED and there is Form.PLAIN:
        meaning = (
            "the file was saved from a model while it was pruned (weight_orig and weight_mask), and the model is not;"
            " no command of ckptdoctor multiplies the two, but torch does"
        )
        return Cause("", meaning, Repair.BY_HAND, (Way("load it with", _UNPRUNED),))
    if there is Form.PRUNED and here is Form.PLAIN:
        meaning = "the model is pruned (weight_orig and weight_mask), the file was saved from one that is not"
        return Cause("", meaning, Repair.BY_HAND, _first("load before the model is pruned"))
    if there is Form.PLAIN:
        meaning = (
            "the file keeps weights as parametrisations (torch.nn.utils.parametrize), the model plain ones; no command"
            " of ckptdoctor computes them, for only the model's code knows how: load them into a model with the same"
            " parametrisations, and make its weights plain"
        )
        plain = 'torch.nn.utils.parametrize.remove_parametrizations(module, "weight")'
        return Cause("", meaning, Repair.BY_HAND, (Way("in the model that loads the file", plain),))
    if here is Form.PLAIN:
        meaning = "the model keeps weights as parametrisations (torch.nn.utils.parametrize), the file plain ones"
        return Cause("", meaning, Repair.BY_HAND, _first("load before the model gets its parametrisations"))
    meaning = (
        f"file and model keep weights in different ways: {here.value} in the file, {there.value} in the model; no"
        " command turns the one into the other"
    )
    return Cause("", meaning, Repair.NONE)


def _first(label: str) -> tuple[Way, ...]:
    return (Way(label, "model.load_state_dict(weights)"),)


def _lora(here: Form) -> Cause:
    if here is Form.LORA:
        meaning = (
            "the file was saved from a model with LoRA layers in it (PEFT): adapter and base lie side by side, and are"
            " not merged"
        )
        ways = (
            Way(
                "merge them, with the settings of the adapter",
                "ckptdoctor fix FILE --merge-adapter adapter_config.json",
            ),
            Way("or in the model that was saved", "model = model.merge_and_unload()"),
        )
        return Cause("L906", meaning, Repair.BY_HAND, ways)
    meaning = "the model has LoRA layers in it (PEFT), the file was saved from one without"
    return Cause("L906", meaning, Repair.BY_HAND, _first("load before peft.get_peft_model"))


def of_pairs(pairs: Pairs) -> Cause:
    """Weights that have other names."""
    told = pairs.told
    if pairs.kind == "wrapped":
        token = told.rpartition(".")[2]
        meaning = f"a part of the model was saved inside a wrapper, which put “{token}.” into its keys (“{told}.”)"
        return Cause("N401" if token == "module" else _OF_TOKEN[token], meaning, Repair.SAFE)
    if pairs.kind == "unwrapped":
        meaning = f"a part of the model is inside a wrapper (“{told}.”), the file was saved without it"
        return Cause("N402", meaning, Repair.SAFE)
    if pairs.kind == "replaced":
        meaning = f"somebody stripped “module.” with {told}, which takes it out of the middle of names as well"
        return Cause("N403", meaning, Repair.SAFE)
    if pairs.kind == "cut":
        return _cut(pairs)
    if pairs.kind == "gamma":
        meaning = (
            "the file names the parameters of its norms gamma and beta, as TensorFlow does; the model, weight and bias"
        )
        return Cause("N414", meaning, Repair.SAFE)
    if pairs.kind == "respelt":
        return Cause("N427", "the names differ only in case and separators", Repair.SAFE)
    if pairs.kind == "dotless":
        if pairs.told:
            meaning = f"the file holds averaged weights (LitEma, under “{pairs.told}”), whose names have no dots"
            return Cause("N428", meaning, Repair.LOSS)
        return Cause("W308", "the file's names are the model's without their dots", Repair.SAFE)
    sure = Repair.SAFE if pairs.certain else Repair.NONE
    if pairs.kind == "shifted":
        meaning = f"layers are counted from another number: {told} gives the model's names"
        return Cause("N424", meaning, Repair.NONE, _MODEL)
    meaning = f"a part has another name in the model: {told} gives the model's names"
    return Cause("N423", meaning, sure, () if pairs.certain else _MODEL)


_OF_TOKEN = {
    "_orig_mod": "N404",
    "_fsdp_wrapped_module": "N405",
    "_fpw_module": "N405",
    "_checkpoint_wrapped_module": "N407",
}
_MODEL = (Way("repair it", "ckptdoctor fix FILE --auto --model MODULE:CLASS"),)


def _cut(pairs: Pairs) -> Cause:
    letters = pairs.told.removeprefix("key[").removesuffix(":]")
    meaning = (
        f"{pairs.told} cut the first {letters} letters off every key, as is right only where all keys begin with"
        " “module.”: each unexpected key is what that leaves of a missing one"
    )
    if pairs.certain:
        return Cause("N403", meaning, Repair.SAFE)
    lost = len(pairs.missing) - len(pairs.unexpected)
    meaning += f". Several keys became one, so {lost:,} of the tensors are lost, and no command brings them back"
    save = 'weights = {key.removeprefix("module."): value for key, value in weights.items()}'
    return Cause("N403", meaning, Repair.NONE, (Way("strip the original file with", save),))
