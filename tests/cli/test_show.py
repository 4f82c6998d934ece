import json

import pytest
import torch

from tests.cli.files import printable, spelt
from tests.commands import run_here


def test_the_tree(shelf):
    """show prints the header, the modules with their sums, and everything else in place."""
    text = run_here("show", "training.pt", cwd=shelf).stdout.decode()
    assert text.startswith("training.pt · PyTorch .pt (zip) · ")
    for piece in ("epoch 41", "state_dict/module.fc", "[2, 3]", "cuda:1", "argparse.Namespace", "lr 0.1"):
        assert piece in text


def test_keys(shelf):
    """--keys is one tensor a line, --root only a part of them."""
    lines = run_here("show", "training.pt", "--keys", "--root", "state_dict", cwd=shelf).stdout.decode().split("\n")
    assert lines[0].startswith("state_dict/module.fc.weight") and lines[1].startswith("state_dict/module.fc.bias")
    assert lines[2:] == [""]


@pytest.mark.parametrize(
    ("root", "line", "contents"),
    [
        ("epoch", "epoch 41", 41),
        ("scheduler", "scheduler None", None),
        ("state_dict/module.fc.bias", "state_dict/module.fc.bias  [2]", {"$tensor": "state_dict/module.fc.bias"}),
    ],
)
def test_a_root_that_is_no_level_is_one_line(tmp_path, root, line, contents):
    """A value, nothing at all, or a tensor: as it stands in the tree of the whole."""
    torch.save({"epoch": 41, "scheduler": None, "state_dict": {"module.fc.bias": torch.ones(2)}}, tmp_path / "t.pt")
    first, second, *rest = run_here("show", "t.pt", "--root", root, cwd=tmp_path).stdout.decode().splitlines()
    assert first.startswith("t.pt · PyTorch .pt (zip)") and second.startswith(line) and not rest
    document = json.loads(run_here("show", "t.pt", "--root", root, "--format", "json", cwd=tmp_path).stdout)
    assert document["contents"] == contents


def test_devices(shelf):
    """--devices says what lies where, and what a machine with one GPU lacks."""
    text = run_here("show", "training.pt", "--devices", cwd=shelf).stdout.decode()
    assert "cuda:1   2 storages" in text
    assert "With 1 GPU cuda:1 is missing" in text


def test_json(shelf):
    """--format json has every tensor and the nested contents."""
    document = json.loads(run_here("show", "training.pt", "--format", "json", cwd=shelf).stdout)
    assert [tensor["key"] for tensor in document["tensors"]] == ["module.fc.weight", "module.fc.bias"]
    assert document["contents"]["epoch"] == 41
    assert document["contents"]["args"]["$class"] == "argparse.Namespace"


@pytest.mark.parametrize("options", [[], ["--keys"], ["--devices"], ["--format", "json"]], ids=spelt)
def test_hostile_text_never_reaches_the_terminal(shelf, options):
    """Keys and values are escaped in every view."""
    result = run_here("show", "hostile.pt", *options, cwd=shelf)
    assert result.returncode == 0, result.stderr
    assert printable(result.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.pt"], b"No such file"),
        (["empty.pt"], b"empty"),
        (["page.pt"], b"page.pt"),
        (["sick.pt", "--root", "nowhere"], b"nowhere"),
        (["."], b"not one sharded checkpoint"),
    ],
    ids=spelt,
)
def test_what_cannot_be_shown_is_one_line(shelf, arguments, said):
    """A file that cannot be read is one sentence on stderr and status 2."""
    result = run_here("show", *arguments, cwd=shelf)
    assert result.returncode == 2
    assert result.stdout == b""
    assert said in result.stderr and result.stderr.count(b"\n") == 1


def test_standard_input(shelf):
    """A file can come through a pipe."""
    result = run_here("show", "-", "--keys", cwd=shelf, stdin=(shelf / "healthy.pt").read_bytes())
    assert result.stdout.startswith(b"fc.weight")
