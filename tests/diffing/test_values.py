"""Values compared step by step: what is told on the way, stopping, and going on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.diffing.diff import compare_values_of, diff
from ckptdoctor.diffing.request import DiffRequest
from ckptdoctor.errors import StoppedError, UnreadableError
from ckptdoctor.formats import open_checkpoint
from ckptdoctor.look.inspector import Inspector, Refused
from ckptdoctor.values import differences


@pytest.fixture
def request_of(tmp_path):
    """Saves two contents, and gives the request to compare them."""

    def save(a, b):
        torch.save(a, tmp_path / "a.pt")
        torch.save(b, tmp_path / "b.pt")
        return DiffRequest(str(tmp_path / "a.pt"), str(tmp_path / "b.pt"))

    return save


def model(seed):
    """Ten tensors, two of them tied."""
    torch.manual_seed(0)
    found = {f"l.{n}.weight": torch.randn(64, 64) for n in range(9)}
    torch.manual_seed(seed)
    found["l.4.weight"] = torch.randn(64, 64)
    found["tied.weight"] = found["l.4.weight"]
    return found


def unchanged(pairs):
    """What is told of pairs, without the tensors."""
    return [(pair.name, pair.name_b, pair.values, pair.transposed) for pair in pairs]


def test_steps_come_to_what_one_go_gives(request_of, monkeypatch):
    """In any portions the outcome is the same, and every pair is told of once."""
    monkeypatch.setattr(differences, "_PORTION", 1)
    request = request_of(model(1), model(2))
    heard, told = [], []
    found = compare_values_of(
        diff(request),
        request,
        lambda now, new: heard.append((now, list(new))),
        lambda progress: told.append(progress.done),
    )
    whole = diff(request, differences.compare_values)
    assert unchanged(found.pairs) == unchanged(whole.pairs)
    assert (found.summary, found.ties, found.ranks) == (whole.summary, whole.ties, whole.ranks)
    assert heard[0][1] == [] and len(heard) == 10
    assert sorted(number for _, new in heard for number in new) == list(range(10))
    assert all(now.pairs[number].values is not None for now, new in heard for number in new)
    assert told == sorted(told) and told[-1] > 0


def test_stopping_and_going_on(request_of, monkeypatch):
    """What was known when somebody stopped is not read again."""
    monkeypatch.setattr(differences, "_PORTION", 1)
    request = request_of(model(1), model(2))
    last = []

    def until_the_fifth(progress):
        if len(last) == 5:
            raise StoppedError

    stopped = compare_values_of(diff(request), request, lambda now, _: last.append(now), until_the_fifth)
    assert stopped is None
    known = [pair for pair in last[-1].pairs if pair.values is not None]
    assert 0 < len(known) < 10
    totals = []
    found = compare_values_of(last[-1], request, lambda *_: None, lambda progress: totals.append(progress.total))
    whole = diff(request, differences.compare_values)
    assert unchanged(found.pairs) == unchanged(whole.pairs) and found.summary == whole.summary
    assert max(totals) < differences.bytes_to_compare(diff(request))


def test_the_blocks_that_changed_are_named(request_of):
    """By their numbers where they are neighbours, else by how many they are: one name above all says nothing."""
    base = {f"model.layers.{layer}.{part}.weight": torch.zeros(2, 2) for layer in range(9) for part in ("q", "k")}
    for layers, where in ((range(2, 8), "model.layers.{2..7}"), ((0, 2, 3, 5, 8), "5 blocks of model.layers")):
        other = base | {f"model.layers.{layer}.q.weight": torch.ones(2, 2) for layer in layers}
        found = diff(request_of(base, other), differences.compare_values)
        assert found.summary.startswith(f"{len(layers)} of 18 tensors changed (in {where})")


def test_another_file_is_refused(request_of):
    """A file that has changed since is not compared."""
    request = request_of(model(1), model(2))
    found = diff(request)
    request_of(model(1), model(3) | {"more": torch.ones(3)})
    with pytest.raises(UnreadableError, match="has changed since"):
        compare_values_of(found, request, lambda *_: None, lambda *_: None)


def subtracted(a, b, tmp_path, **changed):
    """The picture of the difference of two tensors, saved as files."""
    for name, value in (("a", a), ("b", b)):
        torch.save({"x": value}, tmp_path / f"{name}.pt")
    opened = [open_checkpoint(str(tmp_path / f"{name}.pt")) for name in "ab"]
    peeks = [Inspector(str(tmp_path / f"{name}.pt"), each) for name, each in zip("ab", opened, strict=True)]
    one, other = (each.tensors[0] for each in opened)
    box = [range(size) for size in one.shape]
    rows = 0 if len(one.shape) > 1 else None
    return peeks[0].difference(one, peeks[1], replace(other, **changed), box, rows, (50, 50), "mean", Work())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool])
def test_the_picture_of_a_difference(tmp_path, dtype):
    """Each cell is a value of A minus one of B, as torch subtracts them in float64."""
    a, b = (torch.randn(7, 5) * 3, torch.randn(7, 5) * 3)
    a, b = (each.abs().to(dtype) for each in (a, b))
    picture = subtracted(a, b, tmp_path)
    torch.testing.assert_close(torch.tensor(picture.cells, dtype=torch.float64), a.double() - b.double())


def test_other_dtypes_other_layouts_and_nan(tmp_path):
    """What differs in dtype and strides is subtracted all the same; NaN in one place on both sides is no difference."""
    a = torch.randn(6, 4)
    a[0, 0] = float("nan")
    b = a.half().t().contiguous().t()
    a[1, 1] = float("inf")
    picture = torch.tensor(subtracted(a, b, tmp_path).cells, dtype=torch.float64)
    assert picture[0, 0] == 0 and picture[1, 1] == float("inf")
    torch.testing.assert_close(picture[2:], a.double()[2:] - b.double()[2:])


def test_what_cannot_be_subtracted(tmp_path):
    """Other shapes, and sparse tensors whose values may belong elsewhere, are refused with a reason."""
    assert "their shapes differ" in subtracted(torch.ones(3, 4), torch.ones(4, 3), tmp_path).reason
    sparse = subtracted(torch.eye(3).to_sparse(), torch.ones(3, 3).to_sparse(), tmp_path)
    assert isinstance(sparse, Refused) and "other places" in sparse.reason
