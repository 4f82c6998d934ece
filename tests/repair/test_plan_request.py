from __future__ import annotations

from pathlib import Path

import pytest

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.errors import UsageError
from ckptdoctor.repair.request import FixRequest, output_path, substitution


def test_a_substitution_is_taken_apart_at_the_last_equals_sign():
    """So that lookaheads can be written in the expression."""
    found = substitution(r"(?=enc)enc\.(\d+)=encoder.\1")
    assert found.pattern.sub(found.replacement, "enc.3.w") == "encoder.3.w"
    assert substitution(r"foo\.=").replacement == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("encoder", "is not REGEX=REPL"),
        ("=x", "is not REGEX=REPL"),
        ("enc(=x", r"no regular expression at character 4: missing \)"),
        (r"enc=\1", r'"\\1" cannot be filled in from "enc"'),
        (r"(?P<n>a)=\g<m>", "cannot be filled in"),
    ],
)
def test_a_bad_substitution_is_a_usage_error_with_its_place(text: str, said: str):
    """What is wrong, and where in the expression."""
    with pytest.raises(UsageError, match=said):
        substitution(text)


@pytest.mark.parametrize(
    ("path", "output", "suffix", "wanted"),
    [
        ("runs/a.pt", None, None, "runs/a.fixed.pt"),
        ("runs/a", None, None, "runs/a.fixed"),
        ("a.b/epoch=9.ckpt", None, None, "a.b/epoch=9.fixed.ckpt"),
        ("a.pt", None, ".safetensors", "a.fixed.safetensors"),
        ("runs/a.pt", "other.bin", ".safetensors", "other.bin"),
    ],
)
def test_the_output_lies_beside_the_original_unless_told(
    path: str, output: str | None, suffix: str | None, wanted: str
):
    """With ``.fixed`` before the suffix, and the suffix that fits the contents."""
    assert output_path(FixRequest(path, output=output), suffix) == wanted


def test_a_directory_takes_a_file_of_the_same_name(tmp_path: Path):
    """As ``cp`` does."""
    assert output_path(FixRequest("runs/a.pt", output=str(tmp_path)), None) == str(tmp_path / "a.pt")
    assert output_path(FixRequest("runs/a.pt", output=str(tmp_path)), ".safetensors") == str(tmp_path / "a.safetensors")


def test_fixes_are_wanted_when_nothing_or_a_rule_is_named():
    """Options apply just themselves; ``--select`` adds the fixes of those rules."""
    assert FixRequest("a").fixes
    assert not FixRequest("a", strip_module=True).fixes
    assert not FixRequest("a", add_prefix="x").fixes
    assert FixRequest("a", to_cpu=True, selection=Selection(select=("N401",))).fixes
    assert not FixRequest("a", root="").fixes
