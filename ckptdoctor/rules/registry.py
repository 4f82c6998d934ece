"""Finds every rule: one per file in the family folders, and those of other packages through entry points."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from functools import cache

from ckptdoctor import rules
from ckptdoctor.rules.framework import Rule

ENTRY_POINT_GROUP = "ckptdoctor.rules"


@cache
def all_rules(more: bool = True) -> tuple[Rule, ...]:
    """Every rule, ordered by code; without ``more`` only those that judge a file by its headers alone.

    The others want a reference, or values. They are half of the rules, and importing them is half of the start of a
    check.
    """
    return tuple(sorted([*_own_rules(more), *_plugged_in()], key=lambda each: each.code))


def find_rule(code_or_name: str) -> Rule | None:
    """The rule with this code or name, whatever the case."""
    wanted = code_or_name.lower()
    return next((each for each in all_rules() if wanted in (each.code.lower(), each.name)), None)


def _plugged_in() -> list[Rule]:
    """Rules that installed distributions offer. ``importlib.metadata`` takes longer to import than most checks run."""
    if not any(map(_offers_rules, sys.path)):
        return []
    from importlib.metadata import entry_points

    return [entry.load() for entry in entry_points(group=ENTRY_POINT_GROUP)]


def _offers_rules(folder: str) -> bool:
    """Whether some distribution installed in this folder names the entry point group in its metadata."""
    try:
        names = os.listdir(folder or os.curdir)
    except OSError:  # not every entry of sys.path is a folder, or exists
        return False
    listings = [os.path.join(folder, name, "entry_points.txt") for name in names if name.endswith("-info")]
    return any(ENTRY_POINT_GROUP.encode() in _content(path) for path in listings)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # most distributions have no entry points
        return b""


def _own_rules(more: bool) -> list[Rule]:
    found = []
    for family in pkgutil.iter_modules(rules.__path__):
        if not family.ispkg:
            continue
        package = importlib.import_module(f"{rules.__name__}.{family.name}")
        alone = None if more else getattr(package, "ALONE", None)
        for entry in pkgutil.iter_modules(package.__path__):
            if alone is not None and entry.name not in alone:
                continue
            module = importlib.import_module(f"{package.__name__}.{entry.name}")
            found += [value for value in vars(module).values() if isinstance(value, Rule)]
    return found
