"""Runs the repair of a pair, and judges what came of it by the values."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from ckptdoctor.cli.main import run
from tests.pairs.arithmetic import ARITHMETIC
from tests.pairs.attention import ATTENTION
from tests.pairs.layouts import LAYOUTS
from tests.pairs.libraries import LIBRARIES
from tests.pairs.models import State
from tests.pairs.pair import Answer, Pair, loads
from tests.pairs.traps import TRAPS
from tests.pairs.ways import WAYS

FAMILIES = {**WAYS, **LIBRARIES, **ARITHMETIC, **ATTENTION, **LAYOUTS, **TRAPS}
_COMMAND = re.compile(r"(?:^|\s)(ckptdoctor (?:fix|convert|salvage) .+)$", re.MULTILINE)
_NO_WEIGHT = re.compile(r"_mask$|^criterion\.|^loss_fn\.|rope\.freqs$|masked_bias$|n_averaged$")
_CRASH = re.compile(r"Traceback|internal error|this is a bug", re.IGNORECASE)


class Verdict(Enum):
    """What came of a repair."""

    RIGHT = "right"
    COMMAND = "refused with a command"
    REFUSED = "refused without"
    WRONG = "wrong"
    CRASH = "crash"


@dataclass(frozen=True)
class Judged:
    """The verdict on one pair in one mode; ``repaired``: what was written, or left as it was, is the truth."""

    number: int
    family: str
    unsafe: bool
    pair: Pair
    verdict: Verdict
    repaired: bool
    said: str
    why: str = ""


def family_of(number: int) -> str:
    """Every family has its turn."""
    return list(FAMILIES)[number % len(FAMILIES)]


def pair_of(number: int) -> Pair:
    """The pair of this number: always the same."""
    return FAMILIES[family_of(number)](Random(f"pair {number}"))


def judged(number: int, unsafe: bool = False, folder: str | None = None) -> Judged:
    """What comes of this pair; ``folder`` keeps the files."""
    pair, family = pair_of(number), family_of(number)
    with tempfile.TemporaryDirectory() as temporary, _inside(folder or temporary):
        source = _saved(pair.called, pair.source, pair.source_format)
        target = _saved("target", pair.target, pair.target_format)
        for path, contents in pair.beside.items():
            _beside(Path(path), contents)
        output = f"output{Path(source).suffix}"
        words = ["fix", source, "--auto", "--like", target, "-o", output, *pair.options]
        status, said = command([*words, *(["--unsafe-fixes"] if unsafe else [])])
        answers = (*pair.answers, *(pair.with_loss if unsafe else ()))

        def verdict(kind: Verdict, why: str = "", repaired: bool = False) -> Judged:
            return Judged(number, family, unsafe, pair, kind, repaired, said, why)

        if _CRASH.search(said) or status not in (0, 1, 2):
            return verdict(Verdict.CRASH, f"status {status}")
        if os.path.exists(output) and pair.choice:
            return verdict(Verdict.WRONG, f"{pair.choice}: it is a person's choice, and something was written")
        if os.path.exists(output):
            why = _unlike(_loaded(output), pair, answers)
            return verdict(Verdict.WRONG, why) if why else verdict(Verdict.RIGHT, repaired=True)
        if status == 0:
            why = _unlike(_loaded(source), pair, answers)
            why = why and f"nothing to repair, it says, but {why}"
            return verdict(Verdict.WRONG, why) if why else verdict(Verdict.RIGHT, repaired=True)
        if _finishes(said, pair, (*pair.answers, *pair.with_loss)):
            return verdict(Verdict.COMMAND)
        return verdict(Verdict.REFUSED if answers else Verdict.RIGHT)


def command(words: Sequence[str]) -> tuple[int, str]:
    """The status and everything printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            status = run(list(words))
        except Exception as error:  # what reaches the person at the screen as a traceback
            return -1, f"{out.getvalue()}Traceback: {type(error).__name__}: {error}"
    return status, out.getvalue()


