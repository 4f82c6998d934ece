"""Finds every rule: one per file in the family folders, and those of other packages through entry points."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from functools import cache, lru_cache

from ckptdoctor import rules
from ckptdoctor.checkpoint import Checkpoint, Container
from ckptdoctor.formats.registry import FOREIGN
from ckptdoctor.rules.framework import Rule
from ckptdoctor.rules.index import DEEP, INSIDE, OUTSIDE
from ckptdoctor.rules.when import AnyOf, Condition, KeysMention, mention

ENTRY_POINT_GROUP = "ckptdoctor.rules"
_COMBINATIONS = 64  # of rules that are kept: files of one kind concern the same


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return every rule, ordered by code."""
    return tuple(sorted([*_own_rules(), *_plugged_in()], key=_code))


def concerned(subject: Container | Checkpoint) -> tuple[Rule, ...]:
    """Return the rules that may have something to say about a file by its headers alone, ordered by code.

    No other is imported: that would take as long as the rest of most checks.
    """
    if isinstance(subject, Checkpoint) and subject.format in FOREIGN:
        return ()
    if isinstance(subject, Container):
        return _rules_of(tuple([names for when, names in _outside() if when(subject)]))
    inside, mentioning, words = _inside()
    found = [names for when, names in inside if when(subject)]
    if mention(subject, words):
        found += [names for when, names in mentioning if when(subject)]
    return _rules_of(tuple(found))


# conditions with the rules that have them: many have the same, which is asked once
_Asked = tuple[tuple[Condition, tuple[str, ...]], ...]


@cache
def _outside() -> _Asked:
    return tuple(_by_condition(OUTSIDE).items())


@cache
def _inside() -> tuple[_Asked, _Asked, tuple[str, ...]]:
    """Return the conditions apart that look for words in the keys, and all their words."""
    asked = _by_condition(INSIDE)
    found = {when: names for when, names in asked.items() if isinstance(when, KeysMention)}
    words = tuple(dict.fromkeys([word for when in found for word in when.words]))
    return tuple([each for each in asked.items() if each[0] not in found]), tuple(found.items()), words


def _by_condition(index: dict[str, Condition]) -> dict[Condition, tuple[str, ...]]:
    found: dict[Condition, tuple[str, ...]] = {}
    for name, when in index.items():
        for each in when.conditions if isinstance(when, AnyOf) else (when,):
            found[each] = (*found.get(each, ()), name)
    return found


@cache
def deep() -> tuple[Rule, ...]:
    """Return the rules that may read what is found in every byte of a file, ordered by code; no other is imported."""
    return _rules_of((DEEP,))


def _rules_of(modules: tuple[tuple[str, ...], ...]) -> tuple[Rule, ...]:
    found, plugged = _own_of(modules), _plugged_in()
    return tuple(sorted([*found, *plugged], key=_code)) if plugged else found


@lru_cache(_COMBINATIONS)
def _own_of(modules: tuple[tuple[str, ...], ...]) -> tuple[Rule, ...]:
    different = dict.fromkeys([name for names in modules for name in names])
    found = [each for name in different for each in _rules_in(f"{rules.__name__}.{name}")]
    return tuple(sorted(found, key=_code))


def _code(each: Rule) -> str:
    return each.code


def find_rule(code_or_name: str) -> Rule | None:
    """Return the rule with this code or name, whatever the case."""
    wanted = code_or_name.lower()
    return next((each for each in all_rules() if wanted in (each.code.lower(), each.name)), None)


@cache
def _plugged_in() -> list[Rule]:
    """Return rules that installed distributions offer.

    ``importlib.metadata`` takes longer to import than most checks run.
    """
    if not any(map(_offers_rules, sys.path)):
        return []
    from importlib.metadata import entry_points

    return [entry.load() for entry in entry_points(group=ENTRY_POINT_GROUP)]


def _offers_rules(folder: str) -> bool:
    """Return whether some distribution installed in this folder names the entry point group in its metadata."""
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


def _own_rules() -> Iterator[Rule]:
    import pkgutil  # only where all rules are wanted

    for family in pkgutil.iter_modules(rules.__path__):
        if family.ispkg and family.name != "kit":
            package = importlib.import_module(f"{rules.__name__}.{family.name}")
            for entry in pkgutil.iter_modules(package.__path__):
                yield from _rules_in(f"{package.__name__}.{entry.name}")


@cache
def _rules_in(module: str) -> list[Rule]:
    return [value for value in vars(importlib.import_module(module)).values() if isinstance(value, Rule)]
