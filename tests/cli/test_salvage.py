"""``ckptdoctor salvage`` as people meet it."""

import json

import pytest
import torch

from tests.cli.files import printable
from tests.commands import run_here


@pytest.fixture
def broken(tmp_path):
    """An archive of four tensors, cut off within the third; one key would clear a terminal."""
    path = tmp_path / "whole.pt"
    torch.save({f"w{i}" + ("\x1b[2J" if i == 3 else ""): torch.full((1000,), float(i)) for i in range(4)}, path)
    data = path.read_bytes()
    (tmp_path / "broken.pt").write_bytes(data[: data.index(torch.full((1000,), 2.0).numpy().tobytes()) + 2000])
    return tmp_path


def test_what_is_saved_and_what_is_lost_is_said(broken):
    """The table has every lost tensor with how much of it is there, and the status says that something was lost."""
    done = run_here("salvage", "broken.pt", "-o", "saved.pt", cwd=broken)
    text = done.stdout.decode()
    assert done.returncode == 1
    assert "2 of 4 tensors recovered, 50.0 % of the values" in text
    assert "every one verified by its checksum" in text
    assert "50.0 % is there" in text and "nothing of it is there" in text
    assert 'next · torch.load("saved.pt")' in text
    assert printable(done.stdout)
    assert list(torch.load(broken / "saved.pt")) == ["w0", "w1"]


def test_nothing_is_overwritten_unless_forced(broken):
    """An existing output stays, and the original always does."""
    before = (broken / "broken.pt").read_bytes()
    assert run_here("salvage", "broken.pt", cwd=broken).returncode == 1
    again = run_here("salvage", "broken.pt", cwd=broken)
    assert again.returncode == 1 and b"already exists" in again.stderr
    assert run_here("salvage", "broken.pt", "--force", cwd=broken).returncode == 1
    assert (broken / "broken.pt").read_bytes() == before
    assert torch.load(broken / "broken.salvaged.pt")


def test_json_lists_every_loss(broken):
    """Programs get the whole table."""
    document = json.loads(run_here("salvage", "broken.pt", "--format", "json", cwd=broken).stdout)
    assert document["recovered"] == {"tensors": 2, "bytes": 8000, "verified": 2}
    assert [(each["key"], each["share"]) for each in document["lost"]] == [("w2", 0.5), ("w3\x1b[2J", 0.0)]


def test_a_whole_file_comes_back_whole(broken):
    """Nothing lost is status 0; what cannot be read is status 2."""
    assert run_here("salvage", "whole.pt", cwd=broken).returncode == 0
    assert run_here("salvage", "nothing.pt", cwd=broken).returncode == 2
