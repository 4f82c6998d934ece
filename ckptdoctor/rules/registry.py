"""Finds every rule: one per file in the family folders, and those of other packages through entry points."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points

from ckptdoctor import rules
from ckptdoctor.rules.framework import Rule

ENTRY_POINT_GROUP = "ckptdoctor.rules"


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, ordered by code."""
    found = [*_own_rules(), *(entry.load() for entry in entry_points(group=ENTRY_POINT_GROUP))]
    return tuple(sorted(found, key=lambda each: each.code))


def find_rule(code_or_name: str) -> Rule | None:
    """The rule with this code or name, whatever the case."""
    wanted = code_or_name.lower()
    return next((each for each in all_rules() if wanted in (each.code.lower(), each.name)), None)


def _own_rules() -> list[Rule]:
    found = []
    for family in pkgutil.iter_modules(rules.__path__):
        if not family.ispkg:
            continue
        package = importlib.import_module(f"{rules.__name__}.{family.name}")
        for entry in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{entry.name}")
            found += [value for value in vars(module).values() if isinstance(value, Rule)]
    return found
