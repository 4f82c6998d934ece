import pytest

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.errors import UsageError
from ckptdoctor.rules.registry import all_rules
from tests.commands import run_here


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


@pytest.mark.parametrize(
    ("choice", "offer"),
    [
        ("N4O1", ' Did you mean "N401"?'),  # a letter
        ("modul-prefix", ' Did you mean "module-prefix"?'),
        ("N499", " List them: ckptdoctor rules"),
        ("xyzzyxyzzy", " List them: ckptdoctor rules"),
    ],
)
def test_a_mistyped_code_is_answered_with_what_was_meant(choice, offer):
    """The nearest code or name, or where to find them."""
    with pytest.raises(UsageError) as caught:
        codes(select=(choice,))
    assert caught.value.message == f'There is no rule "{choice}".{offer}'


def test_a_mistyped_code_in_a_file_of_settings(tmp_path):
    """The file and the setting are named, unless an option replaces them."""
    (tmp_path / "ckptdoctor.toml").write_text('select = ["N"]\nignore = ["N4O1"]\n')
    (tmp_path / "m.pt").write_bytes(b"")
    for command in (["check", "m.pt"], ["fix", "m.pt"], ["report", "m.pt"]):
        done = run_here(*command, cwd=tmp_path)
        assert done.stderr == b'error: ckptdoctor.toml: ignore: There is no rule "N4O1". Did you mean "N401"?\n'
    assert b"no rule" not in run_here("check", "m.pt", "--ignore", "N4", cwd=tmp_path).stderr
    assert run_here("check", "m.pt", "--select", "N4O2", cwd=tmp_path).stderr.startswith(b"error: There is no rule")
