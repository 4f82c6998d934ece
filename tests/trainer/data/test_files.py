"""Finding files of published sets, and reading them."""

from __future__ import annotations

import gzip
import io
import tracemalloc

import pytest

from ckptdoctor.errors import TruncatedError, UnreadableError, UsageError
from ckptdoctor.trainer.data.files import PUBLISHED_DATA, ImageSource, folder, locate, opened
from tests.trainer.data.makers import write_idx_set


@pytest.mark.parametrize("data", PUBLISHED_DATA)
def test_without_data_dir_the_sentence_says_where_to_download(data):
    """No --data-dir: where the set is published, and which option to give."""
    with pytest.raises(UsageError, match=r"--data-dir") as caught:
        folder(data, None)
    assert PUBLISHED_DATA[data].homepage in caught.value.message and PUBLISHED_DATA[data].title in caught.value.message


def test_a_directory_that_is_not_there_is_named(tmp_path):
    """A path that does not exist, and one that is a file."""
    (tmp_path / "file").touch()
    for name, words in (("nothing", "does not exist"), ("file", "is not a directory"), ("nu\0l", "does not exist")):
        with pytest.raises(UnreadableError, match=words) as caught:
            folder("mnist", str(tmp_path / name))
        assert str(tmp_path / name) in caught.value.message
    assert folder("mnist", str(tmp_path)) == tmp_path


@pytest.mark.parametrize("data", PUBLISHED_DATA)
def test_all_missing_files_are_named(tmp_path, data):
    """In an empty directory every file is missing, and each is named."""
    with pytest.raises(UnreadableError, match="are missing") as caught:
        locate(data, tmp_path)
    for word in (*PUBLISHED_DATA[data].files, str(tmp_path), PUBLISHED_DATA[data].homepage):
        assert word in caught.value.message


def test_one_missing_file_is_named_with_the_folder_that_has_the_others(tmp_path):
    """The place with most of the files is the one that is spoken of."""
    write_idx_set(tmp_path / "MNIST/raw")
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(UnreadableError, match=r"raw: t10k-labels-idx1-ubyte is missing \(with or without \.gz\)"):
        locate("mnist", tmp_path)


def test_files_of_two_places_are_not_mixed(tmp_path):
    """Half a set here and half below it may be two different sets."""
    write_idx_set(tmp_path)
    write_idx_set(tmp_path / "MNIST/raw")
    (tmp_path / "train-images-idx3-ubyte").unlink()
    (tmp_path / "MNIST/raw/t10k-images-idx3-ubyte").unlink()
    with pytest.raises(UnreadableError, match="train-images-idx3-ubyte is missing"):
        locate("mnist", tmp_path)


def test_a_claim_costs_no_memory(tmp_path):
    """A gibibyte that is claimed of a small file is not reserved."""
    (tmp_path / "small").write_bytes(bytes(1000))
    tracemalloc.start()
    try:
        with pytest.raises(TruncatedError), opened(tmp_path / "small") as source:
            source.take(2**30, "what it claims")
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()


def test_what_unpacks_to_much_more_is_read_no_further_than_asked(tmp_path):
    """A bomb of gzip costs what is taken from it."""
    (tmp_path / "bomb").write_bytes(gzip.compress(bytes(100 * 2**20), compresslevel=1))
    tracemalloc.start()
    try:
        with opened(tmp_path / "bomb") as source:
            assert len(source.take(10, "ten bytes")) == 10
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()


def test_positions_count_contents(tmp_path):
    """The position is that of what gzip has unpacked."""
    (tmp_path / "file").write_bytes(gzip.compress(bytes(range(100))))
    with opened(tmp_path / "file") as source:
        assert source.take(30, "some") == bytes(range(30)) and source.position == 30
        assert source.take_most(1000) == bytes(range(30, 100)) and source.position == 100
        source.end()


def test_a_disk_that_fails_is_a_sentence():
    """An error of the operating system in the middle of a file is an UnreadableError."""

    class Failing(io.RawIOBase):
        def read(self, count=-1, /):
            raise OSError(5, "Input/output error")

    with pytest.raises(UnreadableError, match=r"images\.bin cannot be read: Input/output error"):
        ImageSource(Failing(), "images.bin").take(1, "anything")
