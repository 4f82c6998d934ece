"""Saves a checkpoint and a target, has one made to fit the other, and lets torch judge the result."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ckptdoctor.cli.main import run

SICK, TARGET, WELL = "sick.pt", "target.pt", "well.pt"


def equal(one, other):
    """Whether two state dicts hold the same values under the same keys."""
    return list(one) == list(other) and all(torch.equal(value, other[key]) for key, value in one.items())


def without(state_dict, *leaves):
    """The plain tensors of a state dict without those whose last token is one of these."""
    return {key: value for key, value in state_dict.items() if key.rpartition(".")[2] not in leaves}


def under(prefix, state_dict):
    """The same tensors under keys with a prefix."""
    return {prefix + key: value for key, value in state_dict.items()}


@dataclass(frozen=True)
class Bench:
    """The folder with the files, and what the commands say."""

    folder: Path
    capsys: Any

    def repair(self, saved, target, *options):
        """Make ``saved`` fit the module ``target``, and load it with strict=True; gives the codes of the steps."""
        status, said = self.auto(saved, target, *options)
        assert status == 0, said
        target.load_state_dict(self.result(), strict=True)
        return re.findall(r"^  ([A-Z]\d{3}) ", said, flags=re.MULTILINE)

    def refuse(self, saved, target, *options):
        """What is said when nothing is done; nothing is written either."""
        status, said = self.auto(saved, target, *options)
        assert (status, said[:10]) == (1, "refused · "), said
        assert not (self.folder / WELL).exists()
        return said

    def auto(self, saved, target, *options):
        """The exit status of ``fix --auto``, and what it says."""
        torch.save(saved, SICK)
        torch.save(target.state_dict() if isinstance(target, nn.Module) else target, TARGET)
        (self.folder / WELL).unlink(missing_ok=True)
        return self.fix(SICK, TARGET, *options)

    def fix(self, sick, target, *options):
        """As ``auto``, of files that are there."""
        self.capsys.readouterr()
        status = run(["fix", sick, "--auto", "--like", target, "-o", WELL, *options])
        return status, self.capsys.readouterr().out

    def result(self):
        """What the target is to load: the result, or the file itself where it needs no repair."""
        return torch.load(WELL if (self.folder / WELL).exists() else SICK, weights_only=True)

    def findings(self):
        """What check says of the same pair: its lines by their codes."""
        self.capsys.readouterr()
        run(["check", SICK, "--like", TARGET, "--format", "concise"])
        lines = self.capsys.readouterr().out.splitlines()
        return {found[1]: line for line in lines if (found := re.search(r" ([A-Z]\d{3}) ", line))}
