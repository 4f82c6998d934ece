"""Tells the layer that a key's name speaks of: embedding of tokens, table of positions, head, first layer.

Names are habits, not laws: what they say counts only together with shapes that agree.
"""

from __future__ import annotations

from ckptdoctor.match.shapes.pairs import block, words

_POSITIONS = ("pos_embed", "position_embed", "positional_embed", "pos_emb", "position_ids", "wpe", "embed_positions")
_TABLES = ("relative_position_bias_table", "relative_position_index", "rel_pos_h", "rel_pos_w", "relative_coords_table")
# masks and ids that are as long as there are positions, registered beside the embedding
_DERIVED = ("bias", "mask", "attn_mask", "causal_mask", "position_ids", "token_type_ids", "tril", "masked_bias")
_NOT_TOKENS = frozenset(
    {"pos", "position", "positional", "positions", "type", "segment", "patch", "patches", "time", "timestep"}
    | {"class", "cls", "label", "user", "item", "lang"}
)
_TOKEN_TABLES = ("wte", "embed_in", "embed_out", "shared")
_TOKEN_PARTS = ("emb", "wte", "shared")
_HEADS = frozenset(
    {"fc", "head", "heads", "classifier", "classifiers", "logits", "cls", "predictor", "prediction", "predictions"}
    | {"score", "scores", "class", "bbox", "linear", "out", "output", "seg"}
)
_FIRST = frozenset({"stem", "patch", "conv1", "conv0", "projection", "convin", "stem1", "inc", "first"})


def is_position(key: str) -> bool:
    """Return whether the key is called like a table of positions, learnt or relative."""
    text = key.lower()
    return any(word in text for word in (*_POSITIONS, *_TABLES))


def is_mask_or_ids(key: str) -> bool:
    """Return whether the last token is one of those that masks and ids have."""
    return key.rpartition(".")[2].lower() in _DERIVED


def is_vocabulary(key: str) -> bool:
    """Return whether the key is called like an embedding of tokens."""
    if not any(part in key.lower() for part in _TOKEN_PARTS):  # most keys: no need to take them apart
        return False
    found = words(key)
    if _NOT_TOKENS.intersection(found):
        return False
    return any(word.startswith("emb") for word in found) or any(
        token in _TOKEN_TABLES for token in key.lower().split(".")
    )


def is_head(key: str) -> bool:
    """Return whether the key's module is called like a head: the layers that give a model's answers."""
    return bool(_HEADS.intersection(words(key.rpartition(".")[0])))


def is_first(key: str) -> bool:
    """Return whether the key's module is called like the layer that takes the input."""
    parts = block(key)
    found = words(key.rpartition(".")[0] if parts is None else parts[0])  # blocks have a conv1 of their own
    return bool(_FIRST.intersection(found)) or found[-2:] == ["conv", "in"]
