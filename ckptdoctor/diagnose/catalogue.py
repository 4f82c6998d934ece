"""Lists the rules as a catalogue to look things up in."""

from __future__ import annotations

from ckptdoctor.errors import UsageError
from ckptdoctor.rules.framework import Rule
from ckptdoctor.rules.registry import all_rules, find_rule

__all__ = ["all_rules", "look_up"]


def look_up(code_or_name: str) -> Rule:
    """The rule with this code or name. Raises UsageError, with the nearest names, when there is none."""
    found = find_rule(code_or_name)
    if found is not None:
        return found
    from difflib import get_close_matches

    names = [text for rule in all_rules() for text in (rule.code.lower(), rule.name)]
    near = get_close_matches(code_or_name.lower(), names, n=3)
    if not near and ("." in code_or_name or "/" in code_or_name):
        raise UsageError(f"{code_or_name}: no such file, and no rule of that name.")
    offer = f"Did you mean {' or '.join(near)}?" if near else "List the rules: ckptdoctor rules"
    raise UsageError(f'No rule has the code or name "{code_or_name}". {offer}')
