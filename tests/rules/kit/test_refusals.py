"""The words of torch and safetensors, held against the installed ones."""

from __future__ import annotations

import pickletools
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

import pytest
import torch
import torch._weights_only_unpickler as unpickler

from ckptdoctor.checkpoint import Container, GlobalName
from ckptdoctor.examine.file import check
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


def test_the_names_of_python_2_that_torch_reads_as_new_ones():
    """Of every name that Python itself maps, torch reads what its own tables say."""
    names = [*NAME_MAPPING, *[(module, "anything") for module in IMPORT_MAPPING], ("collections", "deque")]
    for module, name in names:
        expected = unpickler.NAME_MAPPING.get((module, name), (unpickler.IMPORT_MAPPING.get(module, module), name))
        assert refusals.torch_reads(GlobalName(module, name, "", 0)) == ".".join(expected)


def test_an_exception_is_quoted_under_its_name_in_the_file(tmp_path):
    """Torch does not read exceptions.ValueError as builtins.ValueError."""
    path = tmp_path / "a.pt"
    torch.save({"x": ValueError("x")}, path)
    (finding,) = [each for each in check(str(path)).findings if each.code == "P201"]
    assert (
        finding.torch_says[0]
        == "Unsupported global: GLOBAL exceptions.ValueError was not an allowed global by default."
    )
    assert finding.torch_says[0] in torch_error(path)
