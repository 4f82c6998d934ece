"""F008 to F011 and F014 to F016: bytes too many, wrong, zero, missing, or without sense."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.edits import Safety, Truncate
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from tests.builders import build
from tests.rules.examined import find_one, found, loads, safetensors_error, sick, torch_error


def test_trailing_bytes_of_safetensors(tmp_path):
    """The words are those of safetensors, and the fix cuts where the last tensor ends."""
    example = sick("F008")[0]
    finding = find_one(example, tmp_path, "F008")
    path = build(example, tmp_path)
    for line in finding.torch_says:
        assert line in safetensors_error(path)
    assert finding.fix is not None
    assert finding.fix.edits == (Truncate(path.stat().st_size - 10),)
    assert finding.fix.safety is Safety.UNSAFE


def test_trailing_bytes_of_an_archive_are_information(tmp_path):
    """torch ignores them, so nothing is wrong and nothing is cut."""
    example = Example("longer", {"w": T((3,))}, damage=lambda data: data + b"more")
    finding = find_one(example, tmp_path, "F008")
    assert (finding.severity, finding.fix) == (Severity.INFO, None)
    assert loads(build(example, tmp_path))["w"].shape == (3,)


def test_a_flipped_bit_names_its_tensor(tmp_path):
    """torch loads it without a word, with another value."""
    example = sick("F009")[0]
    finding = find_one(example, tmp_path, "F009")
    assert (finding.severity, finding.keys) == (Severity.ERROR, (("w",),))
    assert finding.torch_says == ()
    assert loads(build(example, tmp_path))["w"].tolist().count(-1.0) == 1


def test_without_deep_no_checksum_of_a_tensor_is_looked_at(tmp_path):
    """Reading every byte is asked for with --deep."""
    assert found(build(sick("F009")[0], tmp_path), "F009") == []


def test_checksums_that_were_never_computed_are_information(tmp_path):
    """set_crc32_options(False) writes 0 everywhere."""
    from torch.serialization import get_crc32_options, set_crc32_options

    before = get_crc32_options()
    set_crc32_options(False)
    try:
        torch.save({"w": torch.ones(10)}, tmp_path / "a.pt")
    finally:
        set_crc32_options(before)
    for deep in (False, True):
        (finding,) = found(tmp_path / "a.pt", "F009", deep=deep)
        assert finding.severity is Severity.INFO


def test_a_file_of_zeros(tmp_path):
    """torch takes it for its oldest format, safetensors for an empty header."""
    example = sick("F010")[0]
    finding = find_one(example, tmp_path, "F010")
    for line in finding.torch_says:
        assert line in torch_error(build(example, tmp_path))
    named = Example("zeros", raw=bytes(10_000), suffix=".safetensors")
    finding = find_one(named, tmp_path, "F010")
    for line in finding.torch_says:
        assert line in safetensors_error(build(named, tmp_path))


def test_a_hole_is_an_error_where_a_checksum_proves_it(tmp_path):
    """One finding, not one for the hole and one for the checksum."""
    proven, suspected = sick("F010")[1:]
    finding = find_one(proven, tmp_path, "F010")
    assert (finding.severity, finding.keys) == (Severity.ERROR, (("w",),))
    assert found(build(proven, tmp_path), "F009", deep=True) == []
    assert find_one(suspected, tmp_path, "F010").severity is Severity.WARNING


@pytest.mark.parametrize("example", sick("F011"), ids=lambda example: example.title)
def test_storages_missing_or_of_another_length(tmp_path, example):
    """The tensor on the storage is named, and the words are torch's."""
    finding = find_one(example, tmp_path, "F011")
    assert finding.keys == (("w",),)
    assert finding.torch_says
    for line in finding.torch_says:
        assert line in torch_error(build(example, tmp_path))


@pytest.mark.parametrize("code", ["F014", "F015"], ids=["pickle", "tensor"])
def test_what_makes_no_sense_does_not_load_in_torch(tmp_path, code):
    """The finding has words of its own, and torch refuses the file as well."""
    for example in sick(code):
        assert find_one(example, tmp_path, code).severity is Severity.ERROR
        torch_error(build(example, tmp_path))


def test_of_two_values_torch_keeps_the_last(tmp_path):
    """A key twice in one dict loads, and one value is lost."""
    finding = find_one(sick("F016")[0], tmp_path, "F016")
    assert "alpha" in finding.message
    assert list(loads(build(sick("F016")[0], tmp_path))) == ["alpha"]


def test_trailing_bytes_of_a_shard(tmp_path):
    """In a folder they are an error as well; the fix is that of the file by itself."""
    for number, name in ((1, "a"), (2, "b")):
        save_file({name: torch.ones(2)}, tmp_path / f"model-0000{number}-of-00002.safetensors", {"format": "pt"})
    with open(tmp_path / "model-00002-of-00002.safetensors", "ab") as file:
        file.write(b"more")
    (finding,) = found(tmp_path, "F008")
    assert (finding.severity, finding.fix) == (Severity.ERROR, None)
    (line,) = finding.torch_says
    assert line in safetensors_error(tmp_path / "model-00002-of-00002.safetensors")
    (finding,) = found(tmp_path / "model-00002-of-00002.safetensors", "F008")
    assert finding.fix is not None


def test_many_impossible_tensors_are_one_finding(tmp_path):
    """With one cause, a few of them are told."""
    state = {f"w{number}": torch.ones(4) for number in range(9)}
    torch.save(state, tmp_path / "model.pt", _use_new_zipfile_serialization=False)
    data = (tmp_path / "model.pt").read_bytes()
    data = data.replace(b"QK\x00K\x04\x85", b"QK\x00K\x05\x85")
    (tmp_path / "model.pt").write_bytes(data)
    (finding,) = found(tmp_path / "model.pt", "F015")
    assert finding.message.startswith("w0 reaches") and finding.message.endswith("and 8 more like it")
    assert "w3 reaches" in finding.cause and "w4" not in finding.cause
