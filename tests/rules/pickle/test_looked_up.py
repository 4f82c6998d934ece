"""P201 and P206: a pickle may look up members of enums and classes within classes by getattr, and nothing else."""

from __future__ import annotations

import enum
import io
import os
import pathlib
import pickle
import re
import shlex
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

import ckptdoctor
from ckptdoctor.findings import Severity
from tests.rules.examined import found

WEIGHTS = {"fc.weight": torch.ones(2, 2)}


class Mode(enum.Enum):
    """Saved as Python 3.11.0 to 3.11.3 does."""

    TRAIN = "t"
    EVAL = "e"
    lower = "l"

    def __reduce_ex__(self, protocol):
        return getattr, (self.__class__, self.name)


class Outer:
    class Inner:
        class Innermost:
            pass

    @staticmethod
    def make():
        """A function of a class."""


class Call:
    """A call of a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.made = function, arguments

    def __reduce__(self):
        return self.made

    def __call__(self):
        """A pickler asks whether what is called can be."""


def look_up(owner, name):
    """A pickled getattr."""
    return Call(getattr, owner, name)


def saved(folder, value, **how):
    """A file with weights and this."""
    torch.save({"model": WEIGHTS, "x": value}, folder / "a.pt", **how)
    return folder / "a.pt"


@pytest.mark.parametrize("how", [{}, {"_use_new_zipfile_serialization": False}], ids=["archive", "legacy"])
@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Mode.TRAIN, "Mode.TRAIN"),
        ([Mode.TRAIN, Mode.EVAL], "Mode.EVAL"),
        (Outer.Inner, "Outer.Inner"),
        (Outer.Inner.Innermost(), "Outer.Inner.Innermost"),
    ],
)
def test_what_it_looks_up_is_told_with_torchs_own_words(how, value, name, tmp_path):
    """It cannot run commands; torch rejects it, by the line that the finding has."""
    path = saved(tmp_path, value, **how)
    assert found(path, "P206") == found(path, "P205") == []
    (finding,) = found(path, "P201")
    assert f"{__name__}.{name}" in finding.message
    with pytest.raises(pickle.UnpicklingError) as refusal:
        torch.load(path)
    assert finding.torch_says[0] in str(refusal.value)


def test_members_of_enums_of_python_are_no_danger(tmp_path):
    """Those in capitals, which are not called."""
    path = saved(tmp_path, look_up(signal.Signals, "SIGINT"))
    assert found(path, "P206") == []
    assert "signal.Signals.SIGINT" in found(path, "P201")[0].message


@pytest.mark.parametrize(
    "value",
    [
        look_up(pathlib.PurePosixPath, "joinpath"),
        Call(look_up(pathlib.PosixPath, "unlink"), pathlib.PosixPath("gone")),
        look_up(np.ndarray, "tofile"),
        Mode.lower,
        look_up(Outer, "make"),
        look_up(look_up(Outer, "Inner"), "__init__"),
        look_up(Outer, "Inner.Innermost"),
        Call(getattr, Outer, "Inner", None),
        Call(look_up(signal.Signals, "SIGINT"), 1),
        [Mode.TRAIN, getattr],
        {"a": Mode.TRAIN, "b": Call(map, getattr, [Outer], ["Inner"])},
    ],
    ids=range(11),
)
def test_any_other_use_of_getattr_is_a_danger(value, tmp_path):
    """Methods of what everybody has, calls of what was looked up, getattr itself, other arguments."""
    (finding,) = found(saved(tmp_path, value), "P206")
    assert finding.severity is Severity.ERROR


def chain(*names):
    """A pickle that walks from a module that a name leads to."""
    data = b"\x80\x04" + b"".join([b"cbuiltins\ngetattr\n" for _ in names]) + b"\x8c\x05torch\x8c\x0dserialization\x93"
    for name in names:
        data += b"\x8c" + bytes([len(name)]) + name.encode() + b"\x86R"
    return data


def test_steps_that_lead_out_of_a_module_are_followed(tmp_path):
    """torch.serialization has os, which has system: two lookups give what one dangerous name would."""
    raw = chain("os", "system") + b"\x8c\x04echo\x85R."
    assert pickle.loads(chain("os", "sep") + b".") == os.sep
    (tmp_path / "a.pkl").write_bytes(raw)
    assert "builtins.getattr" in found(tmp_path / "a.pkl", "P206")[0].message


def test_one_harmless_pickle_does_not_cover_for_another(tmp_path):
    """In the same file, in a text of it, and in another file of its folder."""
    bad = pickle.dumps(look_up(pathlib.PosixPath, "unlink"))
    path = saved(tmp_path, [Mode.TRAIN, bad])
    assert found(path, "P206")
    good = pickle.dumps(Mode.TRAIN)
    (tmp_path / "row.pkl").write_bytes(good + bad)
    assert found(tmp_path / "row.pkl", "P206")
    (tmp_path / "two.pkl").write_bytes(good + good)
    assert found(tmp_path / "two.pkl", "P206") == []


@pytest.mark.parametrize("name", ["PosixPath.unlink", "PosixPath.write_text"])
def test_methods_that_are_named_with_dots(name, tmp_path):
    """As protocol 4 names them, without getattr; beside the contents, too."""
    raw = b"\x80\x04\x8c\x07pathlib\x8c" + bytes([len(name)]) + name.encode() + b"\x93)R."
    (tmp_path / "a.pkl").write_bytes(raw)
    assert f"pathlib.{name}" in found(tmp_path / "a.pkl", "P206")[0].message
    (tmp_path / "b.pkl").write_bytes(b"\x80\x02}." + raw)
    assert f"pathlib.{name}" in found(tmp_path / "b.pkl", "P206")[0].message


@pytest.mark.filterwarnings("ignore")
def test_a_distributed_checkpoint_of_python_3_11_2_is_no_danger(tmp_path, monkeypatch):
    """Its list has members of an enum of torch: pickle.load, which reads it, only looks them up."""
    monkeypatch.setattr(enum.Enum, "__reduce_ex__", Mode.__reduce_ex__)
    dcp.save({"w": torch.ones(2), "mode": Mode.TRAIN}, checkpoint_id=str(tmp_path / "dcp"), no_dist=True)
    assert b"getattr" in (tmp_path / "dcp" / ".metadata").read_bytes()
    assert found(tmp_path / "dcp", "P206") == []
    assert found(tmp_path / "dcp" / ".metadata", "P206") == []


def test_plain_data_has_no_value_for_it_and_the_way_out_works(tmp_path):
    """Only the name is in the file: a guess would be written. What the refusal names leaves a file that torch loads."""
    path, output = saved(tmp_path, Mode.TRAIN), tmp_path / "b.pt"
    command = [sys.executable, "-m", "ckptdoctor", "fix", str(path), "--weights-only-safe", "-o", str(output)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "Mode.TRAIN, of which the file has the name and not the value" in refused.stdout + refused.stderr
    way = re.search(r"leave it out: ckptdoctor (.*)", refused.stdout + refused.stderr)
    subprocess.run([*command[:3], *shlex.split(way[1])], check=True, capture_output=True)
    assert torch.load(output)["model"].keys() == WEIGHTS.keys()


def test_places_in_a_file_without_records_are_told_by_the_byte(tmp_path):
    """There is no name of a record to go with it."""
    path = saved(tmp_path, Mode.TRAIN, _use_new_zipfile_serialization=False)
    (finding,) = found(path, "P201")
    assert finding.location.member is None
    assert finding.location.offset == path.read_bytes().find(b"c__builtin__\ngetattr")


def test_arrays_of_objects(tmp_path):
    """numpy.load looks the member up; its class is one that nobody knows."""
    file = io.BytesIO()
    np.save(file, np.array([Mode.TRAIN], dtype=object), allow_pickle=True)
    (tmp_path / "a.npy").write_bytes(file.getvalue())
    (finding,) = found(tmp_path / "a.npy", "P206")
    assert finding.severity is Severity.WARNING
    assert f"{__name__}.Mode" in finding.message
    assert "getattr" not in finding.message


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)
        self.mode = Mode.TRAIN


def test_members_in_a_whole_model_go_with_it(tmp_path):
    """P204 speaks of all that the model names; its repair leaves them out."""
    torch.save(Net(), tmp_path / "a.pt")
    assert found(tmp_path / "a.pt", "P206") == found(tmp_path / "a.pt", "P201") == []
    assert found(tmp_path / "a.pt", "P204")
    ckptdoctor.fix(tmp_path / "a.pt", tmp_path / "b.pt", select=["P204"], unsafe_fixes=True)
    assert torch.load(tmp_path / "b.pt").keys() == Net().state_dict().keys()


BAD = b"cbuiltins\ngetattr\n(cpathlib\nPosixPath\nS'unlink'\ntR"
GOOD = b"cbuiltins\ngetattr\n(cuserlib\nMode\nS'TRAIN'\ntR"


@pytest.mark.parametrize(
    "raw",
    [
        BAD + GOOD + b".",
        BAD + b"0" + GOOD + b".",
        BAD + b"p0\n0" + GOOD + b".",
        b"(" + BAD + b"1" + GOOD + b".",
        GOOD + b"}X\x01\0\0\0a" + BAD + b"sb.",
        b"}" + BAD + GOOD + b"s.",
        b"(" + GOOD + b"cbuiltins\ngetattr\n(cuserlib\nMode\nS'TRAIN'\ntl.",
        b"(" + GOOD + b"(cuserlib\nMode\nS'TRAIN'\nibuiltins\ngetattr\nl.",
        b"(" + GOOD + b"cbuiltins\ngetattr\n(cuserlib\nMode\nS'TRAIN'\ntd.",
        GOOD + b"cbuiltins\ngetattr\nQ\x86.",
        b"\x80\x02cbuiltins\ngetattr\nq\x000" + GOOD + b".",
        GOOD.replace(b"tR", b"S'x'\ntR") + b".",
    ],
    ids=range(12),
)
def test_no_way_of_writing_a_pickle_hides_another_use(raw, tmp_path):
    """What is left on the stack, discarded, kept in the memo, a key, a state, or in lists, by whatever opcode."""
    (tmp_path / "a.pkl").write_bytes(raw)
    assert [each for each in found(tmp_path / "a.pkl", "P206") if each.severity is Severity.ERROR]


def test_that_one_is_harmless_by_itself(tmp_path):
    """So that it is the other that the test above finds."""
    (tmp_path / "a.pkl").write_bytes(b"(" + GOOD + GOOD + b"l.")
    assert found(tmp_path / "a.pkl", "P206") == []
