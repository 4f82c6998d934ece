"""What the ``config.json`` beside a Hugging Face checkpoint says, held against its tensors."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict, Tensor
from ckptdoctor.facts.once import once
from ckptdoctor.facts.siblings import Folder, folder_of
from ckptdoctor.noun import field, noun
from ckptdoctor.regex import regex

NAME = "config.json"
_LONGEST = 1 << 20

# the weights that such a config describes, whole or in parts
_WHOLE = frozenset({"model.safetensors", "pytorch_model.bin"})
_SHARD = regex(r"(?:model|pytorch_model)-\d{5}-of-\d{5}\.(?:safetensors|bin)")

_EMBEDDINGS = regex(
    r"(?:^|\.)(?:embed_tokens|word_embeddings|tok_embeddings|wte|shared|embed_in|word_embedding)\.weight$"
)
_HEADS = regex(r"(?:^|\.)(?:lm_head|embed_out)\.weight$")
_LAYER = regex(r"^(.*?(?:^|\.)(?:layers?|h|blocks?))\.(\d+)\.")

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
class Config:
    """A config beside the weights: its path, its fields, and the line (from 1) on which each of the outer ones is."""

    path: str
    fields: Mapping[str, object]
    lines: Mapping[str, int] = field(default_factory=dict)

    def number(self, names: tuple[str, ...]) -> tuple[str, int] | None:
        """The first of these fields that is a number."""
        for name in names:
            value = self.fields.get(name)
            if type(value) is int:
                return name, value
        return None


@noun
class Disagreement:
    """A field of the config, what it says, and what the tensors say; ``tensor`` is the one that shows it."""

    name: str
    said: object
    found: object
    tensor: Tensor | None = None


@once
def config_beside(checkpoint: Checkpoint) -> Config | None:
    """The config of the weights; None where there is none, or where it describes several models at once."""
    folder = folder_of(checkpoint.path)
    if folder.name and folder.name not in _WHOLE and not _SHARD.fullmatch(folder.name):
        return None
    config = read_config(folder, NAME)
    return None if config is None or _composite(config.fields) else config


def read_config(folder: Folder, name: str) -> Config | None:
    """The JSON object in the file ``name`` of the folder; None where there is none, or none that can be read."""
    text = folder.read(name)
    if not text or len(text) > _LONGEST:
        return None
    from json import loads

    try:
        fields = loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    return Config(os.path.join(folder.path, name), fields, dict(_lines(text)))


def _composite(fields: Mapping[str, object]) -> bool:
    """Whether the config holds configs of models inside (text, vision): which tensors they speak of is not said."""
    return any(
        name.endswith("_config") and name != "quantization_config" and isinstance(value, dict)
        for name, value in fields.items()
    )


def _lines(text: str) -> Iterator[tuple[str, int]]:
    """The line of each field, where the file is laid out with one field to a line and its own indented least."""
    found = re.compile(r'^([ \t]*)"(\w+)"\s*:')
    matches = [(found.match(line), number) for number, line in enumerate(text.splitlines(), 1)]
    named = [(match, number) for match, number in matches if match is not None]
    least = min((len(match[1]) for match, _ in named), default=0)
    for match, number in named:
        if len(match[1]) == least:
            yield match[2], number


def disagreements(checkpoint: Checkpoint, config: Config) -> list[Disagreement]:
    """Where the config and the tensors say different things of the size of the model."""
    weights = top_weights(checkpoint)
    if weights is None:
        return []
    return [*_embeddings(weights, config), *_layers(checkpoint, weights, config), *_tied(checkpoint, weights, config)]


def dtype_drift(checkpoint: Checkpoint, config: Config) -> Disagreement | None:
    """The dtype that the config gives, where no floating-point tensor of the file has it."""
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


def top_weights(checkpoint: Checkpoint) -> StateDict | None:
    """The state dict at the top of the file."""
    return next((each for each in checkpoint.state_dicts if not each.path and each.role is Role.MODEL), None)


def _embeddings(weights: StateDict, config: Config) -> Iterator[Disagreement]:
    """Rows of the only table of embeddings, and its columns."""
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
    """The tables of embeddings of words: [words, width]."""
    return [tensor for tensor in weights.tensors if _EMBEDDINGS.search(tensor.key) and _is_matrix(tensor)]


def _is_matrix(tensor: Tensor) -> bool:
    return len(tensor.shape) == 2 and tensor.dtype.kind == "float"


def _layers(checkpoint: Checkpoint, weights: StateDict, config: Config) -> Iterator[Disagreement]:
    """The number of layers, where the file has all of them in one stack."""
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
    """Weights without a head of their own, where the config says that it is not tied to the embeddings."""
    kinds = config.fields.get("architectures")
    headed = isinstance(kinds, list) and any(str(kind).endswith("ForCausalLM") for kind in kinds)
    if config.fields.get("tie_word_embeddings") is not False or not headed or not _is_whole(checkpoint):
        return
    embedded = [tensor for tensor in weights.tensors if _EMBEDDINGS.search(tensor.key)]
    if embedded and not any(_HEADS.search(key) for key in weights.keys):
        yield Disagreement("tie_word_embeddings", False, True, embedded[0])


def _is_whole(checkpoint: Checkpoint) -> bool:
    return not _SHARD.fullmatch(os.path.basename(checkpoint.path))
