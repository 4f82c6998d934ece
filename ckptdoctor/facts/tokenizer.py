"""Tokens that the files of a tokenizer add, and those among them that the table of embeddings has no row for.

Sources: ``added_tokens`` of ``tokenizer.json`` (tokenizers writes it in front of the vocabulary), ``added_tokens.json``
and ``added_tokens_decoder`` of ``tokenizer_config.json`` (transformers).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.facts.model_config import embedding_tables, top_weights
from ckptdoctor.facts.siblings import Folder, folder_of
from ckptdoctor.noun import noun

FILES = ("tokenizer.json", "added_tokens.json", "tokenizer_config.json")
_ADDED = '"added_tokens":'


@noun
class Beyond:
    """Tokens without an embedding, by their numbers: in which file they stand, and the table that is too short."""

    file: str
    tokens: tuple[tuple[int, str], ...]
    table: Tensor


def beyond(checkpoint: Checkpoint) -> Beyond | None:
    """The tokens beyond the only table of embeddings; None where there are none, or no such table."""
    folder = folder_of(checkpoint.path)
    weights = top_weights(checkpoint)
    tables = embedding_tables(weights) if weights is not None and not folder.names.isdisjoint(FILES) else []
    if len({table.shape[0] for table in tables}) != 1:
        return None
    for name in FILES:
        found = sorted({each for each in _added(folder, name) if each[0] >= tables[0].shape[0]})
        if found:
            return Beyond(name, tuple(found), tables[0])
    return None


def _added(folder: Folder, name: str) -> Iterator[tuple[int, str]]:
    """The added tokens of one file: number and text. What is not as it should be is passed over."""
    text = folder.beginning(name)
    try:
        told = _list_in(text) if name == "tokenizer.json" else json.loads(text or "{}")
    except (ValueError, RecursionError):
        return
    if isinstance(told, list):
        pairs = [(each.get("id"), each.get("content")) for each in told if isinstance(each, dict)]
    elif not isinstance(told, dict):
        return
    elif name == "added_tokens.json":
        pairs = [(number, token) for token, number in told.items()]
    else:
        listed = told.get("added_tokens_decoder")
        listed = listed if isinstance(listed, dict) else {}
        pairs = [
            (int(number), each.get("content"))
            for number, each in listed.items()
            if number.isascii() and number.isdigit() and len(number) < 10 and isinstance(each, dict)
        ]
    for number, token in pairs:
        if type(number) is int and isinstance(token, str):
            yield number, token


def _list_in(text: str) -> object:
    """The list of added tokens, which stands near the beginning of a file that may be long."""
    at = text.find(_ADDED)
    if at < 0:
        return None
    rest = text[at + len(_ADDED) :].lstrip()
    return json.JSONDecoder().raw_decode(rest)[0]
