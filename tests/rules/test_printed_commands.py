"""Every command that ``check`` and ``fix`` print for a sick file is complete, works on that file, and loses nothing."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ckptdoctor.checkpoint import show_path
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.examine.file import check
from ckptdoctor.loading import load
from ckptdoctor.rules.examples import Example
from tests.builders import build, build_like
from tests.rules.printed import PLACEHOLDERS, UNKNOWN, Printed, Said, commands, said, within
from tests.rules.sick import SICK

# what a line says that ends in a command which may well be refused: that it tells what would do
_TELLS = "or that nothing does"
# options with which one of several parts is taken: each part has a command of its own
_CHOICE = {"--root", "--keep"}
# what models, modules and quantising work out themselves, and what a weight was multiplied with
_NO_WEIGHTS = re.compile(
    r"activation_post_process|_extra_state$|attn\.(?:masked_)?bias$|inv_freq$|relative_position_index$|position_ids$|_mask$"
)
_ALLOWED = re.compile(r"add_safe_globals\(\[(.*?)\]\)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the examples are made."""
    return tmp_path_factory.mktemp("printed")


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_printed_command_keeps_its_promise(folder: Path, scale, every: bool) -> None:
    """Each is run in the folder of its example: it is no usage error, is not refused, and drops no only copy."""
    names = list(SICK)
    scale = replace(scale, seconds=None if every or scale.whole else scale.seconds / 3)
    if not scale.whole:  # others in every run with another seed
        next(iter(scale.cases(1)))[1].shuffle(names)
    wrong: list[str] = []
    for case, _ in scale.cases(len(names), at_least=20):
        code, title = names[case]
        place = folder / f"{every} {case}"
        place.mkdir()
        example = SICK[names[case]][1]
        wrong += [f"{code} {title}: {each}" for each in _wrong(example, place)]
    assert not wrong, "\n".join(wrong)


def test_what_only_this_file_holds_is_left_out_by_a_confirmed_map_alone(tmp_path: Path) -> None:
    """Of a head that the target lacks no drop is printed, but a draft; confirmed, it leaves the head out."""
    example = SICK["R002", "a head that the target lacks"][1]
    path = build(example, tmp_path).name
    like = build_like(example, tmp_path).name
    with within(tmp_path):
        texts = [said("check", path, "--like", like).text, said("fix", path, "--like", like).text]
        assert all("--write-map" in text and "--drop" not in text for text in texts)
        assert not any("--unsafe-fixes" in each.words for text in texts for each in commands(text))
        (draft,) = [each for each in commands(texts[0]) if "--write-map" in each.words]
        came = said(*draft.words[1:])
        assert came.status == 1
        (confirmed,) = [each for each in commands(came.text) if "--map" in each.words]
        assert said(*confirmed.words[1:]).text.startswith("refused"), "nobody has confirmed it"
        _confirm(Path(draft.words[draft.words.index("--write-map") + 1]))
        wrote = re.search(r"^wrote (\S+) in", said(*confirmed.words[1:]).text, flags=re.MULTILINE)
        assert wrote is not None
        assert list(torch.load(wrote[1])) == list(torch.load(like))


def _wrong(example: Example, place: Path) -> Iterator[str]:
    path = os.path.relpath(build(example, place), place)
    like = [] if example.like is None else ["--like", os.path.relpath(build_like(example, place), place)]
    with within(place):
        texts = [said("check", path, *like, *(["--deep"] if example.deep else [])).text]
        texts.append(said("fix", path, *like, "--diff").text)
        texts.append(said("fix", path, *like, "--unsafe-fixes", "--diff").text)
    for text in texts:
        yield from (f"names a function that acts: {line}" for line in text.splitlines() if _admits_a_function(line))
        choices: list[tuple[str, set[str]]] = []
        for printed in commands(text):
            yield from _broken(printed, place, path, choices)
        for line, lost in choices:  # what one of them leaves out another one takes
            rest = set.intersection(*[each for _, each in choices])
            yield from (f"no other choice keeps {key}: {line}" for key in sorted(lost & rest))


def _admits_a_function(line: str) -> bool:
    """Classes begin with a capital letter; what does not is a function, and torch would call it."""
    found = _ALLOWED.search(line)
    return found is not None and any(
        not name.strip(' ("').rpartition(".")[2][:1].isupper() for name in found[1].split(",")
    )


