"""Which rules a file concerns, asked before they are imported. That every sick example is found is one of the laws."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.checkpoint import Checkpoint, Container
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import check
from ckptdoctor.rules.index import INSIDE, OUTSIDE
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.rules.when import HARMLESS
from tools import rule_index

READING = "import sys; from ckptdoctor.examine.file import check; check(sys.argv[1])"
TOLD = f"{READING}; print(*[name for name in sys.modules if name.startswith('ckptdoctor.')])"


def test_the_index_is_what_the_rules_say() -> None:
    """``python tools/rule_index.py`` would write the same."""
    assert rule_index.INDEX.read_text(encoding="utf-8") == rule_index.index()


@pytest.mark.parametrize(("table", "noun"), [(OUTSIDE, Container), (INSIDE, Checkpoint)], ids=["outside", "inside"])
def test_a_rule_says_when_it_is_asked_if_it_reads_headers(table: dict[str, object], noun: type) -> None:
    """Each of them stands in the table of what it reads; what speaks of references or values has no condition."""
    readers = [rule for rule in all_rules() if noun in (rule.subject, *get_args(rule.subject))]
    assert sorted(table) == sorted(rule.body.__module__.removeprefix("ckptdoctor.rules.") for rule in readers)
    assert all(rule.when is not None for rule in readers)


def test_a_condition_that_the_index_cannot_import_is_refused(tmp_path: Path) -> None:
    """What a rule's file defines itself would not be known without importing it."""
    page = tmp_path / "odd.py"
    page.write_text(
        "from ckptdoctor.rules.when import any_of\n"
        '@rule("ZZ001", "odd", 1, when=any_of(_mine))\ndef odd(checkpoint): ...\n'
    )
    with pytest.raises(ValueError, match=r"odd\.py: when= needs _mine"):
        rule_index.condition(page)


def test_a_deep_check_imports_no_rule_of_other_headers(tmp_path: Path) -> None:
    """Importing all of them would take as long as the values of a gigabyte."""
    save_file({"fc.weight": torch.ones(3, 2), "fc.bias": torch.ones(3)}, tmp_path / "model.safetensors")
    deep = TOLD.replace("check(sys.argv[1])", "check(sys.argv[1], Settings(deep=True))")
    program = f"from ckptdoctor.diagnose.settings import Settings; {deep}"
    assert not {"naming", "structure", "reference"} & _families(tmp_path / "model.safetensors", program)


def _imported(path: Path, program: str = TOLD) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    return done.stdout.split()


def _families(path: Path, program: str = TOLD) -> set[str]:
    rules = [name for name in _imported(path, program) if name.startswith("ckptdoctor.rules.")]
    return {name.split(".")[2] for name in rules if name.count(".") == 3}


def test_a_plain_file_imports_no_rule(tmp_path: Path) -> None:
    """Of weights without anything strange no rule is asked, nor is what a repair would be made of."""
    weights = torch.nn.Linear(2, 3).state_dict()
    torch.save(weights, tmp_path / "weights.pt")
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    for name in ("weights.pt", "model.safetensors"):
        assert _families(tmp_path / name) == set()
        assert not [each for each in _imported(tmp_path / name) if each.startswith("ckptdoctor.edits")]


def test_what_is_asked_finds_all_that_there_is(tmp_path: Path) -> None:
    """A file of a training with everything in it has the same findings whether or not all rules are asked."""
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4))
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.zeros(2, 3)).sum().backward()
    optimizer.step()
    keys = network.state_dict()
    contents = {
        "model": {f"module.{key}": value for key, value in keys.items()},
        "ema": {key: value.double() for key, value in keys.items()},
        "optimizer": optimizer.state_dict(),
        "args": {"data": "/home/somebody/data"},
        "rng": torch.get_rng_state(),
        "path": tmp_path,
    }
    torch.save(contents, tmp_path / "all.pt")
    everything = Settings(selection=Selection(extend_select=("ALL",)))
    found = check(str(tmp_path / "all.pt"))
    assert found.findings == check(str(tmp_path / "all.pt"), everything).findings
    assert {"N401", "M977", "P203"} <= {each.code for each in found.findings}


def test_harmless_names_are_those_that_torch_takes() -> None:
    """None of the names that wake no rule is one that weights_only refuses."""
    assert set(torch._weights_only_unpickler._get_allowed_globals()) >= set(HARMLESS)
