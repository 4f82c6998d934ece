from __future__ import annotations

import base64

import pytest
import torch

from ckptdoctor.checkpoint import Special, at
from ckptdoctor.edits import Convert, Drop, Rename, Retag, TakeRoot
from tests.formats.torch.legacy.support import read, rewritten

# {"state_dict": OrderedDict of module.w and module.b on cuda:0 with _metadata, "arch": u"resnét", "raw": "\xff",
# "epoch": 3} as Python 2.7 pickles it: text as byte strings, long integers, OrderedDict made of a list of pairs
PYTHON2 = base64.b64decode(
    "gAKKCmz8nEb5IGqoUBkugAJN6QMugAJ9cQAoVRBwcm90b2NvbF92ZXJzaW9ucQFN6QNVCnR5cGVfc2l6ZXNxAn1xAyhVA2ludHEE"
    "SwRVBXNob3J0cQVLAlUEbG9uZ3EGSwR1VQ1saXR0bGVfZW5kaWFucQeIdS6AAn1xAChVBGFyY2hxAVgHAAAAcmVzbsOpdHECVQVl"
    "cG9jaHEDSwNVCnN0YXRlX2RpY3RxBGNjb2xsZWN0aW9ucwpPcmRlcmVkRGljdApxBV1xBihdcQcoVQhtb2R1bGUud3EIY3RvcmNo"
    "Ll91dGlscwpfcmVidWlsZF90ZW5zb3JfdjIKcQkoKFUHc3RvcmFnZXEKY3RvcmNoCkZsb2F0U3RvcmFnZQpxC1UDMTExcQxVBmN1"
    "ZGE6MHENSwNOdHEOUUsAigEDhXEPigEBhXEQiWgFXXERhXESUnETdHEUUnEVZV1xFihVCG1vZHVsZS5icRdoCSgoaApoC1UDMjIy"
    "cRhoDUsDTnRxGVFLAIoBA4VxGmgQiWgFXXEbhXEcUnEddHEeUnEfZWWFcSBScSF9cSJVCV9tZXRhZGF0YXEjaAVdcSQoXXElKFUA"
    "cSZ9cSdVB3ZlcnNpb25xKEsBc2VdcSkoVQZtb2R1bGVxKn1xK2goSwFzZWWFcSxScS1zYlUDcmF3cS5VAf9xL3UugAJdcQAoVQMx"
    "MTFxAVUDMjIycQJlLgMAAAAAAAAAAACAPwAAgD8AAIA/AwAAAAAAAAAAAABAAAAAQAAAAEA="
)
STRIP = Rename(("state_dict",), (("module.w", "w"), ("module.b", "b")))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "py2.pt"
    path.write_bytes(PYTHON2)
    return path


def test_python_2_files_are_read(path):
    """Strings of Python 2 are text where they are ASCII and bytes where not; dicts and integers are as ours."""
    got = read(path)
    assert got.notes == ()
    assert [(tensor.path, tensor.shape, tensor.device) for tensor in got.tensors] == [
        (("state_dict", "module.w"), (3,), "cuda:0"),
        (("state_dict", "module.b"), (3,), "cuda:0"),
    ]
    assert at(got.tree, ("arch",)) == "resnét"
    assert at(got.tree, ("raw",)) == b"\xff"
    assert at(got.tree, ("state_dict", Special("._metadata"), "module", "version")) == 1


def test_python_2_files_are_written_again_byte_for_byte(path):
    """What is written without edits is a copy, and renames that are undone leave no trace."""
    assert rewritten(path, []).read_bytes() == PYTHON2
    back = Rename(("state_dict",), (("w", "module.w"), ("b", "module.b")))
    assert (
        rewritten(
            path, [Rename(STRIP.state_dict, STRIP.pairs[:1]), Rename(back.state_dict, back.pairs[:1])]
        ).read_bytes()
        == PYTHON2
    )


def test_python_2_files_are_repaired(path):
    """Keys, _metadata, tags and entries change as in any other file, and torch loads the result."""
    loaded = torch.load(rewritten(path, [STRIP, Retag("cpu"), Drop((("raw",),))]), weights_only=True)
    assert {key: tensor.tolist() for key, tensor in loaded["state_dict"].items()} == {"w": [1.0] * 3, "b": [2.0] * 3}
    assert loaded["state_dict"]._metadata == {"": {"version": 1}}


def test_entries_leave_a_dict_of_pairs(path):
    """An OrderedDict of Python 2 loses the pair of a dropped key."""
    edits = [
        Drop((("state_dict", "module.w"), ("raw",))),
        Retag("cpu"),
        TakeRoot(("state_dict",)),
        Convert("torch zip"),
    ]
    loaded = torch.load(rewritten(path, edits), weights_only=True)
    assert {key: tensor.tolist() for key, tensor in loaded.items()} == {"module.b": [2.0] * 3}
