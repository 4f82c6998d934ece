"""C101, C105, C110, C111 and C113: what kind of file it is."""

from __future__ import annotations

import pytest
import torch

import ckptdoctor
from ckptdoctor.edits import SetSuffix
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from tests.builders import build
from tests.rules.examined import find_one, found, loads, safetensors_error, sick, torch_error


def test_a_wrong_suffix_gets_the_right_one(tmp_path):
    """The words are those of the library that the suffix calls for."""
    archive, safetensors = sick("C101")
    finding = find_one(archive, tmp_path, "C101")
    assert finding.torch_says[0] in safetensors_error(build(archive, tmp_path))
    assert finding.fix is not None
    assert finding.fix.edits == (SetSuffix(".pt"),)
    finding = find_one(safetensors, tmp_path, "C101")
    path = build(safetensors, tmp_path)
    for line in finding.torch_says:
        assert line in torch_error(path) + torch_error(path, weights_only=False)
    assert finding.fix is not None
    assert finding.fix.edits == (SetSuffix(".safetensors"),)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt", ".bin", ".tar", ".model", ""])
def test_torch_archives_may_be_called_many_things(tmp_path, suffix):
    """Nobody chooses the library by these."""
    assert found(build(Example("archive", {"w": T((3,))}, suffix=suffix), tmp_path), "C101") == []


def test_the_legacy_format_cannot_be_mapped(tmp_path):
    """Information: it loads, and torch's refusal to map it is quoted."""
    finding = find_one(sick("C105")[0], tmp_path, "C105")
    assert finding.severity is Severity.INFO
    assert finding.torch_says[0] in torch_error(build(sick("C105")[0], tmp_path), mmap=True)


@pytest.mark.parametrize("example", sick("C110"), ids=lambda example: example.title)
def test_headers_that_safetensors_refuses(tmp_path, example):
    """The quoted line is in the real refusal."""
    finding = find_one(example, tmp_path, "C110")
    assert finding.torch_says[0] in safetensors_error(build(example, tmp_path))


@pytest.mark.parametrize("example", sick("C111"), ids=lambda example: example.title)
def test_offsets_that_safetensors_refuses(tmp_path, example):
    """safetensors refuses the file for the same reason."""
    find_one(example, tmp_path, "C111")
    assert "offset" in safetensors_error(build(example, tmp_path))


def test_big_endian_values_load_swapped(tmp_path):
    """torch swaps them: 1.0 read backwards is no 1.0."""
    example = sick("C113")[0]
    assert find_one(example, tmp_path, "C113").severity is Severity.WARNING
    assert not torch.equal(loads(build(example, tmp_path))["w"], torch.arange(3.0))


@pytest.mark.parametrize("dtype", ["uint16", "uint64", "float8_e4m3fn", "float8_e8m0fnu"])
def test_legacy_storages_without_a_type(dtype, tmp_path):
    """torch cannot read what it wrote; the archive that the repair makes, it can."""
    path = tmp_path / "model.pt"
    value = torch.ones(4).to(getattr(torch, dtype))
    torch.save({"w": value}, path, _use_new_zipfile_serialization=False)
    (finding,) = found(path, "C105")
    assert finding.severity is Severity.ERROR
    (line,) = finding.torch_says
    assert line == torch_error(path)
    ckptdoctor.fix(str(path), str(tmp_path / "new.pt"), select=["C105"])
    assert torch.equal(torch.load(tmp_path / "new.pt")["w"].view(torch.uint8), value.view(torch.uint8))
    assert check(str(tmp_path / "new.pt")).findings == ()


@pytest.mark.parametrize("dtype", ["int16", "bool", "bfloat16", "complex64"])
def test_other_legacy_storages_load(dtype, tmp_path):
    """There it is information."""
    path = tmp_path / "model.pt"
    torch.save({"w": torch.ones(4).to(getattr(torch, dtype))}, path, _use_new_zipfile_serialization=False)
    (finding,) = found(path, "C105")
    assert finding.severity is Severity.INFO
    assert torch.load(path)["w"].shape == (4,)
