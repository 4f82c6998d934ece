"""Chooses which rules run, by codes, names and code prefixes. The more specific choice wins."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.config import Config
from ckptdoctor.errors import UsageError
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex
from ckptdoctor.rules.framework import Rule
from ckptdoctor.wording import did_you_mean

EVERYTHING = "all"  # selects every rule; the least specific choice there is
_EXACT = 1_000  # a full code or name is more specific than any prefix


@noun
class Selection:
    """Rules by code (``N401``), name (``module-prefix``), prefix (``N``, ``N4``) or ``ALL``, whatever the case.

    ``select`` None means every rule. ``extend_select`` adds to ``select``; ``ignore`` takes away. Where both speak
    of a rule the more specific one wins, and ``ignore`` at equal length. ``settings`` are the places of those choices
    that a file of settings has made: ``pyproject.toml: ignore``.
    """

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()

    def chosen(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        """Return those of ``rules`` that run, in their order. Raises UsageError for a choice that fits none of them."""
        rules = tuple(rules)
        if self == _USUAL:
            return rules
        wanted = [*((EVERYTHING,) if self.select is None else self.select), *self.extend_select]
        for choice in (*wanted, *self.ignore):
            if not any(_fit(choice, rule) for rule in rules):
                place = dict(self.settings).get(choice)
                raise UsageError(f"{f'{place}: ' if place else ''}{no_rule(choice, rules)}")
        return tuple([rule for rule in rules if _best(wanted, rule) > _best(self.ignore, rule)])


_USUAL = Selection()


def of_project(
    project: Config,
    select: tuple[str, ...] | None = None,
    ignore: tuple[str, ...] | None = None,
    extend_select: tuple[str, ...] | None = None,
) -> Selection:
    """Return what was asked for; of what is None, what the project has set."""
    set_here = [
        (code, f"{project.path}: {key}")
        for key, asked, codes in (
            ("select", select, project.select),
            ("ignore", ignore, project.ignore),
            ("extend-select", extend_select, project.extend_select),
        )
        if asked is None
        for code in codes or ()
    ]
    return Selection(
        project.select if select is None else select,
        (project.ignore if ignore is None else ignore) or (),
        (project.extend_select if extend_select is None else extend_select) or (),
        tuple(set_here),
    )


def no_rule(choice: str, rules: Iterable[Rule]) -> str:
    """Return the sentence for a code or name that no rule has, with the one that is most like it."""
    offer = ""
    if not _CODE.fullmatch(choice):  # a code is like many others
        known = [text for rule in rules for text in (rule.code, rule.name)]
        code = (choice[:1] + choice[1:].upper().translate(_DIGITS)).upper()
        offer = did_you_mean(code if code in known else choice, known)
    return f'There is no rule "{choice}".{offer or " List them: ckptdoctor rules"}'


_CODE = regex(r"[A-Za-z]\d{3}")
_DIGITS = str.maketrans("OIL", "011")  # letters that are typed for them


def _best(choices: Iterable[str], rule: Rule) -> int:
    return max((_fit(choice, rule) for choice in choices), default=0)


def _fit(choice: str, rule: Rule) -> int:
    """Return how specifically a choice speaks of a rule, or 0 when it does not."""
    choice = choice.strip().lower()
    if choice in (rule.code.lower(), rule.name):
        return _EXACT
    if choice == EVERYTHING:
        return 1
    return 1 + len(choice) if choice and rule.code.lower().startswith(choice) else 0
