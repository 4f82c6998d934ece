"""What a rule finds in a real file, and what torch and safetensors say when they load it."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Finding
from ckptdoctor.rules.examples import Example
from ckptdoctor.rules.framework import Rule
from ckptdoctor.rules.registry import find_rule
from tests.builders import build


def sick(code: str) -> tuple[Example, ...]:
    """The examples in which a rule finds something."""
    return rule_of(code).sick


def healthy(code: str) -> tuple[Example, ...]:
    """The examples in which a rule finds nothing."""
    return rule_of(code).healthy


def rule_of(code: str) -> Rule:
    """The rule with this code."""
    rule = find_rule(code)
    assert rule is not None, f"there is no rule {code}"
    return rule


def found(path: Path, code: str, *, deep: bool = False) -> list[Finding]:
    """The findings of one rule in a file."""
    report = check(str(path), Settings(selection=Selection(select=(code,)), deep=deep))
    return [finding for finding in report.findings if finding.code == code]


def find_one(example: Example, folder: Path, code: str) -> Finding:
    """The only finding of a rule in an example."""
    (finding,) = found(build(example, folder), code, deep=example.deep)
    return finding


def torch_error(path: Path, **options: object) -> str:
    """The text of torch.load's error, with the name of its type."""
    try:
        torch.load(path, **options)
    except Exception as error:  # whatever torch raises is what the user sees
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"torch loads {path}")


def safetensors_error(path: Path) -> str:
    """The text of the error that safetensors gives."""
    try:
        load_file(path)
    except SafetensorError as error:
        return str(error)
    raise AssertionError(f"safetensors loads {path}")


def loads(path: Path) -> object:
    """What torch.load gives on a machine without accelerators."""
    return torch.load(path, map_location="cpu")
