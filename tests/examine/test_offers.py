"""What findings offer as repairs, and the requests that a choice stands for."""

from __future__ import annotations

import pytest

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.edits import Drop, Fix, Safety
from ckptdoctor.examine.file import check
from ckptdoctor.examine.offers import AUTO, Offer, offers, planned, request_of, toggled, usual
from ckptdoctor.findings import Finding, Severity
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import preview
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.rules.examples import Obj, T
from tests import builders


@pytest.fixture
def sick(tmp_path):
    """Three things that are fixed safely, and one that is not."""
    path = tmp_path / "sick.pt"
    weights = {"module.fc.weight": T((2, 3), device="cuda:0"), "module.fc.bias": T((2,), device="cuda:0")}
    builders.save({"state_dict": weights, "args": Obj("argparse.Namespace", {"lr": 0.1})}, path)
    return str(path)


def found(path, settings=None):
    """The offers of a file."""
    report = check(path, settings)
    return offers(report.findings, report.coverage)


def test_safe_ones_are_chosen_to_begin_with(sick):
    """They come first, and stand for what a repair does where nothing is named."""
    offered = found(sick)
    assert [(each.code, each.safety) for each in offered] == [
        ("N401", Safety.SAFE),
        ("P201", Safety.SAFE),
        ("D601", Safety.SAFE),
        ("W301", Safety.UNSAFE),
    ]
    assert usual(offered) == {0, 1, 2}
    assert request_of(sick, offered, usual(offered)) == FixRequest(sick)


def test_another_choice_names_the_rules(sick):
    """Codes, and the word that unsafe repairs need."""
    offered = found(sick)
    request = request_of(sick, offered, {0, 3}, output="out.pt")
    assert request.selection.select == ("N401", "W301")
    assert (request.unsafe, request.output) == (True, "out.pt")
    assert [step.label for step in plan(request).steps] == ["N401", "W301"]


@pytest.mark.parametrize("chosen", [{0}, {1}, {2}, {3}, {0, 2}, {0, 1, 2, 3}], ids=str)
def test_the_plan_has_what_was_chosen_and_nothing_else(sick, chosen):
    """Whatever the choice: one step for each."""
    offered = found(sick)
    labels = {step.label for step in preview(planned(request_of(sick, offered, chosen))).steps}
    assert labels == {offered[at].code for at in chosen}


def test_towards_a_target(tmp_path):
    """What brings the file towards its target is one offer, which is chosen where all of it fits then."""
    builders.save({"fc.weight": T((2, 3)), "fc.bias": T((2,))}, tmp_path / "target.pt")
    builders.save({"net.fc.weight": T((2, 3)), "net.fc.bias": T((2,))}, tmp_path / "mine.pt")
    path, settings = str(tmp_path / "mine.pt"), Settings(like=str(tmp_path / "target.pt"))
    offered = found(path, settings)
    assert (offered[0].code, offered[0].usual) == (AUTO, True)
    assert "0 of 2 keys fit, 2 after" in offered[0].message
    request = request_of(path, offered, usual(offered), settings)
    assert request.auto
    assert set(planned(request, settings).expected.state_dicts[0].keys) == {"fc.weight", "fc.bias"}


def test_a_chain_that_the_target_decides_is_chosen(tmp_path):
    """Its steps are named once, and none of them asks for more than ``--auto`` does: not even one that takes a part."""
    weights = {"fc.weight": T((2, 3)), "fc.bias": T((2,))}
    builders.save(weights, tmp_path / "target.pt")
    wrapped = {f"module.{name}": tensor for name, tensor in weights.items()}
    builders.save({"epoch": 3, "state_dict": wrapped}, tmp_path / "mine.pt")
    path, settings = str(tmp_path / "mine.pt"), Settings(like=str(tmp_path / "target.pt"))
    offered = found(path, settings)
    assert [(each.code, each.safety, each.title) for each in offered] == [
        (AUTO, Safety.CONFIRMED, 'extract state_dict; strip "module."')
    ]
    request = request_of(path, offered, usual(offered), settings)
    assert (request.auto, request.unsafe) == (True, False)
    assert set(planned(request, settings).expected.state_dicts[0].keys) == set(weights)


def test_no_offer_where_all_fits(tmp_path):
    """A file that fits its target is not brought towards it."""
    for name in ("target.pt", "mine.pt"):
        builders.save({"fc.weight": T((2, 3))}, tmp_path / name)
    assert found(str(tmp_path / "mine.pt"), Settings(like=str(tmp_path / "target.pt"))) == []


def finding(code, safety=None, option="", severity=Severity.WARNING, advice=""):
    """A finding with such a repair."""
    fix = None if safety is None else Fix(f"fix {code}", (Drop((("a",),)),), safety, option or f"--select {code}")
    return Finding(code, code.lower(), severity, "something", advice=advice, fix=fix)


def test_refusals_are_listed_with_their_reason():
    """What cannot be repaired comes last and says why; remarks without a repair are left out."""
    offered = offers([finding("A703", advice="Tie it."), finding("A701", severity=Severity.INFO)])
    assert [(each.code, each.safety, each.why) for each in offered] == [("A703", None, "Tie it.")]
    assert toggled(offered, set(), 0) == frozenset()


def test_what_only_values_tell_is_dropped_by_pattern():
    """Rules that a plan does not run are asked for by what they drop."""
    offered = offers([finding("V651", Safety.UNSAFE, "--drop 'a b' --drop c")])
    request = request_of("x.pt", offered, {0})
    assert (request.drop, request.selection.select, request.unsafe) == (("a b", "c"), None, False)


def test_what_reads_every_value_is_not_usual():
    """Nothing named does not look for it, so it is not chosen to begin with."""
    assert usual(offers([finding("T554", Safety.SAFE)])) == frozenset()


def test_offers_of_one_rule_go_together_once_unsafe_ones_are_admitted():
    """Codes cannot tell them apart."""
    offered = [
        Offer("A703", "a", Severity.ERROR, Safety.SAFE, "", usual=True),
        Offer("B100", "b", Severity.ERROR, Safety.SAFE, "", usual=True),
        Offer("A703", "a", Severity.ERROR, Safety.UNSAFE, ""),
        Offer("C100", "c", Severity.ERROR, Safety.UNSAFE, ""),
    ]
    assert toggled(offered, {0, 1}, 3) == {0, 1, 2, 3}
    assert toggled(offered, {0, 1, 2, 3}, 2) == {1, 3}
    assert toggled(offered, {1, 3}, 3) == {1}
