"""N425 alias-prefixed-duplicates."""

from __future__ import annotations

from pathlib import Path

import torch

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.edits import Safety
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Finding


class Block(torch.nn.Module):
    """A module whose mixer is still reachable under its old name."""

    def __init__(self, alias: bool) -> None:
        super().__init__()
        if alias:
            self.mlp = self.made = torch.nn.Linear(4, 4)
            del self.made
            self.mixer = self.mlp
        else:
            self.mixer = torch.nn.Linear(4, 4)


def _net(alias: bool, blocks: int = 3) -> torch.nn.Module:
    return torch.nn.Sequential(*(Block(alias) for _ in range(blocks)))


def _findings(contents: object, target: torch.nn.Module, folder: Path) -> list[Finding]:
    torch.save(contents, folder / "here.pt")
    torch.save(target.state_dict(), folder / "like.pt")
    report = check(str(folder / "here.pt"), Settings(like=str(folder / "like.pt")))
    return [finding for finding in report.findings if finding.code[0] in "NR"]


def test_a_second_name_of_the_same_memory_goes(tmp_path: Path) -> None:
    """The reference picks the name that stays; nothing else is said of the other."""
    [found] = _findings(_net(True).state_dict(), _net(False), tmp_path)
    assert found.code == "N425"
    assert found.message == (
        f"6 of 12 keys are the same memory under a second name, which {tmp_path / 'like.pt'} does not have"
    )
    assert "0.mlp is 0.mixer" in found.cause
    assert found.fix is not None
    assert found.fix.safety is Safety.CONFIRMED
    assert found.fix.option == "--drop '*.mlp.weight' --drop '*.mlp.bias'"


def test_equal_values_in_memory_of_their_own_are_not_compared(tmp_path: Path) -> None:
    """Values are not read: they could differ."""
    copies = {key: value.clone() for key, value in _net(True).state_dict().items()}
    assert [found.code for found in _findings(copies, _net(False), tmp_path)] == ["R002"]


def test_a_module_that_is_shared_only_in_part_is_no_alias(tmp_path: Path) -> None:
    """Weights that are tied between two modules do not make one of them a second name."""
    contents = dict(_net(True).state_dict())
    contents["0.mlp.bias"] = contents["0.mlp.bias"].clone()
    codes = [found.code for found in _findings(contents, _net(False), tmp_path)]
    assert codes == ["R002", "N425"]
