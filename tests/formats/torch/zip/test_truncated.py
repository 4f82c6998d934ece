"""Archives without an end: what is there, what is lost, how large the file should be."""

import re

import pytest
import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource, NoteKind
from tests.formats.torch.zip.forge import assembled, parts_of, saved

CONTENTS = {f"layer.{index}.weight": torch.full((50,), float(index)) for index in range(10)}


def note_of(data: bytes, folder):
    """The one note of a cut archive, which must be an unreadable torch zip."""
    path = folder / "cut.pt"
    path.write_bytes(data)
    with FileSource(path) as source:
        container = formats.examine(source)
    assert (container.format, container.readable) == ("torch zip", False)
    assert container.guidance
    (note,) = container.notes
    assert note.kind == NoteKind.TRUNCATED
    return note


def test_every_cut(tmp_path):
    """Wherever the file is cut: how many storages are complete is counted, and the size it should have is told."""
    data = saved(CONTENTS)
    ends = [re.search(re.escape(tensor.numpy().tobytes()), data).end() + 16 for tensor in CONTENTS.values()][1:]
    for length in range(30 + len("archive/data.pkl"), len(data), 7):
        message = note_of(data[:length], tmp_path).message
        if "is incomplete" in message:
            assert length < data.index(b"PK\7\x08") + 16
        elif "all 10 storages are complete: nothing of value is lost" in message:
            assert length > data.index(b"PK\1\2")
        else:
            complete = sum(end <= length for end in ends) + (length >= ends[0] - 300)
            (counted,) = re.findall(r"(\d+|all|none) (?:of )?10 storages (?:is|are) complete", message)
            assert abs(int({"none": "0", "all": "10"}.get(counted, counted)) - complete) <= 1
            assert f"the whole file would have about {len(data):,} bytes" in message


def test_cut_in_the_middle(tmp_path):
    """The count of complete storages and of lost bytes is exact."""
    data = saved(CONTENTS)
    cut = data.index(CONTENTS["layer.4.weight"].numpy().tobytes()) + 100
    note = note_of(data[:cut], tmp_path)
    assert "4 of 10 storages are complete, 1,200 bytes of values are lost" in note.message
    assert note.offset == cut


@pytest.mark.parametrize(
    ("contents", "cut", "said"),
    [
        ({"a": torch.ones(50)}, 0.5, "its only storage is not complete, 200 bytes of values are lost"),
        (
            {"a": torch.ones(50), "b": torch.ones(9)},
            0.4,
            "none of 2 storages is complete, 236 bytes of values are lost",
        ),
        (CONTENTS, 0.01, "its contents cannot be determined"),
        ({"a": torch.ones(50)}, -80, "its only storage is complete: nothing of value is lost"),
        ({"epoch": 3}, -80, "it has no storages: nothing of value is lost"),
    ],
    ids=["one", "none of two", "no list", "the only one", "without any"],
)
def test_salvage_is_named_only_where_something_is_whole(contents, cut, said, tmp_path):
    """What is complete is told in words that fit the number, and salvage is spoken of where it would save something."""
    data = saved(contents)
    note = note_of(data[: cut if cut < 0 else int(cut * len(data))], tmp_path)
    assert said in note.message
    assert ("ckptdoctor salvage FILE" in note.guidance) is (cut < 0)
    with FileSource(tmp_path / "cut.pt") as source:
        assert ("ckptdoctor salvage" in formats.examine(source).guidance) is (cut < 0)


def test_only_the_directory_is_missing(tmp_path):
    """A file that lost only the list of its records has lost no values."""
    data = saved(CONTENTS)
    note = note_of(data[: data.index(b"PK\1\2") + 50], tmp_path)
    assert "all 10 storages are complete: nothing of value is lost" in note.message


@pytest.mark.parametrize("alignment", [1, 4096])
def test_other_alignments(alignment, tmp_path):
    """The size it should have takes the archive's own alignment into account."""
    from torch.utils.serialization import config

    with config.patch({"save.storage_alignment": alignment}):
        data = saved(CONTENTS)
    cut = data.index(CONTENTS["layer.7.weight"].numpy().tobytes())
    assert f"about {len(data):,} bytes" in note_of(data[:cut], tmp_path).message


def test_reserved_but_never_filled(tmp_path):
    """A download that reserved its full size and stopped half-way ends in zero bytes, and is said to."""
    data = saved({"a": torch.ones(40_000), "b": torch.ones(40_000)})
    message = note_of(data[:200_000] + bytes(len(data) - 200_000), tmp_path).message
    assert "zero bytes where it should be" in message
    assert "1 of 2 storages is complete" in message


def test_another_writer(tmp_path):
    """Archives that other programs wrote, with sizes in the local headers, are walked as well."""
    parts = parts_of(saved(CONTENTS))
    for one in parts:
        one.local = {"flags": 0, "size": len(one.data), "compressed": len(one.data)}
        one.footer = b""
    data = assembled(parts)
    cut = data.index(CONTENTS["layer.4.weight"].numpy().tobytes())
    assert "4 of 10 storages are complete" in note_of(data[:cut], tmp_path).message


def test_damaged_pickle(tmp_path):
    """When the pickle is damaged as well, that is said, and nothing else is guessed."""
    data = bytearray(saved(CONTENTS))
    data[64:90] = b"\xff" * 26
    assert "cannot be determined" in note_of(bytes(data[:-200]), tmp_path).message


def test_large_sparse_file(tmp_path):
    """A cut file of many gigabytes is walked by its headers."""
    path = tmp_path / "big.pt"
    with torch.serialization.skip_data():
        torch.save({f"key{index}": torch.UntypedStorage(6 << 30) for index in range(10)}, path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(40 << 30)
    with FileSource(path) as source:
        container = formats.examine(source)
        assert source.bytes_read < 3 << 20
    assert "6 of 10 storages are complete" in container.notes[0].message
    assert f"about {size:,} bytes" in container.notes[0].message
