"""Describes GPT-2 of transformers, whose queries, keys and values are one matrix with its inputs first, or three.

``Conv1D`` multiplies from the right: ``c_attn.weight`` is (inputs, 3 × outputs), and all queries come first, then all
keys, then all values. Inputs first, it is nobody else's: the ``c_attn`` of GPTBigCode, which may go head by head, and
that of nanoGPT are linear layers. Where the other side says the rest as GPT-2 does, only a matrix that is not square
shows that it has linear layers: it counts where one does.
"""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.match.published.table import ROWS, TURNED, TURNED_ROWS, Published, Row, layer, row
from ckptdoctor.match.shapes.projections import QKV

_SOURCE = "transformers 5.23, models/gpt2/modeling_gpt2.py, GPT2Attention, and pytorch_utils.py, Conv1D"
_AT = "h.{}."


def _fused(one: str, other: Sequence[str]) -> tuple[Row, ...]:
    return (
        row(f"{one}.weight", tuple([f"{part}.weight" for part in other]), TURNED_ROWS),
        row(f"{one}.bias", tuple([f"{part}.bias" for part in other]), ROWS),
    )


def _turned(one: str, other: str) -> tuple[Row, ...]:
    return row(f"{one}.weight", f"{other}.weight", TURNED), row(f"{one}.bias", f"{other}.bias")


def _apart(parts: Sequence[str]) -> tuple[Row, ...]:
    return (
        *_fused("h.0.attn.c_attn", [f"h.0.attn.{part}" for part in parts]),
        *_fused(_AT + "attn.c_attn", [f"{_AT}attn.{part}" for part in parts]),
        *[each for key in ("attn.c_proj", "mlp.c_fc", "mlp.c_proj") for each in _turned(_AT + key, _AT + key)],
        *[each for key in (_AT + "ln_1", _AT + "ln_2", "ln_f") for each in layer(key, key)],
        *[each for key in ("wte", "wpe") for each in layer(key, key, ("weight",))],
    )


def _published(parts: Sequence[str]) -> Published:
    other = f"GPT-2 with {', '.join(parts)}"
    return Published("transformers' GPT-2", other, _SOURCE, _apart(parts), rest=True, shown=True)


GPT = tuple([_published(parts) for parts in QKV.parts])
