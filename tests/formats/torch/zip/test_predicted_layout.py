"""Where data lies in archives of which only the directory is seen."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.checkpoint import FileSource, NoteKind
from ckptdoctor.formats.torch.zip.central_directory import find_end, read_entries
from ckptdoctor.formats.torch.zip.layout import predicted_records
from ckptdoctor.formats.torch.zip.local_headers import check_records
from ckptdoctor.formats.torch.zip.records import Remarks


def both(path):
    """The records as their headers say, and as they are worked out."""
    with FileSource(path) as source:
        end = find_end(source, Remarks())
        entries = read_entries(source, end, Remarks())
        remarks = Remarks()
        return (
            check_records(source, entries, end.offset, Remarks()),
            predicted_records(entries, end.offset, remarks),
            remarks,
        )


@pytest.mark.parametrize("sizes", [(1,), (0, 3, 0), (7, 64, 65, 1000), tuple(range(300))])
def test_what_torch_wrote_is_where_torch_puts_it(sizes, tmp_path):
    """Every record of real files, empty ones included, is found without its header; a note says what was not seen."""
    torch.save({f"k{index}": torch.zeros(size) for index, size in enumerate(sizes)}, tmp_path / "a.pt")
    seen, unseen, remarks = both(tmp_path / "a.pt")
    assert unseen == seen
    assert [note.kind for note in remarks.notes()] == [NoteKind.NOT_EXAMINED]


def test_storages_of_gigabytes_are_found(tmp_path):
    """Sizes and offsets beyond 4 GiB change the headers and descriptors; the archive is laid out by the writer's rules,
    which are byte for byte torch's."""
    from ckptdoctor.formats.torch.zip.layout import Item, lay_out
    from ckptdoctor.writing import Generated, Literal

    sizes = [
        ("a/data.pkl", 100),
        ("a/data/0", (4 << 30) + 5),
        ("a/data/1", 1000),
        ("a/data/2", 4 << 30),
        ("a/version", 2),
    ]
    items = [Item(name, size, 1, (Generated(size, lambda: iter(())),)) for name, size in sizes]
    path = tmp_path / "a.pt"
    with open(path, "wb") as file:
        for segment in lay_out(items):
            if isinstance(segment, Literal):
                file.write(segment.data)
            else:
                file.seek(segment.length, 1)
    seen, unseen, _ = both(path)
    assert unseen == seen


def test_what_others_wrote_is_not_guessed(tmp_path):
    """A record that lies otherwise makes all of them be looked at."""
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02}.")
    assert both(tmp_path / "a.pt")[1] is None
    torch.utils.serialization.config.save.storage_alignment = 4096
    try:
        torch.save({"w": torch.ones(3)}, tmp_path / "b.pt")
    finally:
        torch.utils.serialization.config.save.storage_alignment = 64
    assert both(tmp_path / "b.pt")[1] is None
