"""Every command that ``check`` and ``fix`` print for a sick file is complete, works on that file, and loses nothing."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ckptdoctor.engine.diagnose import check
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.loading import load
from ckptdoctor.rules.examples import Example
from tests.builders import build, build_like
from tests.rules.printed import PLACEHOLDERS, UNKNOWN, Printed, commands, said, within
from tests.rules.sick import SICK

# what a line says that ends in a command which may well be refused: that it tells what would do
_TELLS = "or that nothing does"
_ALLOWED = re.compile(r"add_safe_globals\(\[(.*?)\]\)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the examples are made."""
    return tmp_path_factory.mktemp("printed")


def test_every_printed_command_keeps_its_promise(folder: Path, scale) -> None:
    """Each is run in the folder of its example: it is no usage error, is not refused, and drops no only copy."""
    names = list(SICK)
    if not scale.whole:  # others in every run with another seed
        next(iter(scale.cases(1)))[1].shuffle(names)
    wrong: list[str] = []
    for case, _ in scale.cases(len(names), at_least=60):
        code, title = names[case]
        place = folder / str(case)
        place.mkdir()
        example = SICK[names[case]][1]
        wrong += [f"{code} {title}: {each}" for each in _wrong(example, place)]
    assert not wrong, "\n".join(wrong)


def _wrong(example: Example, place: Path) -> Iterator[str]:
    path = os.path.relpath(build(example, place), place)
    like = [] if example.like is None else ["--like", os.path.relpath(build_like(example, place), place)]
    with within(place):
        texts = [said("check", path, *like, *(["--deep"] if example.deep else [])).text]
        texts.append(said("fix", path, *like, "--diff").text)
    for text in texts:
        yield from (f"names a function that acts: {line}" for line in text.splitlines() if _admits_a_function(line))
        for printed in commands(text):
            yield from _broken(printed, place, path, bool(like))


def _admits_a_function(line: str) -> bool:
    """Classes begin with a capital letter; what does not is a function, and torch would call it."""
    found = _ALLOWED.search(line)
    return found is not None and any(not name.strip().rpartition(".")[2][:1].isupper() for name in found[1].split(","))


def _broken(printed: Printed, place: Path, path: str, compared: bool) -> Iterator[str]:
    if any(word in printed.line for word in UNKNOWN):
        return
    if PLACEHOLDERS.search(printed.line):
        yield f"is not complete: {printed.line}"
    with within(place):
        came = said(*printed.words[1:])
        if came.status not in (0, 1):
            yield f"ends with {came.status}: {printed.line}\n{came.text}"
        elif came.text.startswith("refused") and _TELLS not in f"{printed.above} {printed.before}":
            yield f"is refused: {printed.line}\n{came.text}"
        elif came.text.startswith("error:") or (came.status == 1 and printed.words[1] in ("convert", "merge")):
            yield f"fails: {printed.line}\n{came.text}"
        elif came.status == 1 and printed.words[1] == "fix" and not re.search("left ·|refused ·|next ·", came.text):
            yield f"ends with 1 and does not say why: {printed.line}\n{came.text}"
        wrote = re.search(r"^wrote (\S+) in", came.text, flags=re.MULTILINE)
        if printed.words[1] == "fix" and wrote is not None and not _is_named(printed, compared):
            yield from (f"drops {key}: {printed.line}" for key in _lost(path, wrote[1]))


def _is_named(printed: Printed, compared: bool) -> bool:
    """Whether what is left out is named by the command itself, or decided by a target that has no place for it."""
    chosen = {"--root", "--drop", "--keep"}.intersection(printed.words)
    return bool(chosen) or compared


def _lost(before: str, after: str) -> list[str]:
    """Weights of which nothing is in the output: not their values, nor what was worked out of them; counts aside."""
    try:
        sets = check(before).checkpoint
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is damaged is known
            there, here = (dict(_tensors(load(path, strict=False))) for path in (before, after))
    except CkptDoctorError:
        return []
    weights = {tensor.key for each in (sets.state_dicts if sets is not None else ()) for tensor in each.tensors}
    values = {_bytes(value) for value in here.values()}
    names = {name.rpartition("/")[2] for name in here}
    return [
        name
        for name, value in there.items()
        if name.rpartition("/")[2] in weights - names
        and name.rpartition("/")[2].removesuffix("_orig").removesuffix("_mask") not in names
        and value.numel() > 1
        and _bytes(value) not in values
    ]


def _tensors(value: object, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _tensors(each, f"{path}/{key}")
    elif isinstance(value, (list, tuple)):
        for at, each in enumerate(value):
            yield from _tensors(each, f"{path}/{at}")


def _bytes(tensor: torch.Tensor) -> bytes:
    try:
        return repr(tensor.detach().to(torch.float64).flatten().tolist()).encode()
    except (RuntimeError, NotImplementedError, TypeError):
        return repr(tensor).encode()
