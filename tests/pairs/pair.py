"""What a pair is, and what several families of them are made with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch

from tests.pairs.models import MODELS, OWN, State, fresh, model, state

Answer = Mapping[str, "torch.Tensor | None"]

# what leaves an answer to a person: the laws of repairs that forbid to write one without their word
MEANING = "names that tell nothing leave more than one assignment, and none of them is published"
ORDER = "only the order of the parts could tell, and one side is not in the order of its definition"
LAYOUT = "how the values of a tensor lie, its name and its shape do not tell, nor what stands beside it"
MAP = "by which of several maps a tensor is computed, neither its name nor its values tell"
FOREIGN_PART = "one part of a foreign name in the place of one that is missing may as well be another part"

# names that nobody can tell anything from
FOREIGN = ("zeta", "kappa", "rho", "omicron", "upsilon", "xi", "psi", "tau", "iota", "chi", "mu", "nu")
PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "student.", "backbone.", "encoder_q.", "_fsdp_wrapped_module.")


@dataclass(frozen=True)
class Pair:
    """A broken checkpoint, a target, and the state dicts that would be right: none where nothing may be written.

    ``with_loss`` are answers that give something up, and so want ``--unsafe-fixes``. ``choice`` names what makes the
    answer a person's choice: nothing may be written in either mode before they have said it, not even by luck, and
    ``answers`` are what their word has to come to. None for a tensor stands for any
    value, and for one that torch makes anew. ``model`` is the one among ``models`` that must load the output, "" where
    the target is made up. ``source`` is saved by ``torch.save``, or as safetensors, and so is the target. ``called`` is
    the name of the source, ``options`` are more words of the command, and ``beside`` more files: state dicts, or what
    is written as JSON, by their paths.
    """

    what: str
    source: Any
    target: State
    answers: tuple[Answer, ...] = ()
    with_loss: tuple[Answer, ...] = ()
    choice: str = ""
    model: str = ""
    source_format: str = "pt"
    target_format: str = "pt"
    called: str = "source"
    options: tuple[str, ...] = ()
    beside: Mapping[str, Any] = field(default_factory=dict)

    def answerable(self, unsafe: bool) -> bool:
        """Whether this mode has anything to write that would be right, without another word of a person."""
        return not self.choice and bool(self.answers or (unsafe and self.with_loss))


Family = Callable[[Random], Pair]


@dataclass(frozen=True)
class Case:
    """A model, what its checkpoint should hold, and what a target of the same model holds."""

    name: str
    truth: State
    target: State


def case(rng: Random, *names: str, real: bool = True) -> Case:
    """One of these models, or any; ``real``: those of transformers, too."""
    name = rng.choice(names or (MODELS if real else tuple(OWN)))
    return Case(name, state(name, rng), state(name, rng))


def lone(tensors: State, token: str) -> bool:
    """Whether a token is in the path of one module alone: called otherwise, nothing tells it from a foreign module.

    A module of which every tensor is one with another's is told by that: nothing else can be right, nothing is lost.
    """
    among = [key for key in tensors if token in key.split(".")[:-1]]
    others = {id(value) for key, value in tensors.items() if key not in among}
    return len({key.rpartition(".")[0] for key in among}) == 1 and not all(id(tensors[key]) in others for key in among)


def made_up(rng: Random, shapes: Mapping[str, Sequence[int]], what: str = "") -> Case:
    """A model of these keys that nobody wrote."""
    like = {key: torch.empty(tuple(shape)) for key, shape in shapes.items()}
    return Case(what, fresh(like, rng), fresh(like, rng))


def pair(of: Case, rng: Random, what: str, source: Any, **more: Any) -> Pair:
    """The pair; containers and the order of the target's keys as chance has them, where nothing else is said."""
    plain = isinstance(source, dict) and all(isinstance(each, torch.Tensor) for each in source.values())
    if "source_format" not in more:
        more["source_format"] = "safetensors" if plain and rng.random() < 0.25 else "pt"
    if "target_format" not in more:
        more["target_format"] = "safetensors" if rng.random() < 0.25 else "pt"
    if "answers" not in more and "with_loss" not in more:
        more["answers"] = (of.truth,)
    known = of.name if of.name in MODELS else ""
    return Pair(f"{of.name or 'made up'}: {what}", source, of.target, model=known, **more)


def under(prefix: str, tensors: State) -> State:
    """The same tensors under keys with a prefix."""
    return {prefix + key: value for key, value in tensors.items()}


def retold(tensors: State, words: Mapping[str, str]) -> State:
    """The same tensors, whole tokens of their keys replaced."""
    return {".".join(words.get(token, token) for token in key.split(".")): value for key, value in tensors.items()}


def modules(tensors: State) -> dict[str, list[str]]:
    """The keys by the module that holds them."""
    found: dict[str, list[str]] = {}
    for key in tensors:
        found.setdefault(key.rpartition(".")[0], []).append(key)
    return found


def siblings(tensors: State) -> list[list[str]]:
    """Groups of modules in one parent that hold the same leaves in the same shapes, by their paths."""
    groups: dict[tuple[str, tuple[tuple[str, tuple[int, ...]], ...]], list[str]] = {}
    paths = {".".join(key.split(".")[:depth]) for key in tensors for depth in range(1, key.count(".") + 1)}
    for path in sorted(
        paths, key=lambda each: next(at for at, key in enumerate(tensors) if key.startswith(each + "."))
    ):
        below = [(key[len(path) :], tuple(value.shape)) for key, value in tensors.items() if key.startswith(path + ".")]
        groups.setdefault((path.rpartition(".")[0], tuple(below)), []).append(path)
    return [paths for paths in groups.values() if len(paths) > 1]


def moved(tensors: State, paths: Mapping[str, str]) -> State:
    """The same tensors, modules at these paths called otherwise; in the order of the new names where they were."""
    found = {}
    for key, value in tensors.items():
        path = next((each for each in paths if key.startswith(each + ".")), None)
        found[key if path is None else paths[path] + key[len(path) :]] = value
    return found


def shuffled(tensors: State, rng: Random) -> State:
    """The same in another order."""
    keys = list(tensors)
    rng.shuffle(keys)
    return {key: tensors[key] for key in keys}


def loads(name: str, tensors: State) -> bool:
    """Whether the model takes it with ``strict=True``."""
    try:
        model(name).load_state_dict(tensors, strict=True)
    except RuntimeError:
        return False
    return True
