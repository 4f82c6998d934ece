"""The account of a repair is silent on what is right, and names every wrong result that is planted."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch

import ckptdoctor.repair.draft as drafted
from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.changed_trees import with_tree
from ckptdoctor.cli.main import run
from ckptdoctor.edits import Edit
from ckptdoctor.edits.applied.apply_edits import apply
from ckptdoctor.errors import CkptDoctorError, UnprovenError
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.request import FixRequest
from tests.account.repairs import CASES, EXAMPLES, plan_of
from tests.account.sabotage import RECORD, SABOTEURS, Right, sabotages
from tests.repair.checkpoints import save
from tests.rules.sick import NONE, SICK, Case, recorded, request_for

ACCOUNT = Path(__file__).parent.parent.parent / "ckptdoctor" / "account"
EVERY = frozenset((*CASES, *EXAMPLES))

# saboteur → the repairs in which the account does not see it, and why: what carries that instead
NOT_SEEN: dict[str, tuple[frozenset[str], str]] = {
    "another-role": (
        EVERY,
        "roles are read off the tree by the reader's own find_state_dicts, no byte is written by them, and they are "
        "compared with the output's (tests/prove/test_same_contents.py: test_what_lies_around_the_tree)",
    ),
    "nothing-done": (
        frozenset({"repickle"}),
        "a pickle's protocol is not in the nouns (tests/formats/torch/patch/test_repickle.py: "
        "test_the_pickle_is_the_one_that_torch_writes)",
    ),
    "an-edit-forgotten": (frozenset({"repickle"}), "the same"),
}

# what the account asks of the edits and of facts that whoever applies edits asks, too: a fault in these is not seen,
# and each has tests against torch or by hand of its own
SHARED = {
    "ckptdoctor.edits.renaming": {"renamed_modules", "renamed_ties"},
    "ckptdoctor.edits.tensors": {"gone_keys", "place_of", "runs", "sources", "with_new"},
    "ckptdoctor.facts": {"devices"},
    "ckptdoctor.facts.numpy_values": {"BYTES", "array_values", "held_values", "of_python_2"},
    "ckptdoctor.facts.reader_notes": {"metadata_notes"},
    "ckptdoctor.facts.devices": {"FROM_CPU", "MOVERS", "OF_ARRAYS", "OF_EMPTY_ARRAYS", "UTILS"},
}
# classes and words of data, which do nothing, and what such classes are made with
DATA = {"ckptdoctor.edits", "ckptdoctor.edits.elements", "ckptdoctor.edits.kinds", "ckptdoctor.noun"}
DATA |= {"ckptdoctor.edits.computing", "ckptdoctor.edits.quantization"}

each_repair = pytest.mark.parametrize("name", [*CASES, *EXAMPLES])


@pytest.fixture(scope="module")
def rights() -> dict[str, Right]:
    """Right repairs by name, each made once."""
    return {}


@pytest.fixture
def right(name: str, rights: dict[str, Right], tmp_path: Path) -> Right:
    """A right repair of a real file."""
    if name not in rights:
        rights[name] = Right.of(plan_of(name, tmp_path))
    return rights[name]


def test_there_is_a_repair_of_every_kind():
    """A new kind of edit is tried here, too."""
    made = {kind for kinds, *_ in (*CASES.values(), *EXAMPLES.values()) for kind in kinds}
    assert made == set(get_args(Edit))


@each_repair
def test_a_right_repair_is_accounted_for(name: str, right: Right):
    """The account says nothing, and the repair is of the kinds that it stands for."""
    assert {type(edit) for edit in right.edits} == set((CASES.get(name) or EXAMPLES[name])[0])
    assert right.discrepancy() is None


@pytest.mark.parametrize("most", [4, pytest.param(None, marks=pytest.mark.slow)])
@each_repair
def test_every_planted_fault_is_named(name: str, right: Right, most: int | None):
    """But for those that are known not to be seen, each of which is carried by another test."""
    silent = Counter(saboteur for saboteur, wrong in sabotages(right, most) if wrong.discrepancy() is None)
    assert silent.keys() == {saboteur for saboteur, (names, _) in NOT_SEEN.items() if name in names}


@each_repair
def test_the_saboteurs_of_each_repair_are_those_recorded(name: str, right: Right):
    """No saboteur falls silent itself: ``python -m tests.account.sabotage`` writes the record anew."""
    record = dict(line.split(": ", 1) for line in RECORD.read_text(encoding="utf-8").splitlines())
    assert record.keys() == EVERY
    assert list(dict.fromkeys(saboteur for saboteur, _ in sabotages(right, 1))) == record[name].split()


def test_every_saboteur_finds_something_to_do():
    """Each is tried on at least one repair."""
    assert set(RECORD.read_text(encoding="utf-8").replace(":", " ").split()) >= SABOTEURS.keys()


def test_what_is_not_seen_is_carried_by_tests_that_are_there():
    """Each reason names a file of tests and a test in it."""
    reasons = [why for _, why in NOT_SEEN.values() if why != "the same"]
    for why in reasons:
        file, test = why[why.rindex("(") + 1 :].rstrip(")").split(": ")
        assert f"def {test.strip()}(" in (ACCOUNT.parent.parent / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("most", [2, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "example", [each for each, repairs in recorded().items() if repairs != NONE], ids=lambda each: "-".join(each)
)
def test_repairs_of_sick_examples_are_accounted_for(example: tuple[str, str], most: int | None, tmp_path: Path):
    """Nothing is said of what rules repair, and every saboteur of it is named."""
    case = Case(*SICK[example], tmp_path)
    for number, fix in enumerate(case.fixes):
        (tmp_path / f"out{number}").mkdir()
        try:
            planned = plan(request_for(case.path, tmp_path / f"out{number}", fix))
        except CkptDoctorError as error:  # a plan that its option alone does not make is not this test's
            assert "bug" not in error.message
            continue
        right = Right.of(planned)
        assert right.discrepancy() is None
        silent = {saboteur for saboteur, wrong in sabotages(right, most) if wrong.discrepancy() is None}
        assert silent <= NOT_SEEN.keys()


# ---- where it stands in a repair


def _faulty(checkpoint: Checkpoint, edits: object) -> Checkpoint:
    """What an ``apply`` gives that exchanges the bytes of two tensors."""
    made = apply(checkpoint, edits)  # type: ignore[arg-type]  # as it is called
    first, second, *rest = made.tree.entries  # type: ignore[union-attr]  # a dict
    (one, a), (other, b) = first, second
    swapped = ((one, replace(a, storage=b.storage)), (other, replace(b, storage=a.storage)))
    return with_tree(made, replace(made.tree, entries=(*swapped, *rest)))


@pytest.fixture
def prefixed(tmp_path: Path) -> Path:
    """A file whose prefix is to go."""
    return save({f"module.{name}": torch.arange(6.0) + ord(name) for name in "abc"}, tmp_path / "model.pt")


def test_a_plan_that_does_not_add_up_is_refused(
    prefixed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """With one sentence that says what would be wrong and that it is a bug; nothing is written."""
    before = prefixed.read_bytes()
    monkeypatch.setattr(drafted, "apply", _faulty)
    with pytest.raises(UnprovenError, match="more than its edits name: a would be on storage 1 instead of 0"):
        plan(FixRequest(str(prefixed), strip_module=True))
    assert run(["fix", str(prefixed), "--strip-module"]) == 1
    said = capsys.readouterr().out
    assert "Nothing was written. This is a bug in ckptdoctor; please report it." in said
    assert [each.name for each in prefixed.parent.iterdir()] == ["model.pt"]
    assert prefixed.read_bytes() == before


def test_the_right_plan_is_not_refused(prefixed: Path):
    """The same without the fault."""
    assert plan(FixRequest(str(prefixed), strip_module=True)).recipe is not None


def test_a_check_does_without_it(prefixed: Path):
    """It is imported where a plan is made, and nowhere else; and then without torch and numpy."""
    code = (
        "import sys; from ckptdoctor.cli.main import run; run(sys.argv[1:]); "
        "print(*[name for name in ('ckptdoctor.account', 'torch', 'numpy') if name in sys.modules], file=sys.stderr)"
    )
    wanted = {"check": "", "fix": "ckptdoctor.account"}
    for command, modules in wanted.items():
        words = [sys.executable, "-c", code, command, str(prefixed), *(["--strip-module"] if command == "fix" else [])]
        result = subprocess.run(words, capture_output=True, text=True, check=True)
        assert result.stderr.strip() == modules


# ---- what it shares with what it checks


def _imported() -> Iterator[tuple[str, str]]:
    for path in ACCOUNT.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ckptdoctor"):
                yield from ((str(node.module), alias.name) for alias in node.names)


def test_the_account_shares_no_more_than_is_said():
    """Nouns, errors, edits as data, and the few functions of ``SHARED``: nothing that plans or applies."""
    found: dict[str, set[str]] = {}
    for module, name in _imported():
        if (
            not module.startswith(("ckptdoctor.checkpoint", "ckptdoctor.errors", "ckptdoctor.account"))
            and module not in DATA
        ):
            found.setdefault(module, set()).add(name)
    assert found == SHARED
