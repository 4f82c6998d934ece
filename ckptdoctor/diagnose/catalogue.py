"""Lists the rules as a catalogue to look things up in."""

from __future__ import annotations

from ckptdoctor.checkpoint.missing import offer
from ckptdoctor.diagnose.selection import no_rule
from ckptdoctor.errors import UsageError
from ckptdoctor.rules.framework import Rule
from ckptdoctor.rules.registry import all_rules, find_rule

__all__ = ["all_rules", "find_rule", "look_up"]


def look_up(code_or_name: str) -> Rule:
    """Return the rule with this code or name. Raises UsageError, with the nearest one, when there is none."""
    found = find_rule(code_or_name)
    if found is not None:
        return found
    if any(sign in code_or_name for sign in "./\\"):
        raise UsageError(f"{code_or_name}: no such file, and no rule of that name.{offer(code_or_name)}")
    raise UsageError(no_rule(code_or_name, all_rules()))
