"""The laws that every rule keeps, whoever wrote it.

A sick example is made once, and what its rule finds in it is looked for once: the laws share the ``case``.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.edits import Cast, Safety
from ckptdoctor.examine.file import check
from ckptdoctor.loading import Inert, load
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.rules.examples import Example
from ckptdoctor.rules.framework import SECTIONS, Rule
from ckptdoctor.rules.registry import all_rules
from tests.rules.sick import NONE, SICK, Case, Name, recorded, request_for

RULES = all_rules()
CODE = re.compile(r"[A-Z]{1,2}\d{3}")
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

each_rule = pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.code) for rule in RULES])


def _cases(names: Iterable[Name]) -> Any:
    """A test of these examples. All tests of one example run one after another: they are grouped by its name."""
    names = list(names)
    return pytest.mark.parametrize("case", names, ids=["-".join(name) for name in names], indirect=True)


RECORD = recorded()
each_sick_example = _cases(SICK)
each_with_a_repair = _cases(name for name, repairs in RECORD.items() if repairs != NONE)
each_with_a_safe_repair = _cases(name for name, repairs in RECORD.items() if repairs == Safety.SAFE.value)
each_healthy_example = pytest.mark.parametrize(
    ("rule", "example"),
    [pytest.param(rule, example, id=f"{rule.code}-{example.title}") for rule in RULES for example in rule.healthy],
)


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A sick example by its name."""
    return Case(*SICK[request.param], tmp_path_factory.mktemp("sick"))


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
def test_a_sick_example_is_found(case: Case) -> None:
    """The rule finds its sick files, made with real torch; also where only the rules that they concern are asked."""
    assert case.found
    if case.example.like is None and not case.example.deep:
        assert case.rule.code in {finding.code for finding in check(str(case.path)).findings}


@each_healthy_example
def test_a_healthy_example_is_left_alone(rule: Rule, example: Example, tmp_path: Path) -> None:
    """The rule finds nothing in its healthy files."""
    assert Case(rule, example, tmp_path).found == []


@each_sick_example
def test_a_message_is_one_sentence_without_a_full_stop(case: Case) -> None:
    """One line that can stand in a table; the cause is whole sentences."""
    for found in case.found:
        assert found.message
        assert "\n" not in found.message
        assert not found.message.endswith(".")
        assert not found.cause or found.cause[-1] in ".!?"


def test_the_record_of_repairs_names_every_example() -> None:
    """Each sick example has its line, in the order of rules: ``python -m tests.rules.sick`` writes them."""
    assert list(RECORD) == list(SICK)


@each_sick_example
def test_an_example_has_the_repairs_that_are_recorded(case: Case) -> None:
    """No rule loses a repair, gets one, or offers it as safe or no longer as safe, without its line being changed."""
    assert case.repairs == RECORD.get(case.name), "is this meant? python -m tests.rules.sick writes the record anew"


@each_with_a_repair
def test_a_fix_can_be_asked_for(case: Case, tmp_path: Path) -> None:
    """The command that a finding names is one that ``ckptdoctor fix`` understands."""
    assert case.fixes
    for fix in case.fixes:
        assert fix.edits
        assert request_for(case.path, tmp_path / "out.pt", fix) is not None


@each_with_a_repair
def test_the_fix_works_and_is_idempotent(case: Case) -> None:
    """After the commands that the findings name, nothing is left to fix, and nothing is fixed again."""
    assert case.fixed != case.path
    assert case.fixes_of(case.fixed) == []
    again = plan(FixRequest(str(case.fixed), selection=Selection(select=(case.rule.code,)), unsafe=True))
    assert again.recipe is None


@each_with_a_safe_repair
def test_a_safe_fix_changes_no_value(case: Case) -> None:
    """What a safe fix leaves in the file is bit for bit what was in it, and in the same order."""
    edits = [edit for fix in case.fixes for edit in fix.edits]
    if any(isinstance(edit, Cast) for edit in edits):
        pairs = zip(_tensors(load(case.path)), _tensors(load(case.fixed)), strict=True)
        assert all(torch.equal(one, other.to(one.dtype)) for one, other in pairs), "casting back gives what was there"
        return
    kinds = {type(edit).__name__ for edit in edits}
    # an array that becomes a tensor is the tensor that torch makes of it
    contents = torch.load(case.path, weights_only=False) if "MakeTensors" in kinds else _sick(case.path)
    before = [_bytes(tensor) for tensor in _tensors(contents)]
    after = [_bytes(tensor) for tensor in _tensors(load(case.fixed))]
    if "Drop" in kinds:
        rest = iter(before)
        assert all(value in rest for value in after), "what is left must be a part of what was there, in its order"
    elif "Tie" in kinds:
        rest = iter(after)
        assert all(value in rest for value in before), "what was there must be there still, in its order"
        assert all(value in before for value in after), "what comes must be a copy"
    else:
        assert after == before


def _sick(path: Path) -> object:
    """What a file holds that safetensors may refuse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load(path, strict=False)


def _tensors(value: object) -> Iterator[torch.Tensor]:
    """The tensors and arrays in plain data and in objects that were not made, in their order."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, np.ndarray):
            yield torch.from_numpy(value)
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
