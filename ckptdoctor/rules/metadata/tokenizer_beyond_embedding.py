"""The tokenizer next to the weights has tokens for which the embedding table has no row.

Meaning
    Tokens were added to the tokenizer, and ``resize_token_embeddings`` was not called, or the weights were saved before
    it was; or the tokenizer belongs to another model.

Why it matters
    The model fails as soon as a text holds one of these tokens, or a batch is padded with one: on a GPU with an
    assertion that names neither the token nor its position.

Symptoms
    IndexError: index out of range in self
    CUDA error: device-side assert triggered

Detection
    The numbers of added tokens in ``tokenizer.json``, ``added_tokens.json`` and ``tokenizer_config.json`` are compared
    with the rows of the only embedding table. The vocabulary itself is not read.

Repair
    None: a row that was never trained would have to be made up. Call ``model.resize_token_embeddings(len(tokenizer))``
    and train, or use the tokenizer that belongs to the weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.checkpoint.weights import top_weights
from ckptdoctor.facts.siblings import Folder, folder_of
from ckptdoctor.findings import Severity
from ckptdoctor.noun import noun
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import CHECK, Message
from ckptdoctor.rules.metadata.config_against_tensors import embedding_tables
from ckptdoctor.rules.when import file_beside

MESSAGES = (
    Message(
        ("index out of range in self",),
        "a number that was looked up in an embedding is not below its rows: the tokenizer (or whatever numbered the "
        "input) has more entries than the weights",
        (CHECK,),
        near=("embedding",),
    ),
)
_NAME = "model.safetensors"
_MODEL = {"model.embed_tokens.weight": T((8, 4)), "lm_head.weight": T((8, 4))}
_SHOWN = 3
_LONGEST = 30  # of a token that is told


def _example(title: str, **beside: bytes) -> Example:
    files = {f"{name}.json": data for name, data in beside.items()}
    return Example(title, _MODEL, "safetensors", metadata={"format": "pt"}, name=_NAME, beside=files)


_TOKEN = b'{"version": "1.0", "added_tokens": [{"id": %d, "content": "<pad>", "special": true}], "model": {}}'
SICK = (
    _example("a padding token", tokenizer=_TOKEN % 8),
    _example("an old list of added tokens", added_tokens=b'{"<x>": 7, "<y>": 9}'),
    _example("a decoder", tokenizer_config=b'{"added_tokens_decoder": {"8": {"content": "<y>"}}}'),
)
HEALTHY = (
    _example("a token that has a row", tokenizer=_TOKEN % 7),
    _example("a list that is not one", tokenizer=b'{"added_tokens": 3}', added_tokens=b"[1]", tokenizer_config=b"{"),
)


@rule(
    "M979",
    "tokenizer-beyond-embedding",
    Severity.WARNING,
    when=file_beside("tokenizer.json", "added_tokens.json", "tokenizer_config.json"),
)
def tokenizer_beyond_embedding(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report tokens without an embedding."""
    found = _beyond(checkpoint)
    if found is None:
        return
    named = wording.abridged([f'{number:,} ("{_short(token)}")' for number, token in found.tokens], _SHOWN)
    has = "has a token" if len(found.tokens) == 1 else f"has {len(found.tokens):,} tokens"
    yield Problem(
        message=f"{found.file} {has} beyond the embeddings: {named}, and {found.table.key} is "
        f"{wording.shape(found.table.shape)}",
        cause="The table has rows only for numbers below its first size: a text with such a token, or a batch "
        "padded with one, crashes the model.",
        torch_says=("IndexError: index out of range in self",),
        advice="Call model.resize_token_embeddings(len(tokenizer)) and train, or use the tokenizer of these weights.",
        keys=(found.table.path,),
    )


def _short(token: str) -> str:
    """Return a token on one line, without what a terminal would obey."""
    plain = "".join(sign if sign.isprintable() else "?" for sign in token)
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}…"


# Tokens that the files of a tokenizer add, and those among them that the table of embeddings has no row for.
#
# Sources: ``added_tokens`` of ``tokenizer.json`` (tokenizers writes it in front of the vocabulary),
# ``added_tokens.json`` and ``added_tokens_decoder`` of ``tokenizer_config.json`` (transformers).

_FILES = ("tokenizer.json", "added_tokens.json", "tokenizer_config.json")
_ADDED = '"added_tokens":'


@noun
class _Beyond:
    """Tokens without an embedding, by their numbers: the file that they are in, and the table that is too short."""

    file: str
    tokens: tuple[tuple[int, str], ...]
    table: Tensor


def _beyond(checkpoint: Checkpoint) -> _Beyond | None:
    """Return the tokens beyond the only table of embeddings, or None where there are none, or no such table."""
    folder = folder_of(checkpoint.path)
    weights = top_weights(checkpoint)
    tables = embedding_tables(weights) if weights is not None and not folder.names.isdisjoint(_FILES) else []
    if len({table.shape[0] for table in tables}) != 1:
        return None
    for name in _FILES:
        found = sorted({each for each in _added(folder, name) if each[0] >= tables[0].shape[0]})
        if found:
            return _Beyond(name, tuple(found), tables[0])
    return None


def _added(folder: Folder, name: str) -> Iterator[tuple[int, str]]:
    """Yield the added tokens of one file: number and text. What is not as it should be is passed over."""
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
    """Return the list of added tokens, which is near the beginning of a file that may be long."""
    at = text.find(_ADDED)
    if at < 0:
        return None
    rest = text[at + len(_ADDED) :].lstrip()
    return json.JSONDecoder().raw_decode(rest)[0]
