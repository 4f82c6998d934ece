"""F005, F006 and F007: files that end too early."""

from __future__ import annotations

import pytest

from ckptdoctor.errors import RefusedError
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.salvaging.salvage import salvage
from tests.builders import build
from tests.rules.examined import find_one, found, safetensors_error, sick, torch_error


@pytest.mark.parametrize("example", sick("F005"), ids=lambda example: example.title)
def test_a_cut_archive(tmp_path, example):
    """torch's words about the missing directory, with and without mmap."""
    finding = find_one(example, tmp_path, "F005")
    path = build(example, tmp_path)
    for line in finding.torch_says:
        assert line in torch_error(path)
        assert line in torch_error(path, mmap=True)


@pytest.mark.parametrize("example", sick("F006"), ids=lambda example: example.title)
def test_a_cut_legacy_file(tmp_path, example):
    """torch's words about the bytes that are missing."""
    finding = find_one(example, tmp_path, "F006")
    for line in finding.torch_says:
        assert line in torch_error(build(example, tmp_path))


@pytest.mark.parametrize("cut", [5, 30, 200, -10, -1])
def test_a_cut_safetensors_file(tmp_path, cut):
    """safetensors says different things to a cut header and to cut tensors, and so does the finding."""
    example = Example("cut", {"w": T((100,))}, "safetensors", ".safetensors", damage=lambda data: data[:cut])
    findings = found(build(example, tmp_path), "F007")
    if findings:  # a file that is cut within its first eight bytes is no safetensors file to anyone
        (finding,) = findings
        for line in finding.torch_says:
            assert line in safetensors_error(build(example, tmp_path))
    else:
        assert cut < 8


@pytest.mark.parametrize(
    ("part", "named"), [(slice(0, 5_000), False), (slice(0, -20), True)], ids=["its storage", "its list"]
)
def test_salvage_is_advised_where_it_saves_something(tmp_path, part, named):
    """An archive that ends in its only storage is not one to salvage."""
    example = Example("cut", {"w": T((10_000,))}, damage=lambda data: data[part])
    (finding,) = found(build(example, tmp_path), "F005")
    assert ("ckptdoctor salvage FILE" in finding.advice) is named
    assert finding.advice.startswith("Copy or download it again")


@pytest.mark.parametrize(("cut", "named"), [(-10, True), (-30_000, False)], ids=["the second", "both"])
@pytest.mark.parametrize(
    ("kind", "suffix", "code"), [("torch legacy", ".pt", "F006"), ("safetensors", ".safetensors", "F007")]
)
def test_salvage_is_advised_where_a_tensor_is_whole(tmp_path, kind, suffix, code, cut, named):
    """Of two tensors one is in front of the cut, or none: salvage is named, or not, and does or refuses accordingly."""
    example = Example("cut", {"a": T((5_000,)), "b": T((5_000,))}, kind, suffix, damage=lambda data: data[:cut])
    path = build(example, tmp_path)
    (finding,) = found(path, code)
    assert ("ckptdoctor salvage FILE" in finding.advice) is named
    if named:
        assert salvage(str(path)).output
    else:
        with pytest.raises(RefusedError, match="nothing to recover"):
            salvage(str(path))


def test_each_format_has_its_own_rule(tmp_path):
    """One cause, one finding: a cut archive is not also a cut safetensors file, nor damaged contents."""
    for example, code in ((sick("F005")[0], "F005"), (sick("F007")[0], "F007")):
        path = build(example, tmp_path)
        codes = {finding.code for family in "F" for finding in _all(path, family)}
        assert codes == {code}


def _all(path, family):
    from ckptdoctor.diagnose.selection import Selection
    from ckptdoctor.diagnose.settings import Settings
    from ckptdoctor.examine.file import check

    return check(str(path), Settings(selection=Selection(select=(family,)))).findings
