"""The ``config.json`` next to the weights describes a different model.

Meaning
    transformers builds the model from the config and then loads the weights into it. Its vocabulary, width or number of
    layers are not those of the tensors, or it gives the output layer weights of its own, and there are none.

Why it matters
    ``from_pretrained`` fails on the sizes; where layers or the output layer are missing it fills them with random
    numbers and only prints a warning.

Symptoms
    size mismatch for model.embed_tokens.weight: copying a param with shape torch.Size([32001, 4096]) from checkpoint,
    the shape in current model is torch.Size([32000, 4096]).
    Some weights of the model checkpoint were not used when initializing …

Detection
    ``vocab_size`` and ``hidden_size`` are compared with the embedding table, ``num_hidden_layers`` with the layers,
    ``tie_word_embeddings`` with the output layer. Nothing is reported where a config describes several models, or
    counts differently.

Repair
    None: the finding gives the line of ``config.json`` to change, if the weights are right. Or it is the config of
    another model: then use the one that belongs to them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.siblings import Config, config_beside
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import CONFIG_BESIDE, Message, Weight
from ckptdoctor.rules.metadata.config_against_tensors import Disagreement, disagreements
from ckptdoctor.rules.when import file_beside

_NAME = "model.safetensors"
_MODEL = {
    "model.embed_tokens.weight": T((8, 4)),
    "model.layers.0.mlp.weight": T((4, 4)),
    "model.layers.1.mlp.weight": T((4, 4)),
    "lm_head.weight": T((8, 4)),
}
_FITS = b'{\n  "hidden_size": 4,\n  "num_hidden_layers": 2,\n  "vocab_size": 8\n}\n'


def _beside(config: bytes) -> dict[str, bytes]:
    return {"config.json": config}


MESSAGES = (
    Message(
        ("You set `ignore_mismatched_sizes` to `False`, thus raising an error",),
        "tensors of the checkpoint do not have the shapes that config.json implies; the table above this "
        "line names them",
        (CONFIG_BESIDE,),
        weight=Weight.OUTCOME,
        also=("R003", "S501", "S502"),
    ),
)
SICK = (
    Example(
        "added tokens", _MODEL, "safetensors", metadata={"format": "pt"}, name=_NAME,
        beside=_beside(_FITS.replace(b"8", b"7")),
    ),
    Example(
        "other layers", _MODEL, "safetensors", metadata={"format": "pt"}, name=_NAME,
        beside=_beside(_FITS.replace(b"2", b"3")),
    ),
)  # fmt: skip
HEALTHY = (
    Example("a config that fits", _MODEL, "safetensors", metadata={"format": "pt"}, name=_NAME, beside=_beside(_FITS)),
    Example("no config", _MODEL, "safetensors", metadata={"format": "pt"}, name=_NAME),
)


@rule("M974", "config-weights-disagree", Severity.ERROR, when=file_beside("config.json"))
def config_weights_disagree(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report a config of other sizes."""
    config = config_beside(checkpoint)
    for each in disagreements(checkpoint, config) if config is not None else []:
        assert config is not None
        yield Problem(
            message=f"config.json has {each.name} {_shown(each.said)}, {_found(each)}",
            cause="transformers builds the model from config.json, and these weights do not fit it.",
            torch_says=_line(each),
            advice=f"If the weights are right, {change(config, each)}; if not, use the config that belongs to them.",
            keys=(each.tensor.path,) if each.tensor is not None else (),
        )


def change(config: Config, each: Disagreement) -> str:
    """Return what to write where, for people."""
    line = config.lines.get(each.name)
    place = f"line {line} of {config.path}" if line is not None else config.path
    return f'write "{each.name}": {_shown(each.found)} in {place}'


def _shown(value: object) -> str:
    from json import dumps

    return dumps(value)


def _found(each: Disagreement) -> str:
    if each.name == "tie_word_embeddings":
        return "but there is no output layer besides the embeddings"
    if each.tensor is None:
        return f"but there are {each.found:,} layers" if isinstance(each.found, int) else ""
    return f"but {each.tensor.key} is {wording.shape(each.tensor.shape)}"


def _line(each: Disagreement) -> tuple[str, ...]:
    tensor = each.tensor
    if tensor is None or type(each.said) is not int:
        return ()
    wanted = [each.said if size == each.found else size for size in tensor.shape]
    return (wording.mismatch_line(tensor.key, tensor.shape, wanted),)
