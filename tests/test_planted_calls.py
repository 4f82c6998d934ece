"""A call that a loader would make is named wherever it is planted, whole and broken, and is never made."""

from __future__ import annotations

import collections
import pathlib

import pytest
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING

from ckptdoctor.cli.main import cli
from tests import planted
from tests.planted import CANARY, PLACES, broken, cut, whole


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mend", [whole, broken, cut], ids=lambda mend: mend.__name__)
@pytest.mark.parametrize("place", PLACES)
def test_a_planted_call_is_named(place, mend, tmp_path, monkeypatch, capsys):
    """check ends with status 1 and says what would be called, of each container from which something unpickles."""
    (tmp_path / "files").mkdir()
    path = PLACES[place](tmp_path / "files", mend)
    monkeypatch.chdir(tmp_path)
    status = cli.main(["check", str(path), "--format", "concise"], standalone_mode=False)
    output = capsys.readouterr().out
    named = [line for line in output.splitlines() if "posix.system" in line and " P206 error " in line]
    assert named, output
    assert status == 1, output
    for file in path.rglob("*") if path.is_dir() else ():
        if file.is_file() and CANARY.encode() in file.read_bytes():
            assert any(file.name in line for line in named), output
    assert not (tmp_path / CANARY).exists()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mend", [whole, broken], ids=lambda mend: mend.__name__)
@pytest.mark.parametrize("place", PLACES)
def test_a_method_that_is_looked_up_is_named(place, mend, tmp_path, monkeypatch, capsys):
    """getattr reaches what removes a file, wherever it is planted."""
    monkeypatch.setattr(planted, "CALLED", (getattr, (pathlib.PosixPath, "unlink")))
    (tmp_path / "files").mkdir()
    path = PLACES[place](tmp_path / "files", mend)
    cli.main(["check", str(path), "--format", "concise"], standalone_mode=False)
    output = capsys.readouterr().out
    assert [line for line in output.splitlines() if "builtins.getattr" in line and " P206 error " in line], output


_CALL = collections.OrderedDict, ()
_LOOKED_UP = getattr, (_MEM_FORMAT_ENCODING, "TORCH_CONTIGUOUS_FORMAT")  # as Python 3.11.2 writes that member
# no honest program makes a value and throws it away, as in front of these
_HONEST = [place for place in PLACES if not place.startswith("pickle that begins with")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("place", "called"), [*[(place, _CALL) for place in PLACES], *[(place, _LOOKED_UP) for place in _HONEST]]
)
def test_a_harmless_call_is_not_told_of(place, called, tmp_path, monkeypatch, capsys):
    """What honest programs call in the same places is not said to be dangerous, nor to be unknown."""
    monkeypatch.setattr(planted, "CALLED", called)
    (tmp_path / "files").mkdir()
    path = PLACES[place](tmp_path / "files", whole)
    cli.main(["check", str(path), "--format", "concise"], standalone_mode=False)
    assert " P206 " not in capsys.readouterr().out
