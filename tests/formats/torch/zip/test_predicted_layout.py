"""Where data lies in archives of which only the directory is seen, as on another machine."""

from __future__ import annotations

import zipfile

import pytest
import torch
from torch.utils.serialization import config

from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource, NoteKind
from ckptdoctor.formats import open_checkpoint


class Far(FileSource):
    """A file of which each part has to be fetched."""

    distant = True


def from_afar(path):
    """What the checkpoint holds where no header but that of its pickle is looked at."""
    with Far(path) as source:
        return formats.read(source, formats.examine(source))


def is_worked_out(checkpoint):
    """Whether a note says that headers were not seen."""
    return any(note.kind is NoteKind.NOT_EXAMINED for note in checkpoint.notes)


@pytest.mark.parametrize("sizes", [(1,), (0, 3, 0), (7, 64, 65, 1000), tuple(range(300))])
def test_what_torch_wrote_is_where_torch_puts_it(sizes, tmp_path):
    """Every record of real files, empty ones included, is found without its header; a note says what was not seen."""
    torch.save({f"k{index}": torch.zeros(size) for index, size in enumerate(sizes)}, tmp_path / "a.pt")
    seen, unseen = open_checkpoint(tmp_path / "a.pt"), from_afar(tmp_path / "a.pt")
    assert unseen.storages == seen.storages
    assert not is_worked_out(seen) and is_worked_out(unseen)


def test_storages_of_gigabytes_are_found(tmp_path):
    """Sizes and offsets beyond 4 GiB change the headers and descriptors."""
    sizes = ((4 << 30) + 5, 1000, 4 << 30, 7)
    with torch.serialization.skip_data():
        torch.save({f"k{index}": torch.UntypedStorage(size) for index, size in enumerate(sizes)}, tmp_path / "a.pt")
    seen, unseen = open_checkpoint(tmp_path / "a.pt"), from_afar(tmp_path / "a.pt")
    assert unseen.storages == seen.storages
    assert [each.nbytes for each in unseen.storages] == list(sizes)
    assert is_worked_out(unseen)


def test_what_others_wrote_is_not_guessed(tmp_path):
    """A record that lies otherwise makes all of them be looked at."""
    torch.save({"w": torch.ones(3)}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as old, zipfile.ZipFile(tmp_path / "b.pt", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with config.patch({"save.storage_alignment": 4096}):
        torch.save({"w": torch.ones(3)}, tmp_path / "c.pt")
    for name in ("b.pt", "c.pt"):
        unseen = from_afar(tmp_path / name)
        assert not is_worked_out(unseen)
        assert unseen.storages == open_checkpoint(tmp_path / name).storages
