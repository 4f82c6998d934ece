"""References learnt from the text of an error, with real modules and real files."""

from __future__ import annotations

import io
import sys

import pytest
import torch
from torch import nn

from ckptdoctor import formats
from ckptdoctor.errors import UnreadableError, UsageError
from ckptdoctor.examine.file import check
from ckptdoctor.match.shapes.pairs import Pair
from ckptdoctor.rules.incompatible_keys import LoadError
from ckptdoctor.target import Expected
from ckptdoctor.target.error_text import as_reference, from_error, read_error
from tests.commands import run_here
from tests.work import growth


def error_text(model, weights):
    """What torch says of weights that do not fit."""
    with pytest.raises(RuntimeError) as raised:
        model.load_state_dict(weights)
    return str(raised.value)


def opened(weights, folder):
    """The weights as a checkpoint that was saved and opened."""
    torch.save(weights, folder / "model.pt")
    return formats.open_checkpoint(str(folder / "model.pt"))


def reference_from_error(checkpoint, text):
    """What the model of an error expects of this checkpoint."""
    return as_reference(from_error(text), checkpoint).reference


def shapes(model):
    return {key: tuple(value.shape) for key, value in model.state_dict().items()}


def net():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Conv2d(4, 5, 3))


@pytest.mark.parametrize(
    "change",
    [
        lambda key: f"module.{key}",
        lambda key: f"model.encoder.{key}",
        lambda key: f"_orig_mod.{key}",
    ],
)
def test_the_reference_is_the_model(tmp_path, change):
    """Where only names differ, error and file together give every key and shape of the model."""
    weights = {change(key): value for key, value in net().state_dict().items()}
    text = error_text(net(), weights)
    found = as_reference(from_error(text), opened(weights, tmp_path))
    assert {key: each.shape for key, each in found.reference.tensors.items()} == shapes(net())
    assert found.left_out == ()
    assert found.complete
    assert found.guessed["0.weight"] == change("0.weight")


def test_a_wrapped_model_is_learnt_too(tmp_path):
    """The keys that are missing are longer than the file's."""
    wrapped = nn.DataParallel(net())
    reference = reference_from_error(opened(net().state_dict(), tmp_path), error_text(wrapped, net().state_dict()))
    assert {key: each.shape for key, each in reference.tensors.items()} == shapes(wrapped)


def test_a_nested_state_dict_is_the_one_that_was_loaded(tmp_path):
    """The reference says where its keys lie in the file."""
    weights = {f"module.{key}": value for key, value in net().state_dict().items()}
    checkpoint = opened({"epoch": 1, "state_dict": weights}, tmp_path)
    reference = reference_from_error(checkpoint, error_text(net(), weights))
    assert reference.root == ("state_dict",)
    assert set(reference.tensors) == set(net().state_dict())


def test_a_file_that_was_loaded_whole(tmp_path):
    """The model is what is missing at the top, and check then finds the weights one level down."""
    contents = {"epoch": 1, "state_dict": net().state_dict()}
    checkpoint = opened(contents, tmp_path)
    reference = reference_from_error(checkpoint, error_text(net(), contents))
    assert {key: each.shape for key, each in reference.tensors.items()} == shapes(net())
    assert reference.root == ()
    report = check(str(tmp_path / "model.pt"), reference=reference)
    assert "W301" in {finding.code for finding in report.findings}


def test_shapes_of_the_model_come_from_the_error(tmp_path):
    """A head of another size is expected as the model has it."""
    model = nn.ModuleDict({"body": nn.Linear(2, 3), "fc": nn.Linear(3, 10)})
    weights = nn.ModuleDict({"body": nn.Linear(2, 3), "fc": nn.Linear(3, 7)}).state_dict()
    reference = reference_from_error(opened(weights, tmp_path), error_text(model, weights))
    assert reference.tensors["fc.weight"] == Expected((10, 3))
    assert reference.tensors["body.weight"] == Expected((3, 2))


def test_what_has_no_counterpart_is_left_out(tmp_path):
    """A missing key that nothing in the file ends like has no shape, and is not made up."""
    weights = {**net().state_dict(), "other.kernel": torch.ones(2)}
    weights.pop("0.weight")
    found = as_reference(from_error(error_text(net(), weights)), opened(weights, tmp_path))
    assert found.left_out == ("0.weight",)
    assert "0.weight" not in found.reference.tensors