def _broken(printed: Printed, place: Path, path: str, choices: list[tuple[str, set[str]]]) -> Iterator[str]:
    if any(word in printed.line for word in UNKNOWN):
        return
    if PLACEHOLDERS.search(printed.line):
        yield f"is not complete: {printed.line}"
    with within(place):
        came = said(*printed.words[1:])
        if "--write-map" in printed.words:
            yield from _undrafted(printed, came)
            return
        if "--map" in printed.words:  # of the draft that the line above it writes
            return
        if came.status not in (0, 1):
            yield f"ends with {came.status}: {printed.line}\n{came.text}"
        elif came.text.startswith("refused") and _TELLS not in f"{printed.above} {printed.before}":
            yield f"is refused: {printed.line}\n{came.text}"
        elif came.text.startswith("error:") or (came.status == 1 and printed.words[1] in ("convert", "merge")):
            yield f"fails: {printed.line}\n{came.text}"
        elif came.status == 1 and printed.words[1] == "fix" and not re.search("left ·|refused ·|next ·", came.text):
            yield f"ends with 1 and does not say why: {printed.line}\n{came.text}"
        wrote = re.search(r"^wrote (\S+) in", came.text, flags=re.MULTILINE)
        lost = _lost(path, wrote[1]) if printed.words[1] == "fix" and wrote is not None else []
        if lost and _CHOICE.intersection(printed.words) and "--drop" not in printed.words:
            choices.append((printed.line, set(lost)))
        else:
            yield from (f"drops {key}: {printed.line}" for key in lost)


def _undrafted(printed: Printed, came: Said) -> Iterator[str]:
    """What is wrong with a draft map: it is to be written, and once it is confirmed, the command for it carried out."""
    path = Path(printed.words[printed.words.index("--write-map") + 1])
    then = [each for each in commands(came.text) if "--map" in each.words]
    if came.status != 1 or not path.exists() or len(then) != 1:
        yield f"drafts nothing: {printed.line}\n{came.text}"
        return
    _confirm(path)
    applied = said(*then[0].words[1:])
    if not re.search(r"^wrote \S+ in", applied.text, flags=re.MULTILINE):
        yield f"is refused once it is confirmed: {then[0].line}\n{applied.text}"


def _confirm(path: Path) -> None:
    """Take every mark of a draft map as it is proposed."""
    draft = json.loads(path.read_text(encoding="utf-8"))
    names = draft["names"]
    for old, mark in names.items():
        if isinstance(mark, dict) and "uncertain" in mark:
            turned = mark.get("transposed", False)
            names[old] = {"to": mark["to"], "transposed": True} if turned else mark["to"]
    path.write_text(json.dumps(draft), encoding="utf-8")


def _lost(before: str, after: str) -> list[str]:
    """Weights of which nothing is in the output: not their values, nor what was worked out of them."""
    try:
        found = check(before).checkpoint
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is damaged is known
            there, here = (dict(_tensors(load(path, strict=False))) for path in (before, after))
    except CkptDoctorError:
        return []
    sets = weights_among(found.state_dicts) if found is not None else []
    weights = {f"/{show_path(tensor.path)}" for each in sets for tensor in each.tensors}
    values, known = ({_bytes(value) for value in each.values()} for each in (here, there))
    names = {path.rpartition("/")[2] for path in here}
    gone = {
        key: value
        for path, value in there.items()
        if path in weights and (key := path.rpartition("/")[2]) not in names and _bytes(value) not in values
        if value.numel() > 1 and not _NO_WEIGHTS.search(key)
    }
    made = {path.rpartition("/")[2]: value for path, value in here.items() if _bytes(value) not in known}
    if sum(each.numel() for each in made.values()) >= sum(each.numel() for each in gone.values()):
        return []  # it was split, fused or turned
    whole = [_numbers(each) for each in here.values()]
    return [key for key, value in gone.items() if not any(_beside(key, new) for new in made) and not _cut(value, whole)]


def _cut(value: torch.Tensor, parts: list[list[float]]) -> bool:
    """Whether a tensor was cut into some of these."""
    numbers = _numbers(value)
    some = [each for each in parts if 1 < len(each) < len(numbers)]
    return any(numbers[: len(each)] == each for each in some) and any(numbers[-len(each) :] == each for each in some)


def _beside(key: str, made: str) -> bool:
    """Whether a tensor that was made lies where this one lay: it went into it."""
    ours, theirs = (each.rpartition(".")[0] for each in (key, made))
    return key.startswith(f"{theirs}.") or made.startswith(f"{ours}.") if ours and theirs else False


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
    return repr(_numbers(tensor) or tensor).encode()


def _numbers(tensor: torch.Tensor) -> list[float]:
    """The values in their order; [] of what has none."""
    try:
        return list(tensor.detach().to(torch.float64).flatten().tolist())
    except (RuntimeError, NotImplementedError, TypeError):
        return []
