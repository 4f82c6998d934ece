"""Lists of names in code that are built to take forever, and modules in modules."""

from __future__ import annotations

import zipfile

import pytest
import torch
from torch import nn

from ckptdoctor.errors import HostileError
from ckptdoctor.formats import open_checkpoint
from tests.work import growth

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.filterwarnings("ignore::Warning")]


class Small(nn.Linear):
    """A layer that nobody else scripts: of the second one in a process the name is another."""


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    """The records of a scripted layer, by name."""
    path = tmp_path_factory.mktemp("script") / "linear.pt"
    torch.jit.save(torch.jit.script(Small(3, 2)), path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def with_record(path, records, ending, change):
    """The archive with the one record whose name ends so changed."""
    with zipfile.ZipFile(path, "w") as archive:
        (changed,) = [name for name in records if name.endswith(ending)]
        for name, data in records.items():
            archive.writestr(name, change(data) if name == changed else data)
    return path


def unclosed(name):
    """What puts a name that nothing closes behind those of the parameters."""

    def change(code):
        assert b'__parameters__ = ["weight", "bias", ]' in code
        return code.replace(b'["weight", "bias", ]', b'["weight", "bias", "' + name + b"]")

    return change


def test_quotes_without_an_end(linear, tmp_path):
    """They are gone through once: ten times as many are ten times the work, not a hundred times."""
    paths = {
        number: with_record(tmp_path / f"{number}.pt", linear, "test_hostile.py", unclosed(b'\\"' * number))
        for number in (50_000, 500_000)
    }
    assert growth(lambda number: open_checkpoint(paths[number]), 50_000, 500_000) < 40
    for path in paths.values():
        assert open_checkpoint(path).state_dicts[0].keys == ("weight", "bias")


def test_modules_without_an_end(linear, tmp_path):
    """One module in two places of one that is in two places, and so on, is refused."""
    # an object of the class, before it gets its state
    new = b"c__torch__.tests.formats.torch.script.test_hostile\nSmall\n)\x81"
    name = b"X" + (50_000).to_bytes(4, "little") + b"a" * 50_000 + b"q\xff0"  # remembered as the last of the memo
    pickle = name + new + b"}b"
    for level in range(10):  # each doubles the places of the innermost
        inner = b"h" + bytes((level,))
        pickle += b"q" + bytes((level,)) + b"0" + new + b"}(h\xff" + inner + b"X\1\0\0\0b" + inner + b"ub"
    path = with_record(tmp_path / "endless.pt", linear, "/data.pkl", lambda data: b"\x80\2" + pickle + b".")
    with pytest.raises(HostileError, match="no end"):
        open_checkpoint(path)
