"""Lists the repairs that findings offer, to choose from, and makes the request that a choice stands for.

A choice is always one that the command line can make as well: rules by their codes (``--select``), patterns to drop,
and the chain of repairs that makes the file fit a target (``--auto``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, get_args

from ckptdoctor.checkpoint import Checkpoint, Container
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.edits import Safety
from ckptdoctor.examine.targets import read_reference
from ckptdoctor.findings import Coverage, Finding, Severity
from ckptdoctor.noun import noun, replace
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.shell import split
from ckptdoctor.wording import beyond, plural

if TYPE_CHECKING:
    from ckptdoctor.repair.plan import Plan

AUTO = "--auto"
_DROP = "--drop"
_ORDER = (Safety.SAFE, Safety.CONFIRMED, Safety.UNSAFE, None)


@noun
class Offer:
    """One line to choose: the fixes of one rule that are equally safe, the way to a target, or a refusal.

    ``safety`` None: there is no repair, and ``why`` says so. ``patterns`` are what is dropped, where the rule cannot be
    asked for by its code. ``usual``: it is what a repair does where nothing is named.
    """

    code: str
    name: str
    severity: Severity
    safety: Safety | None
    message: str
    title: str = ""
    why: str = ""
    patterns: tuple[str, ...] = ()
    usual: bool = False


def offers(findings: Iterable[Finding], coverage: Coverage | None = None) -> list[Offer]:
    """Return what can be chosen, what makes the file fit its target first, what cannot be repaired last."""
    selectable, in_steps = _selectable(), {step.code for step in coverage.steps} if coverage is not None else set()
    groups: dict[tuple[str, Safety | None], list[Finding]] = {}
    towards: list[Finding] = []
    for finding in findings:
        safety = finding.fix.safety if finding.fix is not None and finding.fix.edits else None
        if coverage is not None and safety is not None and _is_towards(finding, selectable, in_steps):
            towards.append(finding)
        elif safety is not None or finding.severity is not Severity.INFO:
            groups.setdefault((finding.code, safety), []).append(finding)
    found = [_offer(group, selectable) for group in groups.values()]
    found.sort(key=lambda offer: _ORDER.index(offer.safety))
    fit = None if coverage is None else _way_to_the_target(coverage, towards)
    return found if fit is None else [fit, *found]


def usual(offered: Sequence[Offer]) -> frozenset[int]:
    """Return the places of the offers that are chosen to begin with."""
    return frozenset([at for at, offer in enumerate(offered) if offer.usual])


def toggled(offered: Sequence[Offer], chosen: Collection[int], at: int) -> frozenset[int]:
    """Return the choice with one offer more or less.

    Offers of one rule that differ in safety go together as soon as unsafe repairs are admitted at all: they cannot be
    told apart by the rule's code.
    """
    if offered[at].safety is None:
        return frozenset(chosen)
    if at not in chosen:
        return _together(offered, {*chosen, at})
    left = _together(offered, {each for each in chosen if each != at})
    return left if at not in left else frozenset(each for each in left if offered[each].code != offered[at].code)


def _together(offered: Sequence[Offer], chosen: Collection[int]) -> frozenset[int]:
    """Return the choice as the command line can make it: a rule once for all its offers, if any of them is unsafe."""
    if not any(offered[each].safety is not Safety.SAFE and offered[each].code != AUTO for each in chosen):
        return frozenset(chosen)
    codes = {offered[each].code for each in chosen if not offered[each].patterns}
    more = [at for at, offer in enumerate(offered) if offer.code in codes and offer.safety is not None]
    return frozenset([*chosen, *more])


def request_of(
    path: str,
    offered: Sequence[Offer],
    chosen: Collection[int],
    settings: Settings | None = None,
    output: str | None = None,
) -> FixRequest:
    """Return the repair that was chosen.

    What is usual is asked for as a whole, so that more may come to light on the way.
    """
    settings = settings or Settings()
    picked = [offered[at] for at in sorted(chosen)]
    codes = tuple(dict.fromkeys([each.code for each in picked if each.code != AUTO and not each.patterns]))
    auto = any(each.code == AUTO for each in picked)
    drop = tuple([pattern for each in picked for pattern in each.patterns])
    whole = not auto and not drop and frozenset(chosen) == usual(offered)
    return FixRequest(
        path,
        output,
        drop=drop,
        auto=auto,
        error=settings.error if auto else None,
        selection=settings.selection if whole else Selection(codes or None),
        unsafe=any(each.safety is not Safety.SAFE and not each.patterns for each in picked if each.code != AUTO)
        or any(each.safety is Safety.UNSAFE for each in picked if each.code == AUTO),
    )


def planned(request: FixRequest, settings: Settings | None = None) -> Plan:
    """Return the plan of a request; where it is for a target, that of ``settings``. Raises what ``plan`` does."""
    from ckptdoctor.repair.plan import plan

    if request.auto and request.error is None and request.reference is None:
        request = replace(request, reference=read_reference(settings or Settings(), request.path))
    return plan(request)


def _selectable() -> frozenset[str]:
    """Return the rules whose fixes can be asked for by code: those that judge a file by itself."""
    from ckptdoctor.repair.casts import BY_VALUES

    own = {Container, Checkpoint}
    codes = [rule.code for rule in all_rules() if own.intersection((rule.subject, *get_args(rule.subject)))]
    return frozenset([*codes, *BY_VALUES])


def _is_towards(finding: Finding, selectable: Collection[str], in_steps: Collection[str]) -> bool:
    """Return whether the fix is one of those that bring the file towards its target."""
    assert finding.fix is not None
    if finding.code in in_steps or finding.fix.option.startswith(AUTO):
        return True
    return finding.code not in selectable and not _patterns(finding.fix.option)


def _offer(group: Sequence[Finding], selectable: Collection[str]) -> Offer:
    first = group[0]
    more = beyond(len(group) - 1, before=" (and ", after=")")
    severity = max([each.severity for each in group], key=lambda each: each.rank)
    offer = Offer(first.code, first.name, severity, None, first.message + more)
    if first.fix is None or not first.fix.edits:
        return replace(offer, why=first.advice)
    titles = list(dict.fromkeys([each.fix.title for each in group if each.fix is not None]))
    offer = replace(offer, safety=first.fix.safety, title="; ".join(titles))
    if first.code in selectable:
        from ckptdoctor.repair.casts import BY_VALUES

        own = first.code not in BY_VALUES  # what only the values tell is never looked for where nothing is named
        return replace(offer, usual=own and first.fix.safety is Safety.SAFE)
    options = [each.fix.option for each in group if each.fix is not None]
    patterns = tuple(dict.fromkeys([pattern for option in options for pattern in _patterns(option)]))
    if not patterns:
        return replace(offer, safety=None, why=f"It was requested on the command line: {' '.join(first.fix.options)}")
    return replace(offer, patterns=patterns)


def _patterns(option: str) -> tuple[str, ...]:
    """Return the patterns of an option such as ``--drop a --drop 'b.*'``; () for any other."""
    words = split(option)
    if not words or words[::2] != [_DROP] * len(words[::2]) or len(words) % 2:
        return ()
    return tuple(words[1::2])


def _way_to_the_target(coverage: Coverage, towards: Sequence[Finding]) -> Offer | None:
    """Return the offer of all repairs that make the file fit; None where it fits, or no repair comes nearer."""
    after = coverage.steps[-1].keys if coverage.steps else coverage.keys
    if coverage.keys + coverage.retied >= coverage.total_keys and not towards:
        return None
    in_steps = {step.code for step in coverage.steps}
    besides = [each for each in towards if each.code not in in_steps]
    guessed = besides if coverage.option else towards  # named: the target decides every step, and nothing is left over
    unsafe = any(each.fix is not None and each.fix.safety is Safety.UNSAFE for each in guessed)
    whole = after + coverage.retied >= coverage.total_keys
    titles = [*[step.title for step in coverage.steps], *[each.fix.title for each in besides if each.fix is not None]]
    fits = f"{coverage.keys:,} of {plural(coverage.total_keys, 'key fits', 'keys fit')}"
    return Offer(
        AUTO,
        f"fit {coverage.reference}",
        Severity.INFO if whole else Severity.WARNING,
        Safety.UNSAFE if unsafe else Safety.CONFIRMED,
        fits if not coverage.steps else f"{fits}, {after:,} after {plural(len(coverage.steps), 'step')}",
        title="; ".join(dict.fromkeys(titles)),
        usual=whole and not unsafe,
    )
