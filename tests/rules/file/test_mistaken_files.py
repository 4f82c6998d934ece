"""F001 to F004: files that are no checkpoint at all, and what torch and safetensors say to them."""

from __future__ import annotations

import pytest

from ckptdoctor.rules.examples import Example
from tests.builders import build
from tests.rules.examined import find_one, found, safetensors_error, sick, torch_error

CASES = [(code, example) for code in ("F001", "F002", "F003", "F004") for example in sick(code)]


@pytest.mark.parametrize(("code", "example"), CASES, ids=[example.title for _, example in CASES])
def test_the_quoted_error_is_the_real_one(tmp_path, code, example):
    """Every line that the finding quotes is in what the library says, for the file's suffix and first byte."""
    finding = find_one(example, tmp_path, code)
    path = build(example, tmp_path)
    if example.suffix == ".safetensors":
        said = safetensors_error(path)
    else:
        said = torch_error(path) + torch_error(path, weights_only=False)
    assert finding.torch_says
    for line in finding.torch_says:
        assert line in said


def test_a_pointer_tells_the_size_and_the_command(tmp_path):
    """The size of the real file, and git's command with the path quoted for a shell."""
    path = tmp_path / "my model.pt"
    path.write_bytes(sick("F001")[0].raw)
    (finding,) = found(path, "F001")
    assert "307,200,123 bytes" in finding.message
    assert f"git lfs pull -I '{path}'" in finding.advice


def test_a_page_tells_its_title_and_the_reason(tmp_path):
    """The quota page of Google Drive is known by its title."""
    finding = find_one(sick("F002")[0], tmp_path, "F002")
    assert '"Google Drive - Quota exceeded"' in finding.message
    assert "too many people" in finding.cause


def test_a_page_that_wants_a_login(tmp_path):
    """A sign-in page is named as such."""
    page = b"<html><head><title>\n Sign in  to Hub </title></head></html>"
    finding = find_one(Example("login", raw=page), tmp_path, "F002")
    assert '"Sign in to Hub"' in finding.message
    assert "sign in" in finding.cause


def test_a_text_is_quoted(tmp_path):
    """The first line says what went wrong; a long one is cut."""
    assert '"Entry not found"' in find_one(sick("F003")[0], tmp_path, "F003").message
    long = Example("long", raw=b"Error: " + b"x" * 300)
    assert len(find_one(long, tmp_path, "F003").message) < 160
