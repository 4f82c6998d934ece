import pytest

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.errors import UsageError
from ckptdoctor.rules.registry import all_rules


def codes(**choices):
    """The codes that a selection leaves."""
    return [rule.code for rule in Selection(**choices).chosen(all_rules())]


def test_everything_by_default():
    """Without a choice every rule runs."""
    assert codes() == [rule.code for rule in all_rules()]


@pytest.mark.parametrize("choice", ["N401", "n401", "module-prefix", "Module-Prefix", " N401 "])
def test_one_rule_by_code_or_name(choice):
    """A rule is chosen by its code or its name, whatever the case."""
    assert codes(select=(choice,)) == ["N401"]


def test_a_prefix_chooses_a_family():
    """A letter, or a letter and a digit, means every rule whose code begins so."""
    assert codes(select=("N",)) == [rule.code for rule in all_rules() if rule.code.startswith("N")]
    assert "N401" in codes(select=("N4",))


def test_ignore_takes_away():
    """An ignored rule does not run, be it ignored by code or by family."""
    assert "N401" not in codes(ignore=("N401",))
    assert not [code for code in codes(ignore=("N",)) if code.startswith("N")]


def test_the_more_specific_choice_wins():
    """A rule named in full runs though its family is ignored, and the other way round."""
    assert codes(select=("N401",), ignore=("N",)) == ["N401"]
    assert "N401" in codes(extend_select=("N401",), ignore=("N",))
    assert "N401" not in codes(select=("N",), ignore=("N401",))
    assert codes(select=("N401",), ignore=("N401",)) == []


def test_extend_select_adds():
    """What is added to a choice runs beside it."""
    assert codes(select=("N401",), extend_select=("D601",)) == ["D601", "N401"]


@pytest.mark.parametrize("choice", [{"select": ("Q999",)}, {"ignore": ("nonsense",)}, {"extend_select": ("",)}])
def test_an_unknown_code_is_a_usage_error(choice):
    """A choice that fits no rule is refused, and the message says where to look."""
    with pytest.raises(UsageError, match="ckptdoctor rules"):
        codes(**choice)
