"""Describes what a target expects to load, key → shape and dtype, and how much of that a checkpoint fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint.dtypes import DType
from ckptdoctor.checkpoint.keypath import ROOT, KeyPath
from ckptdoctor.noun import noun

if TYPE_CHECKING:
    from ckptdoctor.checkpoint.checkpoint import Checkpoint

# the key of what a module keeps beside its tensors: torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX
EXTRA_STATE = "_extra_state"
# models of transformers whose keys are Llama's, and whose rotary embeddings turn neighbours of a head, as Meta's code
# does: the rows of their queries lie as Meta's do, and their number of heads permutes nothing. Source: transformers
# 5.23, rotate_half() with x[..., 0::2]
PAIRED = ("ernie4_5", "helium")


def is_extra_state(key: str) -> bool:
    """Return whether the last token of the key says that this is extra state, of whatever type."""
    return key.endswith(EXTRA_STATE) and (len(key) == len(EXTRA_STATE) or key[-len(EXTRA_STATE) - 1] == ".")


@noun
class Expected:
    """One expected tensor; ``dtype`` is None where the source of the expectation does not say."""

    shape: tuple[int, ...]
    dtype: DType | None = None


@noun
class Reference:
    """Every key that the target expects. ``source`` is what people call it: a path, ``nets:ResNet50``.

    ``root`` is where its keys are in its own file (``()`` at the top): a file with the same layout is not nested too
    deep. ``option`` is how to name it on the command line, such as ``--like other.pt``; "" where it was not named
    there. ``ties`` are groups of keys that are one and the same tensor of the target. ``retied`` says that what loads
    the file ties them again by itself, as ``from_pretrained`` does, so that one of each group is enough. ``once`` says
    that every tensor has one name there, as in safetensors files: a model may have more names for it than the target
    shows. ``extra`` are the keys whose values are loaded whatever they are, above all extra state of modules
    (``Module.set_extra_state``); those that are tensors in the target are among ``tensors`` as well. ``parameters`` are
    what ``Module.parameters()`` gives, in its order, and ``frozen`` those of them that are not trained; () where that
    is not known. ``beside`` is the whole file that the keys were learnt from. ``certain`` says that renames which are
    only a guess are left out of what is compared with it: a repair writes none. ``heads`` is how many heads of
    attention the target has, where a person or its config says so. ``told`` says what was taken from the file that
    should fit, or from a file next to it; ``by_file`` says that for another file it may be another target.
    ``arguments`` are the whole numbers that it was built with, by the names that its class or function has for them.
    """

    source: str
    tensors: Mapping[str, Expected]
    root: KeyPath = ROOT
    option: str = ""
    ties: tuple[tuple[str, ...], ...] = ()
    retied: bool = False
    once: bool = False
    extra: frozenset[str] = frozenset()
    parameters: tuple[str, ...] = ()
    frozen: frozenset[str] = frozenset()
    beside: Checkpoint | None = None
    certain: bool = False
    heads: int | None = None
    told: str = ""
    by_file: bool = False
    arguments: tuple[tuple[str, int], ...] = ()


# ---- how much of it a checkpoint fits, as it is and after each fix


@noun
class CoverageStep:
    """Coverage of a reference after one fix: keys and parameters (elements) that then fit."""

    title: str
    code: str
    keys: int
    parameters: int


@noun
class Coverage:
    """How much of a reference the checkpoint fits: keys with the right shape, and elements; before and after fixes.

    ``option`` names the reference on the command line; "" where it was not named there, or where the steps alone do
    not decide everything. ``retied`` of the keys are not in the file, and tied to one that is when it is loaded.
    ``told`` says what of the reference was taken from the file itself, or from next to it.
    """

    reference: str
    state_dict: KeyPath
    total_keys: int
    total_parameters: int
    keys: int
    parameters: int
    steps: tuple[CoverageStep, ...] = ()
    option: str = ""
    retied: int = 0
    told: str = ""
