"""Losses, metrics and teachers that were saved beside the model, each under one name at the top."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.match.comparing import Comparison
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex

# criterion, loss_fn, mse_loss, val_metrics, …: whole words, however they are put together
_SIDE = regex(
    r"(?:\w+_)?(?:loss|losses|criterion|criterions|criteria|metric|metrics)(?:_(?:fn|fns|func|function|module|modules))?"
)
_LENGTH = 64  # characters of a name that anybody would give
_TEACHERS = frozenset({"teacher", "teacher_model", "teacher_net", "teacher_network", "online_finetuner", "lpips"})


@noun
class Block:
    """The keys below one name at the top, after the cures. ``copies``: some are the target's own under that name.

    ``trained``: it may be a network of its own, a teacher or what a loss looks at, and not counts and class weights.
    """

    name: str
    keys: tuple[str, ...]
    copies: bool
    trained: bool


def is_side(name: str) -> bool:
    """Whether this is what people call a loss, a metric or a teacher."""
    name = name[: _LENGTH + 1].lower()
    return len(name) <= _LENGTH and (name in _TEACHERS or _SIDE.fullmatch(name) is not None)


def side_blocks(comparison: Comparison, unexpected: Iterable[str]) -> tuple[Block, ...]:
    """Such blocks among the unexpected keys; none of a name under which the target expects something itself."""
    wanted, here = comparison.reference.tensors, comparison.cured.here
    found: dict[str, list[str]] = {}
    for key in unexpected:
        name, dot, _ = key.partition(".")
        if dot and is_side(name):
            found.setdefault(name, []).append(key)
    if not found:
        return ()
    own = {key.partition(".")[0] for key in wanted}
    blocks = []
    for name, keys in found.items():
        if name not in own:
            inner = [(wanted.get(key[len(name) + 1 :]), here[key].shape) for key in keys]
            copies = any(expected is not None and expected.shape == shape for expected, shape in inner)
            trained = name.lower() in _TEACHERS or any(map(_may_be_trained, [here[key] for key in keys]))
            blocks.append(Block(name, tuple(keys), copies, trained))
    return tuple(blocks)


def _may_be_trained(tensor: Tensor) -> bool:
    """Whether it may be a layer's: of a weight for each class, a mean or a count there is one number each."""
    return tensor.dtype.kind == "float" and len(tensor.shape) > 1
