"""The sick examples of all rules as real files, what their rules find in them, and the record of their repairs.

``repairs.txt`` says of each example which repairs its findings offer: ``python -m tests.rules.sick`` writes it anew.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ckptdoctor.cli.fix import command, request_of
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.edits import Fix, Safety
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Finding
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.rules.examples import Example
from ckptdoctor.rules.framework import Rule
from ckptdoctor.rules.registry import all_rules
from tests.builders import build, build_like

RECORD = Path(__file__).with_name("repairs.txt")
NONE = "none"

Name = tuple[str, str]  # a rule's code and the title of one of its examples

SICK: dict[Name, tuple[Rule, Example]] = {
    (rule.code, example.title): (rule, example) for rule in all_rules() for example in rule.sick
}


@dataclass(frozen=True)
class Case:
    """One example in a folder of its own. What the laws ask for is made once, and only when one of them asks."""

    rule: Rule
    example: Example
    folder: Path

    @property
    def name(self) -> Name:
        """What it is called in the record."""
        return self.rule.code, self.example.title

    @cached_property
    def path(self) -> Path:
        """The sick file."""
        return build(self.example, self._new("sick"))

    @cached_property
    def found(self) -> list[Finding]:
        """What the rule finds in it."""
        return self.findings(self.path)

    @cached_property
    def fixes(self) -> list[Fix]:
        """The repairs that are offered for it."""
        return [finding.fix for finding in self.found if finding.fix is not None]

    @property
    def repairs(self) -> str:
        """Which kinds of repair those are, as it is recorded."""
        return "+".join(sorted({fix.safety.value for fix in self.fixes})) or NONE

    @cached_property
    def fixed(self) -> Path:
        """The file after the commands of the rule's findings, one after another until there is none."""
        path, fixes = self.path, self.fixes
        for number in range(8):
            if not fixes:
                break
            output = Path(repair(plan(request_for(path, self._new(f"fixed{number}"), fixes[0]))).plan.output)
            path = _with_index(path, output) if path.is_dir() and output.suffix == ".json" else output
            fixes = self.fixes_of(path)
        return path

    @cached_property
    def settings(self) -> Settings:
        """How to look for what the rule finds, and for nothing else."""
        like = None if self.example.like is None else str(build_like(self.example, self._new("reference")))
        return Settings(selection=Selection(select=(self.rule.code,)), deep=self.example.deep, like=like)

    def findings(self, path: Path) -> list[Finding]:
        """What the rule finds in another file that is held against the same reference."""
        return [finding for finding in check(str(path), self.settings).findings if finding.code == self.rule.code]

    def fixes_of(self, path: Path) -> list[Fix]:
        """The repairs that are offered for another file."""
        return [finding.fix for finding in self.findings(path) if finding.fix is not None]

    def _new(self, name: str) -> Path:
        (self.folder / name).mkdir()
        return self.folder / name


def request_for(path: Path, output: Path, fix: Fix) -> FixRequest:
    """The request that the command line makes of a fix's option."""
    words = [str(path), "-o", str(output), *shlex.split(fix.option)]
    if fix.safety is not Safety.SAFE:
        words.append("--unsafe-fixes")
    with command.make_context("fix", words) as context:
        apart = ("diff", "style", "color", "write_map")
        asked = {key: value for key, value in context.params.items() if key not in apart}
    return request_of(**asked)


def _with_index(folder: Path, index: Path) -> Path:
    """A copy of the folder, beside the new index, with that in it."""
    copy = index.parent / "folder"
    shutil.copytree(folder, copy)
    shutil.copy(index, copy)
    return copy


def recorded() -> dict[Name, str]:
    """Which repairs each example has: a line of the record is a code, the kinds of repair, and the example's title."""
    lines = [line.split(maxsplit=2) for line in RECORD.read_text(encoding="utf-8").splitlines()]
    return {(code, title): repairs for code, repairs, title in lines}


def write_record() -> None:
    """Look at every example, and write which repairs it has."""
    lines = []
    for (code, title), (rule, example) in SICK.items():
        with tempfile.TemporaryDirectory() as folder:
            lines.append(f"{code} {Case(rule, example, Path(folder)).repairs:<9} {title}\n")
    RECORD.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    write_record()
