"""The laws that every rule keeps, whoever wrote it."""

from __future__ import annotations

import inspect
import re
import shlex
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from ckptdoctor.cli.fix import command
from ckptdoctor.edits import Cast, Fix, Safety
from ckptdoctor.engine.diagnose import check
from ckptdoctor.engine.plan import plan
from ckptdoctor.engine.repair import repair
from ckptdoctor.engine.request import FixRequest
from ckptdoctor.engine.selection import Selection
from ckptdoctor.engine.settings import Settings
from ckptdoctor.findings import Finding
from ckptdoctor.loading import load
from ckptdoctor.loading.inert import Inert
from ckptdoctor.rules.examples import Example
from ckptdoctor.rules.framework import SECTIONS, Rule
from ckptdoctor.rules.registry import all_rules
from tests.builders import build, build_like

RULES = all_rules()
CODE = re.compile(r"[A-Z]{1,2}\d{3}")
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

each_rule = pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.code) for rule in RULES])


def _examples(*kinds: str) -> list[Any]:
    return [
        pytest.param(rule, example, id=f"{rule.code}-{example.title}")
        for rule in RULES
        for kind in kinds
        for example in getattr(rule, kind)
    ]


each_sick_example = pytest.mark.parametrize(("rule", "example"), _examples("sick"))


