"""P206 and F014: what is named besides the contents, how it is told, and that the search for it has an end."""

from __future__ import annotations

import collections
import enum
import io
import pickle

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from ckptdoctor.formats import open_checkpoint
from ckptdoctor.pickles import decode
from ckptdoctor.pickles.decode import follow
from tests.rules.examined import found
from tests.work import counted, growth

UNKNOWN = b"\x80\x02csome_package\nmake\n)R."
CALL = b"cos\nsystem\n(S'echo hello'\ntR"


def told(path):
    (finding,) = found(path, "P206")
    return finding


def objects(raw):
    """A file of NumPy whose objects are this pickle."""
    made = io.BytesIO()
    np.save(made, np.array([None], dtype=object), allow_pickle=True)
    return made.getvalue()[:128] + raw


@pytest.mark.filterwarnings("ignore")
def test_unknown_names_where_nothing_protects(tmp_path, monkeypatch):
    """In texts, in the list of a distributed checkpoint and in arrays of objects such a name is a warning."""
    monkeypatch.setattr(enum.Enum, "__reduce_ex__", lambda self, protocol: (self.__class__, (self.value,)))
    torch.save({"w": torch.ones(2), "blob": UNKNOWN}, tmp_path / "text.pt")
    (tmp_path / "array.npy").write_bytes(objects(UNKNOWN))
    folder = tmp_path / "dcp"
    dcp.save({"w": torch.ones(2)}, checkpoint_id=str(folder))
    assert found(folder, "P206") == []
    listed = (folder / ".metadata").read_bytes()
    assert listed.endswith(b"b.")
    (folder / ".metadata").write_bytes(listed[:-1] + UNKNOWN[2:-1] + b"0.")
    for path in (tmp_path / "text.pt", tmp_path / "array.npy", folder):
        assert told(path).severity is Severity.WARNING
        assert "some_package.make" in told(path).message


def test_unknown_names_beside_and_behind(tmp_path):
    """The arguments of a training name classes of many packages: only what can run commands is told there."""
    (tmp_path / "two.pkl").write_bytes(b"\x80\x02}." + UNKNOWN)
    assert found(tmp_path / "two.pkl", "P206") == []


def test_a_break_behind_a_call_is_told_with_the_call(tmp_path):
    """Both findings say both, and none advises to fetch a hostile file again."""
    path = tmp_path / "m.pkl"
    path.write_bytes(b"\x80\x02" + CALL + b"\xff.")
    call, damage = told(path), found(path, "F014")[0]
    assert call.message == (
        "the file names os.system and then breaks off at byte 30: a loader can call it before it fails"
    )
    assert damage.message.endswith("; before that it names os.system")
    assert not any("another copy" in each.advice or "again," in each.message for each in (call, damage))
    assert {each.code for each in check(str(path)).findings} >= {"P206", "F014"}


def test_names_that_are_not_dangerous_are_told_with_the_damage(tmp_path):
    """What a broken pickle names in front of the break is said, dangerous or not."""
    (tmp_path / "m.pkl").write_bytes(UNKNOWN[:-1] + b"\xff.")
    assert found(tmp_path / "m.pkl", "P206") == []
    assert found(tmp_path / "m.pkl", "F014")[0].message.endswith("; before that it names some_package.make")


def test_each_file_of_a_folder_is_named(tmp_path):
    """Of several hostile shards every one is."""
    for number in (1, 2):
        name = f"pytorch_model-0000{number}-of-00002.bin"
        (tmp_path / name).write_bytes(b"\x80\x02}X\x01\0\0\0a" + CALL + b"s.")
    message = told(tmp_path).message
    assert message.startswith("pytorch_model-00001-of-00002.bin, pytorch_model-00002-of-00002.bin name os.system")


@pytest.mark.parametrize(
    "text", ["cat\ndog\n", "class,name\n1,a\n", "(words)\n", "S is a letter.\n", "Very short\n.\n"]
)
def test_a_text_stays_a_text(tmp_path, text):
    """Lists of words and the like are not taken for pickles, although their letters are opcodes."""
    (tmp_path / "words").write_text(text)
    report = check(str(tmp_path / "words"))
    assert report.container.format != "pickle"
    assert not report.findings


@given(st.integers(0, 1 << 20), st.sampled_from(range(6)))
def test_what_stands_in_front_of_a_cut_is_followed(at, protocol):
    """The names of a pickle that was cut are those of the whole one that come in front of the cut."""
    value = {"a": np.float32(1), "b": [collections.OrderedDict(a=1), np.zeros(2)], "c": complex(1, 2)}
    data = pickle.dumps(value, protocol)
    end = at % len(data)
    names = decode(data).globals
    assert set(follow(data[:end]).names) == {use for use in names if _behind(data, use) <= end}


def _behind(data, use):
    """The byte behind the opcode that names something."""
    return use.offset + (1 if data[use.offset] == 0x93 else len(f"c{use.module}\n{use.name}\n"))


def test_texts_in_texts_have_an_end(tmp_path):
    """A hundred pickles in each other are no more work than ten: beyond the first few nothing is looked for."""

    def opened(levels):
        raw = UNKNOWN
        for _ in range(levels):
            raw = pickle.dumps(raw, 4)
        torch.save({"deep": raw}, tmp_path / f"{levels}.pt")
        return counted(open_checkpoint, tmp_path / f"{levels}.pt")[1]

    opened(1)  # what is imported or kept when a file is first opened
    assert opened(100) < 1.1 * opened(10)


@pytest.mark.slow
def test_texts_beside_texts_are_each_looked_at_once(tmp_path):
    """Ten times as many pickles beside each other are about ten times the work, not a hundred times."""
    for texts in (10_000, 100_000):
        different = [UNKNOWN + bytes([each % 251, each // 251 % 251]) for each in range(texts)]
        torch.save(different, tmp_path / f"{texts}.pt")
    assert growth(lambda texts: open_checkpoint(tmp_path / f"{texts}.pt"), 10_000, 100_000, runs=1) < 40


def test_files_behind_files_have_an_end(tmp_path):
    """Thousands of arrays in one file are read without recursion, and the first of them are looked at."""
    one = io.BytesIO()
    np.save(one, np.zeros(1))
    (tmp_path / "m.npy").write_bytes(one.getvalue() * 5_000)
    assert found(tmp_path / "m.npy", "P206") == []
    (tmp_path / "m.npy").write_bytes(one.getvalue() * 50 + objects(b"\x80\x02" + CALL + b"."))
    assert "os.system" in told(tmp_path / "m.npy").message


def test_the_files_beside_a_checkpoint_have_an_end(tmp_path):
    """So many are looked at that nothing takes long; how many are left is said."""
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, tmp_path / "model-00001-of-00001.safetensors")
    for each in range(2_100):
        (tmp_path / f"{each}.bin").write_bytes(b"\x80\x02}.")
    skipped = [each.what for each in check(str(tmp_path)).skipped]
    assert any("100 more files in the folder" in each for each in skipped)
