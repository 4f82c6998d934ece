"""Knows projections that libraries hold in one tensor or apart: their names, and where the rows of each are."""

from __future__ import annotations

from ckptdoctor.errors import RefusedError
from ckptdoctor.noun import noun


@noun
class Projections:
    """What is fused: the names that the parts go by, in their usual order, and those of the fused one."""

    parts: tuple[tuple[str, ...], ...]
    fused: frozenset[str]


QKV = Projections(
    (
        ("q_proj", "k_proj", "v_proj"),
        ("query", "key", "value"),
        ("wq", "wk", "wv"),
        ("to_q", "to_k", "to_v"),
        ("q_lin", "k_lin", "v_lin"),
        ("query_proj", "key_proj", "value_proj"),
        ("linear_q", "linear_k", "linear_v"),
        ("q", "k", "v"),
    ),
    frozenset(
        ("in_proj", "qkv", "Wqkv", "wqkv", "c_attn", "query_key_value", "qkv_proj", "to_qkv", "W_pack", "linear_qkv")
    ),
)
GATE_UP = Projections(
    (("gate_proj", "up_proj"), ("w1", "w3"), ("w1", "w2"), ("gate", "up"), ("wi_0", "wi_1")),
    frozenset(("gate_up_proj", "gate_up", "w13", "w12", "wi", "gate_and_up_proj", "linear_fc1")),
)


# ---- the rows of queries, keys and values in a fused projection, for each layout that libraries use.
#
# The layout is never guessed: all of them have the same shape


Ranges = tuple[tuple[int, int], ...]  # (start, stop) of rows

QKV_LAYOUTS = ("q-k-v", "k-v-q", "per-head", "grouped")
HEAD_SIZES = (64, 128, 80, 96, 32, 256, 72, 40, 16, 8, 4, 2)  # of published models, the most frequent first
HEAD_BY_HEAD = QKV_LAYOUTS[2:]  # the layouts in which the size of a head matters


def rows(layout: str, heads: int, kv_heads: int, head_dim: int) -> dict[str, Ranges]:
    """Return rows of the fused projection that make up "q", "k" and "v", each in the order of its heads.

    - "q-k-v": all queries, all keys, all values (GPT-2, Phi-3, ``nn.MultiheadAttention``).
    - "k-v-q": all keys, all values, all queries.
    - "per-head": the query, key and value of one head after another (GPT-NeoX, BLOOM).
    - "grouped": the queries of a group, then its key and value, one group after another (Megatron, newer Falcon).

    Raises RefusedError for numbers of heads that this layout cannot have.
    """
    if layout not in QKV_LAYOUTS:
        raise RefusedError(f'"{layout}" is not a layout of queries, keys and values. Use {", ".join(QKV_LAYOUTS)}.')
    if min(heads, kv_heads, head_dim) < 1:
        raise RefusedError("Heads, key-value heads and the size of a head must be at least 1.")
    if heads % kv_heads:
        raise RefusedError(f"{heads:,} heads cannot share {kv_heads:,} key-value heads: the numbers do not divide.")
    if layout == "per-head" and heads != kv_heads:
        raise RefusedError(f'"per-head" needs as many key-value heads as heads: {kv_heads:,} are not {heads:,}.')
    if layout in ("per-head", "grouped"):
        return _grouped(kv_heads, heads // kv_heads * head_dim, head_dim)
    order = ("q", "k", "v") if layout == "q-k-v" else ("k", "v", "q")
    sizes = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}
    starts = {part: sum(sizes[before] for before in order[:place]) for place, part in enumerate(order)}
    return {part: ((starts[part], starts[part] + sizes[part]),) for part in ("q", "k", "v")}


def _grouped(groups: int, queries: int, head_dim: int) -> dict[str, Ranges]:
    """Return groups of ``queries`` rows of queries, and ``head_dim`` rows each of a key and a value."""
    places = {"q": (0, queries), "k": (queries, queries + head_dim), "v": (queries + head_dim, queries + 2 * head_dim)}
    width = queries + 2 * head_dim
    return {
        part: tuple([(group * width + start, group * width + stop) for group in range(groups)])
        for part, (start, stop) in places.items()
    }


def split_parts(ranges: dict[str, Ranges], names: dict[str, str]) -> tuple[tuple[str, int, int], ...]:
    """Return the parts of a ``Split`` into the keys ``names`` ("q" → its key)."""
    return tuple([(names[part], start, stop) for part in names for start, stop in ranges[part]])


def fuse_order(ranges: dict[str, Ranges], parts: tuple[str, ...] = ("q", "k", "v")) -> tuple[tuple[int, int, int], ...]:
    """Return the ``order`` of a ``Fuse`` of ``parts`` in their order: what ``Split`` with these ranges undoes."""
    pieces: list[tuple[int, int, int, int]] = []  # first row of the whole, number of the tensor, its rows
    for number, part in enumerate(parts):
        at = 0
        for start, stop in ranges[part]:
            pieces.append((start, number, at, at + stop - start))
            at += stop - start
    return tuple([(number, start, stop) for _, number, start, stop in sorted(pieces)])
