"""Finds adapters in a state dict: which keys are theirs, on which module they are, and whether the base is there.

Keys are those of peft: ``<module>.<parameter>`` with an ending ``.weight`` where the parameter is a module of its own,
and with the adapter's name before that in what ``model.state_dict()`` gives. ``save_pretrained`` leaves the name out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from ckptdoctor.checkpoint import StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.facts import names
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex

# peft.PeftModel holds the tuner in base_model, and that the model in model
LEAD = "base_model.model."
# peft's tuners keep the layer that they sit on in this attribute
BASE_LAYER = "base_layer"
# peft.utils.ModulesToSaveWrapper: the layer as it was, and a trained copy for each adapter
ORIGINAL, TO_SAVE = "original_module", "modules_to_save"
# peft.utils.TrainableTokensWrapper holds the embedding as the base layer of this
_TOKENS = "token_adapter"
# peft.utils.constants.EMBEDDING_LAYER_NAMES, and what other architectures call the same two
EMBEDDINGS = frozenset({"embed_tokens", "lm_head", "wte", "word_embeddings", "embed_in", "embed_out", "shared"})

_NAMES = {
    "lora": "A B E embedding_A embedding_B magnitude_vector",
    "hada": "w1_a w1_b w2_a w2_b t1 t2",
    "lokr": "w1 w1_a w1_b w2 w2_a w2_b t2",
    "vera": "A B lambda_b lambda_d",
    "boft": "R s",
    "oft": "R embedding_R",
    "hira": "A B embedding_A embedding_B",
    "gralora": "A B A_general B_general",
    "delora": "A B lambda",
    "glora": "A B C D E",
    "randlora": "A B lambda gamma",
    "road": "theta alpha",
    "adamss": "A B",
    "deft": "P R",
    "frod": "lambda_l lambda_s_values",
    "lily": "A B router",
    "poly": "lora_A lora_B router",
    "pvera": "lambda_b lambda_d",
    "supertuning": "lora_A lora_B values",
    "vblora": "logits_A logits_B vector_bank",
}
_OTHERS = (
    *("ia3_l", "ln_tuning_layers", "c3a_kernel", "fourierft_spectrum", "miss_block", "hra_u", "shira_weight"),
    *("beft_bias", "psoft_R", "tinylora_v", "unilora_theta_d", "waveft_spectrum", "trainable_tokens_delta"),
)
# the ``adapter_layer_names`` of peft's tuners
PARAMETERS = frozenset([f"{stem}_{name}" for stem, tail in _NAMES.items() for name in tail.split()]).union(_OTHERS)
_ENDINGS = ("weight", "bias")
_FACTOR = regex(r"lora_(?:embedding_)?[AB]")


@noun
class AdapterPart:
    """One tensor of an adapter: ``parameter`` on ``module``. ``adapter`` is "" where the key does not name it.

    ``plain`` is the key as ``save_pretrained`` writes it: without the name.
    """

    module: str
    parameter: str
    adapter: str
    plain: str


@noun(eq=False)
class Adapter:
    """What of a state dict belongs to adapters.

    ``parts`` are their tensors by key, ``copies`` those of layers trained next to them (``modules_to_save``).
    ``wrapped`` are the modules whose base layer is in the state dict as well: then it is a whole model.
    """

    parts: Mapping[str, AdapterPart]
    copies: Mapping[str, AdapterPart]
    wrapped: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the adapters that keys hold, in their order."""
        both = (*self.parts.values(), *self.copies.values())
        return tuple(dict.fromkeys([part.adapter for part in both if part.adapter]))

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that the adapters sit on, as the keys call them, in their order."""
        return tuple(dict.fromkeys([part.module for part in self.parts.values()]))

    def factors(self, tensors: Iterable[Tensor]) -> Iterator[tuple[AdapterPart, Tensor]]:
        """Yield the low-rank matrices of LoRA among these tensors: each with the part that it is."""
        for tensor in tensors:
            part = self.parts.get(tensor.key)
            if part is not None and _FACTOR.fullmatch(part.parameter) and not tensor.key.endswith(".bias"):
                yield part, tensor


def is_adapter_file(path: str) -> bool:
    """Return whether the file has the name that peft gives to adapters, and looks for."""
    return os.path.basename(path) in names.ADAPTER_FILES


def part_of(key: str) -> AdapterPart | None:
    """Return the adapter's tensor that a key names, if it does."""
    tokens = key.rsplit(".", 3)
    for index in range(max(len(tokens) - 3, 0), len(tokens)):
        if tokens[index] in PARAMETERS:
            rest = tokens[index + 1 :]
            ending = rest.pop() if rest and rest[-1] in _ENDINGS else ""
            if len(rest) > 1 or (rest and not _is_name(rest[0])):
                return None
            module, parameter = ".".join(tokens[:index]), tokens[index]
            # a DoraLayer, whose weight peft saves under the name of the layer
            shown = "" if parameter == "lora_magnitude_vector" and rest else ending
            plain = ".".join([each for each in (module, parameter, shown) if each])
            return AdapterPart(module, parameter, rest[0] if rest else "", plain)
    return None