def test_codes_and_names_are_unique() -> None:
    """No two rules share a code or a name."""
    assert len({rule.code for rule in RULES}) == len(RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


@each_rule
def test_codes_and_names_have_their_form(rule: Rule) -> None:
    """A code is a family's letters and three digits; a name is words joined by hyphens."""
    assert CODE.fullmatch(rule.code)
    assert NAME.fullmatch(rule.name)


@each_rule
def test_a_file_is_called_after_its_rule(rule: Rule) -> None:
    """``module-prefix`` lives in ``module_prefix.py``, and so does its function."""
    assert Path(inspect.getfile(rule.body)).stem == rule.name.replace("-", "_")
    assert rule.body.__name__ == rule.name.replace("-", "_")


@each_rule
def test_the_page_is_complete(rule: Rule) -> None:
    """A sentence, then every section in order, none of them empty, and the rule's own code nowhere wrong."""
    assert rule.summary.endswith(".")
    headings = [line for line in rule.page.splitlines() if line in SECTIONS]
    assert headings == list(SECTIONS)
    parts = re.split(rf"^(?:{'|'.join(SECTIONS)})$", rule.page, flags=re.MULTILINE)
    assert all(part.strip() for part in parts)
    assert all(part.startswith("\n    ") for part in parts[1:])
    asked = re.findall(r"--select ([A-Z]\d{3})", rule.page)
    assert set(asked) <= {rule.code}


@each_rule
def test_there_are_examples_of_both_kinds(rule: Rule) -> None:
    """At least one sick and one healthy file, each with a title of its own."""
    assert rule.sick
    assert rule.healthy
    titles = [example.title for example in (*rule.sick, *rule.healthy)]
    assert len(set(titles)) == len(titles)


@each_sick_example
def test_a_sick_example_is_found(rule: Rule, example: Example, tmp_path: Path) -> None:
    """The rule finds its sick files, made with real torch; also where only the rules that they concern are asked."""
    path = build(example, tmp_path)
    assert _found(rule, example, path, tmp_path)
    if example.like is None and not example.deep:
        assert rule.code in {finding.code for finding in check(str(path)).findings}


@pytest.mark.parametrize(("rule", "example"), _examples("healthy"))
def test_a_healthy_example_is_left_alone(rule: Rule, example: Example, tmp_path: Path) -> None:
    """The rule finds nothing in its healthy files."""
    assert _found(rule, example, build(example, tmp_path), tmp_path) == []


@each_sick_example
def test_a_message_is_one_sentence_without_a_full_stop(rule: Rule, example: Example, tmp_path: Path) -> None:
    """One line that can stand in a table; the cause is whole sentences."""
    for found in _found(rule, example, build(example, tmp_path), tmp_path):
        assert found.message
        assert "\n" not in found.message
        assert not found.message.endswith(".")
        assert not found.cause or found.cause[-1] in ".!?"


@each_sick_example
def test_a_fix_can_be_asked_for(rule: Rule, example: Example, tmp_path: Path) -> None:
    """The command that a finding names is one that ``ckptdoctor fix`` understands."""
    path = build(example, tmp_path)
    for fix in _fixes(rule, example, path, tmp_path):
        assert fix.edits
        assert _request(path, tmp_path / "out.pt", fix) is not None


@each_sick_example
def test_the_cure_heals_and_is_idempotent(rule: Rule, example: Example, tmp_path: Path) -> None:
    """After the commands that the findings name, nothing is left to cure, and nothing is cured again."""
    path = build(example, tmp_path)
    if not _fixes(rule, example, path, tmp_path):
        pytest.skip("no repair is offered")
    cured = _cured(rule, example, path, tmp_path)
    assert _fixes(rule, example, cured, tmp_path) == []
    again = plan(FixRequest(str(cured), selection=Selection(select=(rule.code,)), unsafe=True))
    assert again.recipe is None


@each_sick_example
def test_a_safe_cure_changes_no_value(rule: Rule, example: Example, tmp_path: Path) -> None:
    """What a safe cure leaves in the file is bit for bit what was in it, and in the same order."""
    path = build(example, tmp_path)
    fixes = _fixes(rule, example, path, tmp_path)
    if not fixes or any(fix.safety is not Safety.SAFE for fix in fixes):
        pytest.skip("no safe repair is offered")
    if any(isinstance(edit, Cast) for fix in fixes for edit in fix.edits):
        pairs = zip(_tensors(load(path)), _tensors(load(_cured(rule, example, path, tmp_path))), strict=True)
        assert all(torch.equal(one, other.to(one.dtype)) for one, other in pairs), "casting back gives what was there"
        return
    before = [_bytes(tensor) for tensor in _tensors(load(path))]
    after = [_bytes(tensor) for tensor in _tensors(load(_cured(rule, example, path, tmp_path)))]
    kinds = {type(edit).__name__ for fix in fixes for edit in fix.edits}
    if "Drop" in kinds:
        rest = iter(before)
        assert all(value in rest for value in after), "what is left must be a part of what was there, in its order"
    elif "Tie" in kinds:
        rest = iter(after)
        assert all(value in rest for value in before), "what was there must be there still, in its order"
        assert all(value in before for value in after), "what comes must be a copy"
    else:
        assert after == before


@cache
def _settings(code: str, deep: bool, like: str | None) -> Settings:
    return Settings(selection=Selection(select=(code,)), deep=deep, like=like)


def _found(rule: Rule, example: Example, path: Path, folder: Path) -> list[Finding]:
    like = None
    if example.like is not None:
        reference = folder / "reference"
        reference.mkdir(exist_ok=True)
        like = str(build_like(example, reference))
    report = check(str(path), _settings(rule.code, example.deep, like))
    return [finding for finding in report.findings if finding.code == rule.code]


def _fixes(rule: Rule, example: Example, path: Path, folder: Path) -> list[Fix]:
    return [found.fix for found in _found(rule, example, path, folder) if found.fix is not None]


def _request(path: Path, output: Path, fix: Fix) -> FixRequest:
    """The request that the command line makes of a fix's option."""
    from ckptdoctor.cli.fix import _request as request

    words = [str(path), "-o", str(output), *shlex.split(fix.option)]
    if fix.safety is not Safety.SAFE:
        words.append("--unsafe-fixes")
    with command.make_context("fix", words) as context:
        apart = ("diff", "style", "color", "write_map")
        asked = {key: value for key, value in context.params.items() if key not in apart}
    return request(**asked)


def _cured(rule: Rule, example: Example, path: Path, folder: Path) -> Path:
    """The file after the commands of the rule's findings, one after another until there is none."""
    for number in range(8):
        fixes = _fixes(rule, example, path, folder)
        if not fixes:
            break
        target = folder / f"cured{number}"
        target.mkdir(exist_ok=True)
        output = Path(repair(plan(_request(path, target, fixes[0]))).plan.output)
        path = _with_index(path, output) if path.is_dir() and output.suffix == ".json" else output
    return path


def _with_index(folder: Path, index: Path) -> Path:
    """A copy of the folder, beside the new index, with that in it."""
    copy = index.parent / "folder"
    shutil.copytree(folder, copy)
    shutil.copy(index, copy)
    return copy


def _tensors(value: object) -> Iterator[torch.Tensor]:
    """The tensors in plain data and in objects that were not made, in their order."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, Inert):
            stack += [*reversed(value.items), value.state]
        elif isinstance(value, dict):
            stack.extend(reversed(list(value.values())))
        elif isinstance(value, (list, tuple)):
            stack.extend(reversed(value))


def _bytes(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], bytes]:
    if tensor.is_meta:
        return str(tensor.dtype), tuple(tensor.shape), b""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return str(tensor.dtype), tuple(tensor.shape), repr(tensor).encode()
    plain = tensor.detach().contiguous().view(-1)
    raw = plain.view(torch.uint8) if plain.numel() else plain
    return str(tensor.dtype), tuple(tensor.shape), bytes(raw.tolist()) if plain.numel() else b""
