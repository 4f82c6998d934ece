"""Compares the ``config.json`` next to a checkpoint with its tensors, which may contradict each other."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict, Tensor
from ckptdoctor.checkpoint.weights import top_weights
from ckptdoctor.facts.names import HEAD
from ckptdoctor.facts.siblings import Config, is_shard_of_model
from ckptdoctor.noun import noun

_EMBEDDINGS = re.compile(
    r"(?:^|\.)(?:embed_tokens|word_embeddings|tok_embeddings|wte|shared|embed_in|word_embedding)\.weight$"
)
_LAYER = re.compile(r"^(.*?(?:^|\.)(?:layers?|h|blocks?))\.(\d+)\.")
_VOCABULARY = ("vocab_size",)
_WIDTH = ("hidden_size", "d_model", "n_embd", "dim")
# where one of these is there, embeddings are not as wide as the layers
_OTHER_WIDTHS = (
    "embedding_size",
    "word_embed_proj_dim",
    "embedding_dim",
    "emb_dim",
    "d_embed",
    "hidden_size_per_layer_input",
)
_DEPTH = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
# where one of these is there, the number of layers is counted in another way
_OTHER_DEPTHS = ("num_nextn_predict_layers", "num_mtp_layers", "num_hidden_groups", "mtp_num_layers", "block_sizes")


@noun
class Disagreement:
    """A field of the config, what it says, and what the tensors say; ``tensor`` is the one that shows it."""

    name: str
    said: object
    found: object
    tensor: Tensor | None = None


def disagreements(checkpoint: Checkpoint, config: Config) -> list[Disagreement]:
    """Return where the config and the tensors say different things of the size of the model."""
    weights = top_weights(checkpoint)
    if weights is None:
        return []
    return [*_embeddings(weights, config), *_layers(checkpoint, weights, config), *_tied(checkpoint, weights, config)]


def dtype_drift(checkpoint: Checkpoint, config: Config) -> Disagreement | None:
    """Return the dtype that the config gives, where no floating-point tensor of the file has it."""
    weights = top_weights(checkpoint)
    name = next((each for each in ("dtype", "torch_dtype") if isinstance(config.fields.get(each), str)), None)
    if weights is None or name is None or "quantization_config" in config.fields:
        return None
    said = str(config.fields[name]).removeprefix("torch.")
    counts: Counter[str] = Counter()
    for tensor in weights.tensors:
        if tensor.dtype.kind == "float":
            counts[tensor.dtype.name] += tensor.numel
    if not counts or said in counts or said not in ("float32", "float16", "bfloat16", "float64"):
        return None
    return Disagreement(name, said, counts.most_common(1)[0][0])


def _embeddings(weights: StateDict, config: Config) -> Iterator[Disagreement]:
    """Compare the rows of the only table of embeddings, and its columns, with the config."""
    tables = embedding_tables(weights)
    if len({tensor.shape for tensor in tables}) != 1 or "quantization_config" in config.fields:
        return
    rows, columns = tables[0].shape
    said = config.number(_VOCABULARY)
    if said is not None and said[1] != rows:
        yield Disagreement(*said, rows, tables[0])
    width = config.number(_WIDTH)
    if width is not None and width[1] != columns and not any(name in config.fields for name in _OTHER_WIDTHS):
        yield Disagreement(*width, columns, tables[0])


def embedding_tables(weights: StateDict) -> list[Tensor]:
    """Return the tables of embeddings of words: [words, width]."""
    return [tensor for tensor in weights.tensors if _EMBEDDINGS.search(tensor.key) and _is_matrix(tensor)]


def _is_matrix(tensor: Tensor) -> bool:
    return len(tensor.shape) == 2 and tensor.dtype.kind == "float"


def _layers(checkpoint: Checkpoint, weights: StateDict, config: Config) -> Iterator[Disagreement]:
    """Compare the number of layers, where the file has all of them in one stack."""
    said = config.number(_DEPTH)
    doubtful = config.fields.get("is_encoder_decoder") or any(name in config.fields for name in _OTHER_DEPTHS)
    if said is None or doubtful or not _is_whole(checkpoint):
        return
    stacks: dict[str, set[int]] = {}
    for key in weights.keys:
        match = _LAYER.match(key)
        if match is not None and len(match[2]) < 6:
            stacks.setdefault(match[1], set()).add(int(match[2]))
    if len(stacks) != 1:
        return
    (numbers,) = stacks.values()
    if numbers == set(range(len(numbers))) and len(numbers) != said[1]:
        yield Disagreement(*said, len(numbers))


def _tied(checkpoint: Checkpoint, weights: StateDict, config: Config) -> Iterator[Disagreement]:
    """Find weights without a head of their own, where the config says that it is not tied to the embeddings."""
    kinds = config.fields.get("architectures")
    headed = isinstance(kinds, list) and any(str(kind).endswith("ForCausalLM") for kind in kinds)
    if config.fields.get("tie_word_embeddings") is not False or not headed or not _is_whole(checkpoint):
        return
    embedded = [tensor for tensor in weights.tensors if _EMBEDDINGS.search(tensor.key)]
    if embedded and not any(HEAD.search(key) for key in weights.keys):
        yield Disagreement("tie_word_embeddings", False, True, embedded[0])


def _is_whole(checkpoint: Checkpoint) -> bool:
    return not is_shard_of_model(os.path.basename(checkpoint.path))