def _is_name(token: str) -> bool:
    """Return whether this may be what somebody called an adapter: the parts of a Sequential have numbers."""
    return token != "" and not token.isdigit()


def copy_of(key: str) -> AdapterPart | None:
    """Return the trained copy of a layer that a key names: ``score.modules_to_save.default.weight``."""
    if TO_SAVE not in key:
        return None
    module, found, rest = key.partition(f".{TO_SAVE}.")
    name, _, ending = rest.partition(".")
    if not found or not ending or not _is_name(name):
        return None
    return AdapterPart(module, TO_SAVE, name, f"{module}.{ending}")


@cached_by_identity
def adapter_in(state_dict: StateDict) -> Adapter | None:
    """Return the adapters in a state dict, or None where it holds none."""
    if not names.mentions(state_dict, names.ADAPTERS):
        return None
    keys = names.keys_of(state_dict)
    parts = {key: part for key in keys if (part := part_of(key)) is not None}
    if not parts:
        return None
    copies = {key: part for key in keys if (part := copy_of(key)) is not None}
    return Adapter(parts, copies, tuple(_wrapped(keys, parts)))


def _wrapped(keys: Iterable[str], parts: Mapping[str, AdapterPart]) -> Iterator[str]:
    """Return the modules with an adapter whose own weights are here, too.

    peft saves biases, and embeddings next to an adapter on them, under the name of the base layer; they have no
    adapter's name next to them then.
    """
    named = {part.module: part.adapter for part in parts.values()}
    found: dict[str, None] = {}
    for key in keys:
        owner, _, leaf = key.rpartition(".")
        if leaf == "weight" and key not in parts:
            module = owner.removesuffix(f".{BASE_LAYER}")
            if module not in named:
                continue
            if named[module] or (module != owner and module.rpartition(".")[2] not in EMBEDDINGS):
                found[module] = None
    return iter(found)


def base_name(key: str, lead: str = LEAD) -> str:
    """Return what the model that an adapter was put on calls this key of the wrapped one."""
    tokens = key.removeprefix(lead).split(".")
    kept = [
        token
        for index, token in enumerate(tokens)
        if index == len(tokens) - 1
        or not (token in (BASE_LAYER, ORIGINAL) or (token == _TOKENS and tokens[index + 1] == BASE_LAYER))
    ]
    return ".".join(kept)


def has_adapters(keys: Iterable[str]) -> bool:
    """Return whether some key is an adapter's."""
    return any(part_of(key) is not None for key in keys)


def foreign(state_dict: StateDict | None, wanted: Iterable[str]) -> Adapter | None:
    """Return the adapters in a state dict that is compared with a model without any.

    None where layers hold their own weights next to the matrices under their usual names (loralib): then the state dict
    is the model's, with something left over.
    """
    adapter = adapter_in(state_dict) if state_dict is not None else None
    if state_dict is None or adapter is None or has_adapters(wanted):
        return None
    modules = set() if adapter.wrapped else set(adapter.modules)
    own = (key.removesuffix(".weight") for key in names.keys_of(state_dict) if key.endswith(".weight"))
    return None if any(module in modules for module in own) else adapter
