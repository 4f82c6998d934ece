"""The protocol of a pickle, and where a file's first value begins, are told by the first bytes."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor import formats
from ckptdoctor.checkpoint import Container, FileSource
from ckptdoctor.checkpoint.first_bytes import first_value, pickle_protocol


def examined(path):
    """The container of a file."""
    with FileSource(path) as source:
        return formats.examine(source)


@pytest.mark.parametrize("zipped", [True, False], ids=["archive", "old format"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_what_torch_wrote(tmp_path, zipped, protocol):
    """With each protocol, in both of torch's formats."""
    path = tmp_path / "model.pt"
    torch.save({"w": torch.zeros(3)}, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    container = examined(path)
    assert pickle_protocol(container) == protocol
    assert first_value(container) == (64 if zipped else None)


def test_what_safetensors_wrote(tmp_path):
    """There is no pickle, and the first value begins behind the header."""
    save_file({"w": torch.zeros(3)}, tmp_path / "model.safetensors")
    container = examined(tmp_path / "model.safetensors")
    assert pickle_protocol(container) is None
    assert first_value(container) == container.size - 12


@pytest.mark.parametrize("head", [b"", b"P", b"PK\3\4", b"PK\3\4" + bytes(40), b"\x80", b"\x80\x09."])
@pytest.mark.parametrize("format_", ["torch zip", "torch legacy", "safetensors", ""])
def test_first_bytes_that_tell_nothing(head, format_):
    """Whatever stands there, nothing is raised."""
    container = Container("a.pt", 100, format_, head, True)
    assert pickle_protocol(container) in (None, 1)
    first_value(container)
    assert pickle_protocol(None) is None
