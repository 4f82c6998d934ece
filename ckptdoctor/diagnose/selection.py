"""Chooses which rules run, by codes, names and code prefixes. The more specific choice wins."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.errors import UsageError
from ckptdoctor.noun import noun
from ckptdoctor.rules.framework import Rule

EVERYTHING = "all"  # selects every rule; the least specific choice there is
_EXACT = 1_000  # a full code or name is more specific than any prefix


@noun
class Selection:
    """Rules by code (``N401``), name (``module-prefix``), prefix (``N``, ``N4``) or ``ALL``, whatever the case.

    ``select`` None means every rule. ``extend_select`` adds to ``select``; ``ignore`` takes away. Where both speak
    of a rule the more specific one wins, and ``ignore`` at equal length.
    """

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()

    def chosen(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        """Those of ``rules`` that run, in their order. Raises UsageError for a choice that fits none of them."""
        rules = tuple(rules)
        if self == _USUAL:
            return rules
        wanted = [*((EVERYTHING,) if self.select is None else self.select), *self.extend_select]
        for choice in (*wanted, *self.ignore):
            if not any(_fit(choice, rule) for rule in rules):
                raise UsageError(f'No rule has the code or name "{choice}". List them: ckptdoctor rules')
        return tuple([rule for rule in rules if _best(wanted, rule) > _best(self.ignore, rule)])


_USUAL = Selection()


def _best(choices: Iterable[str], rule: Rule) -> int:
    return max((_fit(choice, rule) for choice in choices), default=0)


def _fit(choice: str, rule: Rule) -> int:
    """How specifically a choice speaks of a rule; 0 when it does not."""
    choice = choice.strip().lower()
    if choice in (rule.code.lower(), rule.name):
        return _EXACT
    if choice == EVERYTHING:
        return 1
    return 1 + len(choice) if choice and rule.code.lower().startswith(choice) else 0