def test_no_telling_which_is_left_out(tmp_path):
    """Two keys that end alike with two shapes decide nothing."""
    weights = {"a.x.conv.weight": torch.ones(2), "b.x.conv.weight": torch.ones(3)}
    error = LoadError(("c.x.conv.weight",), tuple(weights), (), True)
    assert as_reference(error, opened(weights, tmp_path)).left_out == ("c.x.conv.weight",)


def test_check_finds_the_cause_with_it(tmp_path):
    """The reference is enough for the rules that compare."""
    weights = {f"encoder.{key}": value for key, value in net().state_dict().items()}
    checkpoint = opened(weights, tmp_path)
    report = check(str(tmp_path / "model.pt"), reference=reference_from_error(checkpoint, error_text(net(), weights)))
    assert "N409" in {finding.code for finding in report.findings}
    assert report.coverage is not None
    assert report.coverage.steps[-1].keys == len(weights)


@pytest.mark.slow
def test_the_work_grows_with_the_number_of_keys(tmp_path):
    """Not with its square: 20,000 keys are about ten times the work of 2,000."""
    names = [f"layers.{i}.mlp.w{j}.weight" for i in range(2_000) for j in range(10)]
    given, shared = {}, torch.ones(1)
    for number in (2_000, 20_000):
        (folder := tmp_path / str(number)).mkdir()
        checkpoint = opened({f"net.{name}": shared for name in names[:number]}, folder)
        error = LoadError(tuple(names[:number]), tuple(f"net.{name}" for name in names[:number]), (), True)
        given[number] = error, checkpoint
        assert as_reference(*given[number]).left_out == ()
    assert growth(lambda number: as_reference(*given[number]), 2_000, 20_000) < 40


def test_reading(tmp_path, monkeypatch):
    """The error is in a file, or comes on standard input."""
    text = 'Missing key(s) in state_dict: "a.b". \n\tsize mismatch for c: copying a param with shape torch.Size([1])'
    text += " from checkpoint, the shape in current model is torch.Size([2])."
    (tmp_path / "err.txt").write_text(text)
    assert read_error(str(tmp_path / "err.txt")).mismatched == (Pair("c", (1,), (2,)),)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert read_error("-").missing == ("a.b",)


def test_what_is_no_such_error_is_refused(tmp_path):
    """A text without keys, a file that is not there, and a file without weights are told apart."""
    with pytest.raises(UsageError, match="it names no missing or unexpected keys"):
        from_error("ZeroDivisionError: division by zero")
    with pytest.raises(UnreadableError, match="cannot be read"):
        read_error(str(tmp_path / "absent.txt"))
    with pytest.raises(UsageError, match="no weights"):
        as_reference(LoadError(("a",), (), (), True), opened({"epoch": 1}, tmp_path))


def test_several_different_errors_are_not_one_target(tmp_path):
    """Each model would lose what only the other calls unexpected; the same error twice is still one."""
    one, other = error_text(net(), {**net().state_dict(), "x": torch.ones(1)}), error_text(nn.Linear(2, 2), {})
    with pytest.raises(UsageError, match=r"2 different errors of load_state_dict.*for Sequential.*for Linear.*Save"):
        from_error(f"{one}\n{other}")
    assert from_error(f"{one}\n{one}").unexpected == ("x",)
    opened({**net().state_dict(), "x": torch.ones(1)}, tmp_path)
    (tmp_path / "two.txt").write_text(f"{one}\n{other}")
    (tmp_path / "one.txt").write_text(one)
    wanted = ("fix", "model.pt", "--auto", "--unsafe-fixes", "-o", "out.pt", "--error")
    refused = run_here(*wanted, "two.txt", cwd=tmp_path)
    assert refused.returncode == 2, refused.stdout
    assert b"2 different errors of load_state_dict" in refused.stderr
    assert not (tmp_path / "out.pt").exists()
    explained = run_here("explain", "--error", "two.txt", cwd=tmp_path).stdout
    assert b"for Sequential" in explained
    assert b"for Linear" in explained
    assert b"--error" not in explained
    assert b"--error one.txt" in run_here("explain", "--error", "one.txt", cwd=tmp_path).stdout
    assert run_here(*wanted, "one.txt", cwd=tmp_path).returncode == 0
