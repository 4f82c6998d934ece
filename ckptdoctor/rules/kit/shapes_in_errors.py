"""The shapes in an error say something about their cause: each pair goes to the rule that speaks of it.

Of a file it is decided with the shapes that fit (``match.shapes.causes``). An error does not name them: how large a
part of the model differs, what is behind a layer and which bias fits cannot be asked. What a pair of shapes says by
itself, and what pairs say of each other, is asked in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.match.shapes.causes import inflated, input_channels
from ckptdoctor.match.shapes.heads import heads, vocabulary
from ckptdoctor.match.shapes.layer_names import is_position, is_vocabulary
from ckptdoctor.match.shapes.pairs import Pair, same_but_for_ones
from ckptdoctor.match.shapes.positions import positions
from ckptdoctor.rules.incompatible_keys import IncompatibleKeys

# SpatialTransformer of Stable Diffusion: convolutions in version 1, linear layers in 2 and XL
_PROJECTION = re.compile(
    r"(?:.*\.)?(?:input_blocks|output_blocks|middle_block|down_blocks|up_blocks|mid_block)\..*\.proj_(?:in|out)\.weight"
)
# layers that tensor parallelism splits, as Megatron, Meta and transformers call them
_SPLIT = re.compile(
    r"(?:.*\.)?(?:(?:self_attention|attention|self_attn|attn)\.(?:dense|query_key_value|qkv_proj|[qkvo]_proj|w[qkvo])"
    r"|(?:mlp|feed_forward)\.(?:dense_h_to_4h|dense_4h_to_h|gate_proj|up_proj|down_proj|w[123])|linear_(?:qkv|proj|fc1|fc2)"
    r"|word_embeddings|embed_tokens|tok_embeddings|lm_head|output_layer)\.(?:weight|bias)"
)
# heads of language models, which have as many rows as there are tokens
_TOKEN_HEAD = re.compile(r"(?:.*\.)?(?:lm_head|embed_out|vocab\w*)(?:\..*)?")
_RANKS = {2, 4, 8, 16, 32, 64}
_FEW = 3  # pairs of several layers from which it is the whole model
_MANY = 8  # pairs beyond which it is so, of whatever layers they are
_OF_ANOTHER = ("S503", "S504", "S506", "S513")  # what another size of the model shows as, too


def pairs_for(rest: IncompatibleKeys, code: str) -> tuple[Pair, ...]:
    """Return the pairs of which the rule ``code`` speaks."""
    return _sorted(rest).get(code, ())


@cached_by_identity
def _sorted(rest: IncompatibleKeys) -> dict[str, tuple[Pair, ...]]:
    """Give each pair to the first rule that explains it: narrow causes say nothing where all sizes differ."""
    left = list(rest.mismatched)
    found: dict[str, tuple[Pair, ...]] = {}

    def take(code: str, pairs: Collection[Pair]) -> None:
        keys = {pair.key for pair in pairs}
        left[:] = [pair for pair in left if pair.key not in keys]
        if pairs:
            found[code] = (*found.get(code, ()), *pairs)

    wide = any(map(_is_width, left))
    biases = {pair.module for pair in left if pair.leaf == "bias"}  # which would say that it is not so
    take("S505", [pair for pair in left if pair.reversed and not _is_table(pair) and pair.module not in biases])
    take("S506", [pair for pair in left if same_but_for_ones(pair)])
    take("S502", _tables(left))
    take("S503", [pair for each in positions(left) for pair in each.pairs])
    take("S503", [pair for pair in left if is_position(pair.key) and len(pair.here) == len(pair.there)])
    first = input_channels(None, left)
    take("S504", [first] if first is not None else [])
    take("S513", inflated(left))
    if left and _ranks(left):
        take("S512", tuple(left))
    take("S501", [pair for head in heads(None, left) for pair in head.pairs])
    if wide or (left and any(code in found for code in _OF_ANOTHER)) or _many(left):
        others = [pair for code in _OF_ANOTHER for pair in found.pop(code, ())]
        keys = {pair.key for pair in (*left, *others)}
        take("S510", [pair for pair in rest.mismatched if pair.key in keys])
    take("R003", tuple(left))
    return found


def _tables(pairs: list[Pair]) -> list[Pair]:
    """Return tables of tokens; a head of a language model alone is one of them as well."""
    table = vocabulary(pairs)
    if table is not None:
        return list(table.pairs)
    return [
        pair for pair in pairs if _TOKEN_HEAD.fullmatch(pair.key) and pair.change is not None and pair.change[0] == 0
    ]


def _is_width(pair: Pair) -> bool:
    """Return whether a table has other columns, or a transformer is of another Stable Diffusion."""
    if _PROJECTION.fullmatch(pair.key):
        return True
    if not _is_table(pair) or len(pair.here) != len(pair.there):
        return False
    return len(pair.here) >= 2 and pair.here[-1] != pair.there[-1] and not _is_index(pair)


def _is_index(pair: Pair) -> bool:
    """Return whether it tells which position each pair of positions has, as relative_position_index does."""
    return is_position(pair.key) and len(set(pair.here)) == len(set(pair.there)) == 1


def _is_table(pair: Pair) -> bool:
    """Return whether it is called like an embedding."""
    return is_vocabulary(pair.key) or is_position(pair.key)


def _many(pairs: list[Pair]) -> bool:
    """Return whether so many layers differ that it is the whole model."""
    return len(pairs) > _MANY or (len(pairs) >= _FEW and len({pair.module for pair in pairs}) > 1)


def _ranks(pairs: list[Pair]) -> int:
    """Return how many ranks the file is one of, as the shapes of split layers tell, or 0 where they do not."""
    ratios = set()
    for pair in pairs:
        change = pair.change
        if change is None or not _SPLIT.fullmatch(pair.key) or not change[1] or change[2] % change[1]:
            return 0
        ratios.add(change[2] // change[1])
    return ratios.pop() if len(ratios) == 1 and ratios <= _RANKS else 0
