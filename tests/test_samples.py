"""The committed samples: written by their script, and diagnosed as EXPECTED.json says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ckptdoctor.engine.diagnose import check
from ckptdoctor.engine.settings import Settings
from ckptdoctor.rules.registry import all_rules

SAMPLES = Path(__file__).parent.parent / "sample_ckpts"
EXPECTED = json.loads((SAMPLES / "EXPECTED.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_check_says_what_is_expected(name):
    """check reports exactly the codes that EXPECTED.json lists for a sample."""
    expected = EXPECTED[name]
    options = expected["options"]
    like = str(SAMPLES / options[options.index("--like") + 1]) if "--like" in options else None
    report = check(str(SAMPLES / name), Settings(deep="--deep" in options, like=like))
    assert sorted({finding.code for finding in report.findings}) == sorted(expected["codes"])


def test_sick_files_are_named_after_their_rule():
    """The name of a sick sample begins with a code that it must show."""
    sick = [name for name in EXPECTED if name.startswith("sick/")]
    assert all(Path(name).name.split("-")[0] in EXPECTED[name]["codes"] for name in sick)


def test_every_expected_code_exists():
    """EXPECTED.json names only rules that there are."""
    known = {rule.code for rule in all_rules()}
    assert {code for expected in EXPECTED.values() for code in expected["codes"]} <= known


def test_the_script_writes_the_committed_bytes(tmp_path):
    """make.py writes every sample and EXPECTED.json anew, byte for byte."""
    subprocess.run([sys.executable, str(SAMPLES / "make.py"), str(tmp_path)], check=True)
    written = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {str(path) for path in written} == {*EXPECTED, "EXPECTED.json"}
    different = [str(path) for path, data in written.items() if (SAMPLES / path).read_bytes() != data]
    assert not different


def test_the_samples_are_small():
    """All samples together stay under 4 MB."""
    assert sum((SAMPLES / name).stat().st_size for name in EXPECTED) < 4_000_000


def test_the_sample_of_the_readme_is_repaired_with_one_command(tmp_path):
    """fix --strip-module writes the same tensors under bare keys, and check finds nothing in the result."""
    sample, output = SAMPLES / "sick/N401-module-prefix.pt", tmp_path / "repaired.pt"
    command = [sys.executable, "-m", "ckptdoctor"]
    subprocess.run([*command, "fix", str(sample), "--strip-module", "-o", str(output)], check=True)
    before, after = torch.load(sample, weights_only=True), torch.load(output, weights_only=True)
    assert list(after) == [key.removeprefix("module.") for key in before]
    assert all(torch.equal(after[key.removeprefix("module.")], value) for key, value in before.items())
    subprocess.run([*command, "check", "--fail-on", "info", str(output)], check=True)
