"""The binary version of CIFAR-10, as files and as the archive it is published in."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.errors import DamagedError, TruncatedError, UnreadableError, UsageError
from ckptdoctor.trainer.data.cifar import RECORD, cifar10, records
from ckptdoctor.trainer.data.files import ImageSource
from tests.trainer.data.makers import CIFAR_FILES, CIFAR_NAMES, archive, cifar, cifar_set, photographs


def write(folder, contents, pack=bytes, suffix=""):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (folder / (name + suffix)).write_bytes(pack(data))


def right(data, made):
    """Whether a data set is what the files were made of."""
    train = [made[name] for name in CIFAR_FILES[:5]]
    images, labels = (torch.cat(parts) for parts in zip(*train, strict=True))
    return (
        torch.equal(data.train.inputs, images)
        and data.train.labels.tolist() == labels.tolist()
        and torch.equal(data.test.inputs, made["test_batch.bin"][0])
        and data.test.labels.tolist() == made["test_batch.bin"][1].tolist()
    )


@pytest.mark.parametrize("place", [".", "cifar-10-batches-bin"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_the_files_are_read_in_their_order(tmp_path, place, pack):
    """Five files of training and one of test, in the directory or its usual folder, gzip or not."""
    contents, made = cifar_set()
    write(tmp_path / place, contents, pack, ".gz" if pack is gzip.compress else "")
    data = cifar10(tmp_path)
    assert right(data, made)
    assert data.shape == (3, 32, 32) and data.classes == tuple(CIFAR_NAMES)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_the_archive_is_read_where_it_lies(tmp_path, pack):
    """Nothing is extracted: afterwards the directory holds the archive alone."""
    contents, made = cifar_set()
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(archive(contents, pack))
    assert right(cifar10(tmp_path), made)
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-binary.tar.gz"]


def test_the_names_of_the_classes_are_those_of_the_file(tmp_path):
    """batches.meta.txt names them; without it they are the published ones."""
    contents, _ = cifar_set()
    contents["batches.meta.txt"] = b"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n"
    write(tmp_path / "named", contents)
    assert cifar10(tmp_path / "named").classes == tuple("abcdefghij")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/cifar-10-binary.tar.gz").write_bytes(archive(contents))
    assert cifar10(tmp_path / "a").classes == tuple("abcdefghij")
    del contents["batches.meta.txt"]
    write(tmp_path / "unnamed", contents)
    assert cifar10(tmp_path / "unnamed").classes == tuple(CIFAR_NAMES)


@pytest.mark.parametrize("meta", [b"one\ntwo\n", b"\xff" * 30, b"\x1b[2J\nb\nc\nd\ne\nf\ng\nh\ni\nj\n", b"x " * 9000])
def test_names_that_are_none_are_damage(tmp_path, meta):
    """Too few, too many, no text, or a text that would play with the terminal."""
    contents, _ = cifar_set()
    write(tmp_path, {**contents, "batches.meta.txt": meta})
    with pytest.raises(DamagedError, match=r"batches\.meta\.txt is damaged"):
        cifar10(tmp_path)


@pytest.mark.parametrize("name", ["cifar-10-batches-py", "cifar-10-python.tar.gz", "data_batch_1"])
def test_the_version_of_pickles_is_never_read(tmp_path, name):
    """Where only the Python version lies, the sentence says why it is not loaded and which one to get."""
    (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match=r"pickles.*never loads them.*cifar-10-binary\.tar\.gz.*cs\.toronto\.edu"):
        cifar10(tmp_path)


def test_the_binary_version_is_read_though_the_other_lies_beside_it(tmp_path):
    """Both versions in one directory: no complaint."""
    contents, made = cifar_set()
    write(tmp_path / "cifar-10-batches-bin", contents)
    (tmp_path / "cifar-10-batches-py").mkdir()
    assert right(cifar10(tmp_path), made)


def test_missing_files_are_named(tmp_path):
    """A file that is not there is named, with the folder that was looked in and where to get it."""
    contents, _ = cifar_set()
    del contents["data_batch_3.bin"]
    write(tmp_path / "cifar-10-batches-bin", contents)
    with pytest.raises(UnreadableError, match=r"cifar-10-batches-bin: data_batch_3\.bin is missing.*cs\.toronto\.edu"):
        cifar10(tmp_path)


def test_a_file_cut_between_two_images_is_noticed(tmp_path):
    """Whole by itself, but with fewer images than the others."""
    contents, _ = cifar_set()
    contents["data_batch_5.bin"] = contents["data_batch_5.bin"][:RECORD]
    write(tmp_path, contents)
    with pytest.raises(DamagedError, match=r"hold 3, 3, 3, 3, 1 images"):
        cifar10(tmp_path)


def parse(contents):
    return records(ImageSource(io.BytesIO(contents), "batch.bin"))


ONE = cifar(*photographs(1))


@pytest.mark.parametrize(
    ("contents", "kind", "offset", "words"),
    [
        (b"", TruncatedError, 0, "ends after 0 bytes"),
        (ONE[:-1], TruncatedError, RECORD - 1, "not a whole number of images"),
        (ONE + ONE[:100], TruncatedError, RECORD + 100, "not a whole number of images"),
        (ONE + b"\x0a" + ONE[1:], DamagedError, RECORD, "the label of image 1 is 10"),
        (bytes(RECORD * 10_000 + 1), DamagedError, RECORD * 10_000, "continues after its last image"),
    ],
)
def test_damage_is_one_sentence_that_says_where(contents, kind, offset, words):
    """Each kind of damage names the file and the byte."""
    with pytest.raises(kind) as caught:
        parse(contents)
    assert caught.value.offset == offset and words in caught.value.message and "batch.bin" in caught.value.message


def test_a_record_is_label_red_green_blue():
    """The bytes of an image, plane by plane, row by row."""
    record = bytes([7]) + bytes([1] * 1024) + bytes([2] * 1024) + bytes([3] * 1000 + [*range(24)])
    split = parse(record)
    assert split.labels.tolist() == [7]
    assert split.inputs[0, 0].unique().tolist() == [1] and split.inputs[0, 1].unique().tolist() == [2]
    assert split.inputs[0, 2, 31, 8:].tolist() == list(range(24))


def test_an_archive_without_a_file_is_damaged(tmp_path):
    """What is missing in it is named."""
    contents, _ = cifar_set()
    del contents["test_batch.bin"]
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(archive(contents))
    with pytest.raises(DamagedError, match=r"does not hold test_batch\.bin"):
        cifar10(tmp_path)


@pytest.mark.parametrize("size", [-512, 2**40, 2**62])
def test_an_archive_that_claims_an_impossible_size_is_damaged(tmp_path, size):
    """A negative or huge size of a file in it neither loops nor skips nor fills memory."""
    entry = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    entry.size = size
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(entry.tobuf(tarfile.GNU_FORMAT) + bytes(2048)))
    with pytest.raises(DamagedError, match=f"claims a file of {size} bytes"):
        cifar10(tmp_path)


def test_a_link_in_an_archive_is_not_followed(tmp_path):
    """A member that is a link to a file of this machine is no file of the set."""
    (tmp_path / "secret").write_bytes(ONE)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("data_batch_1.bin")
        entry.type, entry.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
        tar.addfile(entry)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(buffer.getvalue())
    with pytest.raises(DamagedError, match=r"does not hold data_batch_1\.bin"):
        cifar10(tmp_path)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_any_damage_to_records_is_an_error_of_ours_or_the_right_images(data):
    """Cut anywhere, with any bytes changed: a DamagedError, or exactly the images that the bytes now hold."""
    whole = bytearray(ONE + ONE)
    for where, value in data.draw(st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=3)):
        whole[where] = value
    if data.draw(st.booleans()):
        whole[data.draw(st.sampled_from([0, RECORD]))] = data.draw(st.integers(0, 255))
    del whole[data.draw(st.sampled_from([len(whole), RECORD]) | st.integers(0, len(whole))) :]
    try:
        split = parse(bytes(whole))
    except DamagedError as error:
        assert "batch.bin" in error.message
    else:
        assert cifar(split.inputs, split.labels) == bytes(whole)


CONTENTS, MADE = cifar_set(1)
PLAIN, PACKED = archive(CONTENTS, bytes), archive(CONTENTS)
HEADERS = [0, *(512 * (2 + 1 + 1 + 8 * number) for number in range(6))]


@settings(deadline=None, max_examples=150)
@given(st.data(), st.booleans())
def test_any_damage_to_an_archive_is_an_error_of_ours_or_the_right_images(tmp_path_factory, data, packed):
    """Cut anywhere, with any bytes of it changed, headers above all: an error of ours, or images from whole files."""
    whole = bytearray(PACKED if packed else PLAIN)
    anywhere = st.integers(0, len(whole) - 1)
    near = st.builds(
        lambda start, step: min(start + step, len(whole) - 1), st.sampled_from(HEADERS), st.integers(0, 511)
    )
    changes = st.lists(st.tuples(anywhere | near, st.integers(0, 255)), max_size=4)
    for where, value in data.draw(changes):
        whole[where] = value
    del whole[data.draw(st.just(len(whole)) | anywhere) :]
    folder = tmp_path_factory.getbasetemp() / "any-archive"
    folder.mkdir(exist_ok=True)
    (folder / "cifar-10-binary.tar.gz").write_bytes(whole)
    try:
        dataset = cifar10(folder)
    except DamagedError as error:
        assert str(folder) in error.message
    else:
        assert len(dataset.train) == 5 and len(dataset.test) == 1
        assert not packed or right(dataset, MADE)  # gzip's checksum lets nothing else pass