def losing(number: int) -> list[str]:
    """The printed commands for this pair that leave out a weight of which its file has no other copy.

    A choice between parts is told by what each command keeps. All numbers are distinct, so that a weight is in the
    output where one of them is, however it was cut, turned or computed.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        said = judged(number, folder=folder).said
        pair = pair_of(number)
        with _inside(folder):
            for line in dict.fromkeys(_COMMAND.findall(said)):
                words = shlex.split(line)[1:]
                if {"--write-map", "--map", "--keep", "--root", "--merge-adapter"}.intersection(words):
                    continue
                output = f"printed{len(os.listdir())}{Path(words[1]).suffix}"
                words = [*(words[: words.index("-o")] if "-o" in words else words), "-o", output]
                command(words)
                if os.path.exists(output):
                    held = {each for value in _loaded(output).values() for each in value.double().flatten().tolist()}
                    found += [f"{line}: {key}" for key, value in _weights(pair.source) if not held & value]
    return found


def _weights(source: Any) -> Iterator[tuple[str, set[float]]]:
    """Every weight in a file that may be nested, with its values; what counts, masks or optimizes is none."""
    for key, value in source.items():
        if isinstance(value, dict) and key != "optimizer":
            yield from _weights(value)
        elif isinstance(value, torch.Tensor) and value.is_floating_point() and not _NO_WEIGHT.search(key):
            yield key, set(value.double().flatten().tolist())


def _finishes(said: str, pair: Pair, answers: Sequence[Answer]) -> bool:
    """Whether a command that was printed, run as it stands, writes the truth.

    A draft map is confirmed as a person would who knows the truth: each mark gives way to the right name.
    """
    for number, found in enumerate(_COMMAND.findall(said)):
        words = shlex.split(found)[1:]
        if {"FILE", "OTHER", "PATH"}.intersection(words):
            continue
        if "--write-map" in words:
            command(words)
            _confirm(words[words.index("--write-map") + 1], pair, answers)
            continue
        if "--map" in words and not os.path.exists(words[words.index("--map") + 1]):
            continue
        output = f"finished{number}{Path(words[1]).suffix}"
        if "-o" in words:
            words[words.index("-o") + 1] = output
        else:
            words += ["-o", output]
        if command(words)[0] == 0 and os.path.exists(output) and not _unlike(_loaded(output), pair, answers):
            return True
    return False


def _confirm(path: str, pair: Pair, answers: Sequence[Answer]) -> None:
    """Put the right name in the place of each mark in a draft map: the one under which an answer has the tensor."""
    if not os.path.exists(path) or not answers:
        return
    draft = json.loads(Path(path).read_text(encoding="utf-8"))
    held = pair.source
    for part in draft["root"].split("/") if draft["root"] else []:
        held = held[part]
    names, truth = draft["names"], answers[0]
    taken = {name for each in names.values() if not isinstance(each, dict) for name in _names_of(each)}
    for old, value in names.items():
        if isinstance(value, dict) and "uncertain" in value:
            tensor = held[old] if old in held else held[old.partition("/")[0]][old.partition("/")[2]]
            names[old] = said = _right(tensor, [value, *value.get("or", [])], truth, taken)
            taken.update(_names_of(said))
    Path(path).write_text(json.dumps(draft), encoding="utf-8")


def _right(tensor: torch.Tensor, offered: Sequence[Any], truth: Answer, taken: set[str]) -> Any:
    """What the truth calls this tensor, of two equal ones as it was offered; None where it has no place in it."""
    for each in offered:  # what is equal has the name that was proposed
        names = _names_of(each)
        turned = isinstance(each, dict) and each.get("transposed", False)
        seen = tensor.T if turned else tensor
        if isinstance(each, dict) and "axes" in each:
            seen = tensor.reshape(each.get("view", tensor.shape)).permute(each["axes"])
            seen = seen.reshape(each.get("shape", seen.shape))
        if names and taken.isdisjoint(names) and all(name in truth and _is(truth[name], seen) for name in names):
            to = names if len(names) > 1 else names[0]
            if isinstance(each, dict) and "axes" in each:
                return {"to": to, **{part: each[part] for part in ("axes", "view", "shape") if part in each}}
            return {"to": to, "transposed": True} if turned else to
    for name, value in truth.items():
        if name not in taken and _is(value, tensor):
            return name
        if name not in taken and tensor.dim() == 2 and _is(value, tensor.T):
            return {"to": name, "transposed": True}
    return None


def _is(value: torch.Tensor | None, tensor: torch.Tensor) -> bool:
    return value is not None and _equal(tensor, value)


def _names_of(value: Any) -> list[str]:
    found = value["to"] if isinstance(value, dict) else value
    return [] if found is None else found if isinstance(found, list) else [found]


@contextlib.contextmanager
def _inside(folder: str) -> Iterator[None]:
    """The folder as the current one: what is printed there has short names."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.chdir(before)


def _saved(name: str, contents: object, kind: str) -> str:
    if kind == "safetensors":
        assert isinstance(contents, dict)
        save_file({key: value.clone().contiguous() for key, value in contents.items()}, f"{name}.safetensors")
        return f"{name}.safetensors"
    torch.save(contents, f"{name}.pt")
    return f"{name}.pt"


def _beside(path: Path, contents: object) -> None:
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".json":
        path.write_text(json.dumps(contents))
    else:
        assert isinstance(contents, dict)
        save_file(contents, path)


def _loaded(path: str) -> State:
    found = load_file(path) if path.endswith(".safetensors") else torch.load(path, weights_only=True)
    return found if isinstance(found, dict) else {"": found}  # with the versions of modules that go with it


def _unlike(found: State, pair: Pair, answers: Sequence[Answer]) -> str:
    """What is wrong with this; "" where it is one of the answers, and loads."""
    if not all(isinstance(each, torch.Tensor) for each in found.values()):
        return "it is no flat state dict"
    if not answers:
        return "there is no answer"
    differences = [_differences(found, answer) for answer in answers]
    least = min(differences, key=len)
    if least:
        return f"{len(least)} keys are wrong: {', '.join(least[:3])}"
    return "" if not pair.model or loads(pair.model, found) else "it does not load strictly"


def _differences(found: State, answer: Answer) -> list[str]:
    wrong = [f"{key} is too many" for key in found.keys() - answer.keys()]
    for key, value in answer.items():
        if value is None:  # torch may make it anew
            continue
        if key not in found:
            wrong.append(f"{key} is missing")
        elif not _equal(found[key], value):
            wrong.append(key)
    return wrong


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and (
        torch.equal(one, other.to(one.dtype)) or torch.equal(one.to(other.dtype), other)
    )
