"""Which part of a checkpoint a path means that people type."""

import json

import pytest
import torch

from tests.commands import run_here

TREE = {
    "state_dict": {"w": torch.zeros(1)},
    "nets": [{"g": torch.zeros(2)}, 2],
    "a/b": {"c": torch.zeros(3)},
    "a": {"b": {"d": torch.zeros(4)}},
    "x/y": torch.zeros(5),
    "x": {"y": torch.zeros(6)},
}


@pytest.fixture
def shown(tmp_path):
    """Shows the part at a root: what the command gives for a program, and what it says."""
    torch.save(TREE, tmp_path / "m.pt")

    def show(root):
        result = run_here("show", "m.pt", "--root", root, "--format", "json", cwd=tmp_path)
        return json.loads(result.stdout or "null"), result.stderr.decode()

    return show


@pytest.mark.parametrize(
    ("text", "root", "sizes"),
    [
        ("state_dict", "state_dict", [1]),
        ("/state_dict/", "state_dict", [1]),
        ("nets/0/g", "nets/0/g", [2]),
        ("a/b/c", "a/b/c", [3]),
        ("a/b/d", "a/b/d", [4]),
        ("x/y", "x/y", [6]),
        ("", "(root)", [1, 2, 3, 4, 5, 6]),
        ("(root)", "(root)", [1, 2, 3, 4, 5, 6]),
    ],
)
def test_a_path_as_reports_print_it_is_found(shown, text, root, sizes):
    """Steps are joined by slashes; keys that hold slashes themselves are found too, after shorter steps."""
    document, _ = shown(text)
    assert document["root"] == root
    assert [each["shape"] for each in document["tensors"]] == [[size] for size in sizes]


def test_what_is_not_there_is_refused_with_what_is(shown):
    """The message names the keys of the top level."""
    document, said = shown("model")
    assert document is None
    assert 'The checkpoint has no "model"' in said and "Its top level holds state_dict, nets" in said
