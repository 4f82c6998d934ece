"""Adds an adapter to the weights that it works on: the edits of ``--merge-adapter``.

What peft's ``merge_and_unload`` does (peft 0.21, ``tuners/lora/layer.py`` and ``tuners/ia3/layer.py``), but in float64
and rounded once, where peft works in the adapter's dtype and rounds the product, its multiple and the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, StateDict, Tensor, show_path
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.edits import Compute, Edit
from ckptdoctor.edits.computing import LOW_RANK, SCALED, TURNED
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.adapters import BASE_LAYER, LEAD, adapter_in, base_name
from ckptdoctor.noun import noun
from ckptdoctor.repair.adapter_files import Donor, donor_in, donor_of, read_wanted
from ckptdoctor.repair.adapter_strength import IA3, Strength
from ckptdoctor.rules.kit.renames import rename_edits
from ckptdoctor.wording import and_so_on, plural

_SHOWN = 4  # names in a refusal
_PAIRS = (("lora_A", "lora_B"), ("lora_embedding_A", "lora_embedding_B"))
_VECTOR = "ia3_l"


def merge_edits(checkpoint: Checkpoint, text: str) -> list[Edit]:
    """Return the edits that merge the adapter which ``text``, the value of the option, names.

    Raises UsageError for text that is invalid, and RefusedError where the sum is not known to be the right one.
    """
    wanted = read_wanted(text)
    inside = next((each for each in weights_among(checkpoint.state_dicts) if _is_wrapped(each)), None)
    if inside is not None:
        donor = donor_in(checkpoint, inside, wanted)
        computed = list(_computed(inside, donor, checkpoint, inside=True))
        gone = [tensor.path for tensor in inside.tensors if tensor.key in donor.all_keys]
        renamed, collision = rename_edits(inside, base_name, gone)
        if collision is not None:
            raise RefusedError(f'"{collision[0]}" and "{collision[1]}" would both become "{collision[2]}".')
        return [*computed, *renamed]
    donor = donor_of(checkpoint, wanted)
    return list(_computed(_base(checkpoint, donor), donor, checkpoint, inside=False))


def _is_wrapped(state_dict: StateDict) -> bool:
    adapter = adapter_in(state_dict)
    return adapter is not None and bool(adapter.wrapped)


def _base(checkpoint: Checkpoint, donor: Donor) -> StateDict:
    """Return the one state dict that has all layers of the adapter. Raises RefusedError, with what would help."""
    layers = [module.removeprefix(LEAD) for module in donor.modules]
    found = weights_among(checkpoint.state_dicts)
    whole = [each for each in found if all(f"{layer}.weight" in _tensors(each) for layer in layers)]
    if len(whole) == 1:
        return whole[0]
    if whole:
        names = ", ".join(show_path(each.path) for each in whole)
        raise RefusedError(f"The layers of the adapter are in {names}. Choose one with --root.")
    keys = max(map(_tensors, found), key=lambda each: _present(each, layers), default={})
    missing = [layer for layer in layers if f"{layer}.weight" not in keys]
    lines = [
        f"{donor.path} is an adapter for another model: {plural(len(missing), 'layer')} of its {len(layers):,} "
        f"{'is' if len(missing) == 1 else 'are'} not in {checkpoint.path}.",
        f"  not there: {and_so_on(missing, _SHOWN, end=' …')}",
    ]
    raise RefusedError("\n".join([*lines, *_prefixes(keys, layers)]))


def _prefixes(keys: dict[str, Tensor], layers: Sequence[str]) -> Iterator[str]:
    """Yield the option that gives the keys the names which the adapter has, where one prefix is all the difference."""
    ending = f".{layers[0]}.weight"
    for key in keys:
        before = key[: -len(ending)]
        if key.endswith(ending) and all(f"{before}.{layer}.weight" in keys for layer in layers):
            yield f'  all of them are below "{before}": add --strip-prefix {before}'
            return
    before, _, rest = layers[0].partition(".")
    while rest:
        if all(layer.startswith(f"{before}.") and f"{layer[len(before) + 1 :]}.weight" in keys for layer in layers):
            yield f'  all of them are here without "{before}.": add --add-prefix {before}'
            return
        token, _, rest = rest.partition(".")
        before = f"{before}.{token}"


def _present(keys: dict[str, Tensor], layers: Sequence[str]) -> int:
    return sum(f"{layer}.weight" in keys for layer in layers)


def _tensors(state_dict: StateDict) -> dict[str, Tensor]:
    return {tensor.key: tensor for tensor in state_dict.tensors}


@noun
class _Layer:
    """A module with its weight, and the tensors of the adapter on it by their parameters."""

    module: str
    weight: Tensor
    bias: Tensor | None
    parts: dict[str, Tensor]


def _computed(state_dict: StateDict, donor: Donor, checkpoint: Checkpoint, *, inside: bool) -> Iterator[Compute]:
    layers = list(_layers(state_dict, donor, inside))
    turned = _turned(layers, donor.strength)
    for layer in layers:
        _require_one_owner(layer, checkpoint)
        if donor.strength.method == IA3:
            yield from _rescaled(layer, donor, turned)
        else:
            yield _added(layer, donor, turned)


def _layers(state_dict: StateDict, donor: Donor, inside: bool) -> Iterator[_Layer]:
    here = _tensors(state_dict)
    for module, parts in donor.by_module.items():
        owners = (f"{module}.{BASE_LAYER}", module) if inside else (module.removeprefix(LEAD),)
        owner = next((each for each in owners if f"{each}.weight" in here), None)
        if owner is None:
            raise RefusedError(f"There is no weight of {module} next to its adapter, so there is nothing to add it to.")
        yield _Layer(module.removeprefix(LEAD), here[f"{owner}.weight"], here.get(f"{owner}.bias"), parts)


def _added(layer: _Layer, donor: Donor, turned: bool) -> Compute:
    """Return ``W + scale * B·A``."""
    first, second = next((pair for pair in _PAIRS if pair[0] in layer.parts), ("", ""))
    if set(layer.parts) != {first, second}:
        raise RefusedError(f"The adapter on {layer.module} has {', '.join(layer.parts)}, not the two factors of LoRA.")
    rank = layer.parts[first].shape[0] if layer.parts[first].shape else 0
    if not rank:
        raise RefusedError(f"The adapter on {layer.module} has no elements: it adds nothing, and is not merged.")
    flat = turned and len(layer.weight.shape) == 2
    form = TURNED if first == "lora_embedding_A" or flat else LOW_RANK
    factors = [layer.parts[first], layer.parts[second]]
    return _edit(layer.weight, form, donor.strength.scale(layer.module, rank), donor, factors)


def _rescaled(layer: _Layer, donor: Donor, turned: bool) -> Iterator[Compute]:
    """Yield rows or columns times their factors, and the bias where the outputs are what is scaled."""
    vector = layer.parts[_VECTOR]
    outputs = _scales_outputs(layer, vector, turned, donor.strength)
    yield _edit(layer.weight, SCALED, float(outputs == turned), donor, [vector])
    if outputs and layer.bias is not None:
        yield _edit(layer.bias, SCALED, 0.0, donor, [vector])


def _scales_outputs(layer: _Layer, vector: Tensor, turned: bool, strength: Strength) -> bool:
    """Return whether the vector has a factor for each output: a linear layer's is then a column.

    A convolution's never is, and with groups the sizes do not show it: the config has to.
    """
    if len(layer.weight.shape) < 2:
        raise RefusedError(
            f"{layer.module} has the weight {list(layer.weight.shape)}: IA3 does not support such a layer."
        )
    rows, columns = layer.weight.shape[:2]
    if len(layer.weight.shape) == 2:
        inputs, outputs = (rows, columns) if turned else (columns, rows)
        fits = [vector.shape == (outputs, 1), vector.shape == (1, inputs)]
    else:
        inputs = strength.inputs is not None and layer.module.endswith(strength.inputs)
        known = strength.inputs is not None and vector.numel == (columns if inputs else rows)
        fits = [known and not inputs, known and inputs]
    if fits[0] == fits[1]:
        raise RefusedError(
            f"The factors of {layer.module} are {list(vector.shape)}, and its weight is "
            f"{list(layer.weight.shape)}: that does not show whether they belong to inputs or outputs. Merge "
            "the adapter with peft."
        )
    return fits[0]


def _edit(tensor: Tensor, form: str, number: float, donor: Donor, others: Sequence[Tensor]) -> Compute:
    place, key = tensor.path[:-1], tensor.key
    beside = tuple([(each.dtype.name, donor.view(each)) for each in others])
    return Compute((tensor.path,), key, form, tensor.dtype.name, place, (number,), beside)


def _turned(layers: Sequence[_Layer], strength: Strength) -> bool:
    """Return whether linear weights are kept transposed: the shapes show it, or else the config says it."""
    shown = {each for layer in layers for each in _shows(layer)}
    if len(shown) > 1:
        raise RefusedError("Some layers of the adapter fit their weights only transposed, and others only as they are.")
    return shown.pop() if shown else strength.turned


def _shows(layer: _Layer) -> Iterator[bool]:
    """Yield nothing for a square matrix, and for a layer that is not linear."""
    shape = layer.weight.shape
    if len(shape) != 2 or shape[0] == shape[1] or "lora_embedding_A" in layer.parts:
        return
    first, second = layer.parts.get("lora_A"), layer.parts.get("lora_B")
    if first is not None and second is not None and len(first.shape) == len(second.shape) == 2:
        sides = (second.shape[0], first.shape[1])
        if sides in (shape, shape[::-1]):
            yield sides != shape


def _require_one_owner(layer: _Layer, checkpoint: Checkpoint) -> None:
    """Raise RefusedError where the weight has a second name: whether that changes as well, nobody has said."""
    storage = layer.weight.storage
    for other in checkpoint.tensors if storage is not None else ():
        same = other.storage is not None and storage is not None and other.storage.key == storage.key
        if same and other.path != layer.weight.path and other.offset == layer.weight.offset and other.numel:
            raise RefusedError(
                f"{show_path(layer.weight.path)} is also {show_path(other.path)} (tied weights), and the "
                "adapter is on one of them. To change only that one, run --clone-shared first, in a separate "
                "repair."
            )
