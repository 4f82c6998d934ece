"""Buffers that models work out themselves from their sizes: told by name, dtype and shape, since no value is read."""

from __future__ import annotations

from collections.abc import Callable

from ckptdoctor.checkpoint.dtypes import DType

Shape = tuple[int, ...]

_ATTENTION = frozenset({"attn", "attention", "self_attn", "self_attention", "selfattention"})
_MASK_KINDS = frozenset({"bool", "uint", "float"})


def is_derived(key: str, shape: Shape, dtype: DType | None) -> bool:
    """Whether this is such a buffer; a dtype that is not known does not speak against it."""
    path, _, leaf = key.rpartition(".")
    parent = path.rpartition(".")[2].lower()
    known = _KNOWN.get(leaf)
    if known is None:
        return False
    kinds, fits = known
    return (dtype is None or dtype.kind in kinds) and fits(shape, parent)


def _row(shape: Shape, parent: str) -> bool:
    """``torch.arange(n)``, or the same expanded to (1, n)."""
    return len(shape) == 1 or (len(shape) == 2 and shape[0] == 1)


def _vector(shape: Shape, parent: str) -> bool:
    return len(shape) == 1


def _rope(shape: Shape, parent: str) -> bool:
    """``freqs`` is a parameter in some libraries; right under ``rope`` it is Meta's Llama's."""
    return len(shape) == 1 and parent == "rope"


def _table(shape: Shape, parent: str) -> bool:
    return 2 <= len(shape) <= 4


def _triangle(shape: Shape, parent: str) -> bool:
    """GPT-2's causal mask, a square on two dimensions of size 1, in an attention layer."""
    return parent in _ATTENTION and len(shape) == 4 and shape[:2] == (1, 1) and shape[2] == shape[3] > 1


def _square(shape: Shape, parent: str) -> bool:
    return 2 <= len(shape) <= 4 and shape[-1] == shape[-2] > 1


def _scalar(shape: Shape, parent: str) -> bool:
    return shape in ((), (1,)) and parent in _ATTENTION


def _index(shape: Shape, parent: str) -> bool:
    """Swin's is a square of window positions; torchvision's is the same in one dimension."""
    return len(shape) == 1 or (len(shape) == 2 and shape[0] == shape[1])


def _coordinates(shape: Shape, parent: str) -> bool:
    """Swin v2: (1, 2h - 1, 2w - 1, 2)."""
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
