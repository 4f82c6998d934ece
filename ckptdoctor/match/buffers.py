"""Recognises buffers that no target asks for: what models work out themselves, thop's counters, ``LitEma``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ckptdoctor.checkpoint import StateDict, Tensor
from ckptdoctor.checkpoint.dtypes import DType
from ckptdoctor.facts import names
from ckptdoctor.noun import noun

# ---- what models work out from their sizes: told by name, dtype and shape, since no value is read


Shape = tuple[int, ...]

_ATTENTION = frozenset({"attn", "attention", "self_attn", "self_attention", "selfattention"})
_MASK_KINDS = frozenset({"bool", "uint", "float"})


def is_derived(key: str, shape: Shape, dtype: DType | None) -> bool:
    """Return whether this is such a buffer; a dtype that is not known does not speak against it."""
    path, _, leaf = key.rpartition(".")
    parent = path.rpartition(".")[2].lower()
    known = _KNOWN.get(leaf)
    if known is None:
        return False
    kinds, fits = known
    return (dtype is None or dtype.kind in kinds) and fits(shape, parent)


def _row(shape: Shape, parent: str) -> bool:
    """Recognise ``torch.arange(n)``, or the same expanded to (1, n)."""
    return len(shape) == 1 or (len(shape) == 2 and shape[0] == 1)


def _vector(shape: Shape, parent: str) -> bool:
    return len(shape) == 1


def _rope(shape: Shape, parent: str) -> bool:
    """Recognise Meta's Llama's: right under ``rope``, while in some libraries ``freqs`` is a parameter."""
    return len(shape) == 1 and parent == "rope"


def _table(shape: Shape, parent: str) -> bool:
    return 2 <= len(shape) <= 4


def _triangle(shape: Shape, parent: str) -> bool:
    """Recognise GPT-2's causal mask, a square on two dimensions of size 1, in an attention layer."""
    return parent in _ATTENTION and len(shape) == 4 and shape[:2] == (1, 1) and shape[2] == shape[3] > 1


def _square(shape: Shape, parent: str) -> bool:
    return 2 <= len(shape) <= 4 and shape[-1] == shape[-2] > 1


def _scalar(shape: Shape, parent: str) -> bool:
    return shape in ((), (1,)) and parent in _ATTENTION


def _index(shape: Shape, parent: str) -> bool:
    """Recognise Swin's, a square of window positions, and torchvision's, the same in one dimension."""
    return len(shape) == 1 or (len(shape) == 2 and shape[0] == shape[1])


def _coordinates(shape: Shape, parent: str) -> bool:
    """Recognise Swin v2's: (1, 2h - 1, 2w - 1, 2)."""
    return len(shape) == 4 and shape[0] == 1 and shape[3] == 2


_INT, _FLOAT = frozenset({"int"}), frozenset({"float"})
# the last token → the kinds of dtype, and what the shape must be; from transformers, GPT-2 and its descendants
# (nanoGPT, minGPT), Meta's Llama and llama2.c, Swin in its publishers' code, timm and torchvision, and OpenAI's CLIP
_KNOWN: dict[str, tuple[frozenset[str], Callable[[Shape, str], bool]]] = {
    "position_ids": (_INT, _row),
    "inv_freq": (_FLOAT, _vector),
    "original_inv_freq": (_FLOAT, _vector),
    "freqs": (_FLOAT, _rope),
    "freqs_cos": (_FLOAT, _table),
    "freqs_sin": (_FLOAT, _table),
    "freqs_cis": (frozenset({"complex"}), _table),
    "cos_cached": (_FLOAT, _table),
    "sin_cached": (_FLOAT, _table),
    "bias": (_MASK_KINDS, _triangle),
    "mask": (_MASK_KINDS, _triangle),
    "masked_bias": (_FLOAT, _scalar),
    "relative_position_index": (_INT, _index),
    "relative_coords_table": (_FLOAT, _coordinates),
    "attn_mask": (_MASK_KINDS, _square),
    "causal_mask": (_MASK_KINDS, _square),
}


# ---- what thop.profile leaves in a model


def profiler_counters(state_dict: StateDict) -> tuple[Tensor, ...]:
    """Return its counters: one float64 each, on at least half as many modules as have tensors of their own; or none."""
    if not names.mentions(state_dict, names.COUNTERS):
        return ()
    found = [tensor for tensor in state_dict.tensors if tensor.key.endswith(names.COUNTERS) and _is_count(tensor)]
    gone = set(map(id, found))
    owners = {_module(tensor) for tensor in state_dict.tensors if id(tensor) not in gone}
    return tuple(found) if owners and 2 * len({_module(tensor) for tensor in found}) >= len(owners) else ()


def _is_count(tensor: Tensor) -> bool:
    return names.is_counter(tensor.key) and tensor.dtype.name == "float64" and tensor.numel == 1


def _module(tensor: Tensor) -> str:
    return tensor.key.rpartition(".")[0]


# ---- running averages as LitEma of latent diffusion keeps them: buffers without dots, and two counters


# ldm.modules.ema.LitEma registers these beside the average
DECAY, UPDATES = "decay", "num_updates"
_PARAMETERS = ("weight", "bias")


@noun
class LitEma:
    """The average under ``prefix`` ("" or with its dot): its counters, and its tensors (none: they are wanted)."""

    prefix: str
    counters: tuple[str, str]
    tensors: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """All of its keys."""
        return (*self.counters, *self.tensors)


def lit_ema(here: Mapping[str, Tensor], loose: Collection[str], whole: bool) -> LitEma | None:
    """Return the average among the keys that nobody wants.

    Where the rest is the ``whole`` of one, its counters alone are given.
    """
    for key in loose:
        if key.endswith(UPDATES):
            prefix = key[: -len(UPDATES)]
            found = _under(prefix, here, [each for each in loose if each.startswith(prefix)])
            if found is not None and (prefix if found.tensors else whole and not prefix):
                return found
    return None


def whole_or_part(state_dict: StateDict) -> LitEma | None:
    """Return the average that a state dict is, or that is in it under one name next to other weights."""
    if not names.mentions(state_dict, (UPDATES,)):
        return None
    keys = names.keys_of(state_dict)
    here = {tensor.key: tensor for tensor in state_dict.tensors if tensor.numel == 1}
    for prefix in [key[: -len(UPDATES)] for key in here if key.endswith(UPDATES)]:
        found = _under(prefix, here, [key for key in keys if key.startswith(prefix)])
        if found is not None and found.tensors and _named_so(found):
            return found
    return None


def _under(prefix: str, here: Mapping[str, Tensor], keys: Collection[str]) -> LitEma | None:
    """Return the average under a prefix, where there is nothing else."""
    counters = (prefix + DECAY, prefix + UPDATES)
    if (prefix and not prefix.endswith(".")) or not all(each in here for each in counters):
        return None
    decay, updates = here[counters[0]], here[counters[1]]
    if decay.numel != 1 or updates.numel != 1 or decay.dtype.kind != "float" or updates.dtype.kind != "int":
        return None
    tensors = tuple([key for key in keys if key not in counters])
    dotless = all("." not in key[len(prefix) :] for key in tensors)
    return LitEma(prefix, counters, tensors) if dotless else None


def _named_so(found: LitEma) -> bool:
    """Return whether most names end as those of parameters do, with something glued before it."""
    glued = [
        key
        for key in found.tensors
        if any(key.endswith(each) and key[len(found.prefix) :] != each for each in _PARAMETERS)
    ]
    return 2 * len(glued) > len(found.tensors)
