"""The words of torch and safetensors, held against the installed ones."""

from __future__ import annotations

import pickletools

import pytest
import torch._weights_only_unpickler as unpickler

from ckptdoctor.checkpoint import Container
from ckptdoctor.rules.kit import refusals
from tests.rules.examined import torch_error


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_the_first_byte_decides_what_torch_says(tmp_path):
    """For each of the 256: every quoted line is in the real error, and something is quoted for what is no opcode."""
    path = tmp_path / "a.pt"
    for byte in range(256):
        data = bytes([byte]) + b"zzzzzzzz\nzz"
        path.write_bytes(data)
        lines = refusals.torch_says(Container(str(path), len(data), "", data, False))
        said = torch_error(path) + torch_error(path, weights_only=False)
        assert [line for line in lines if line not in said] == []
        assert lines or byte in refusals._PICKLE_OPCODES


def test_every_opcode_of_pickle_is_known():
    """The opcodes that do not end in an invalid load key."""
    known = {ord(opcode.code) for opcode in pickletools.opcodes}
    assert known <= set(refusals._PICKLE_OPCODES)


def test_blocked_modules_are_the_installed_torch_s():
    """torch refuses the same modules whatever the user allows."""
    assert set(unpickler._blocklisted_modules) == refusals.BLOCKED_MODULES


def test_how_torch_shows_a_builtin():
    """torch leaves out the module of builtins."""
    assert refusals.torch_shows("builtins.frozenset") == "frozenset"
    assert refusals.torch_shows("argparse.Namespace") == "argparse.Namespace"
