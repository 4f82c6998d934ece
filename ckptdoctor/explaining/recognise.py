"""Finds every known message in a text, and which of them is the root of the others.

Each message is looked for by words that it always has, and only then by a bounded pattern: the time grows with the
length of the text, whatever is in it. An error of ``load_state_dict`` is judged by the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby

from ckptdoctor.explaining import other_messages
from ckptdoctor.explaining.load_error import line_of, load_errors, words_of
from ckptdoctor.explaining.text import PastedText, squeeze
from ckptdoctor.noun import noun, replace
from ckptdoctor.rules.framework import Rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Judge, LoadError, Repair
from ckptdoctor.rules.messages import SEE, Message, Way, Weight
from ckptdoctor.rules.registry import all_rules

_TRIES = 1000  # places of one message that are looked at: ranks and retries repeat it
_MOST = 8  # causes that are explained
_NEAR = 4000  # squeezed characters on either side that count as near
_RAISE = 60  # squeezed characters before a message in which a line of source says that it raises it
# a traceback shows source around the line that failed, and messages in it that were never said
_IN_SOURCE = re.compile(r"raise[\w.]{1,50}\(f?[\"']$")
# what only from_pretrained of transformers prints, and the files of the library in a traceback (blanks left out)
_OF_TRANSFORMERS = (
    *("from_pretrained(", "LOADREPORTfrom", "ignore_mismatched_sizes", "newlyinitializedbecausetheshapesdidnotmatch"),
    *("/transformers/modeling_utils.py", "\\transformers\\modeling_utils.py"),
)
_LONG_NUMBER = re.compile(r"[1-9][0-9]{4,30}")
_TRACEBACK = "Traceback(mostrecentcalllast)"


@noun
class Hit:
    """A message that was met: its own words, what it means here, and where (offset in the squeezed text).

    ``file`` is the checkpoint that the text names for this message, if it does.
    """

    code: str
    words: str
    meaning: str
    ways: tuple[Way, ...]
    offset: int
    also: tuple[str, ...] = ()
    weight: Weight = Weight.CAUSE
    file: str | None = None


@cache
def messages() -> tuple[Message, ...]:
    """Return those that rules name, and those that no rule is about: of several that may be meant the first is."""
    own = [replace(message, code=rule.code) for rule in all_rules() for message in rule.messages]
    return tuple(sorted([*own, *other_messages.MESSAGES], key=lambda message: message.general))


@noun
class _Place:
    """Where a message is, before anything is made of it: a text may have very many."""

    message: Message
    says: str
    start: int
    end: int
    groups: dict[str, str]
    weight: Weight


def recognised(text: PastedText) -> list[Hit]:
    """Return every cause that the text names (at most eight), the root first, or [] when no message is recognised.

    Python prints chained exceptions in the order in which they arose, so among messages that name a cause the first is
    the root, whether it is the second's "direct cause" or the second arose "during handling" of it. Messages that only
    warn, or report an outcome, come after those that name a cause.
    """
    found: list[_Place | Hit] = [*_places(text)]
    errors = load_errors(text)
    transformers = any(each in text.squeezed for each in _OF_TRANSFORMERS)
    for error in errors:
        found += _hits(replace(error, transformers=transformers), text, alone=len(errors) == 1)
    return [_hit(text, each) if isinstance(each, _Place) else each for each in _ordered(found)]


def _ordered(found: list[_Place | Hit]) -> list[_Place | Hit]:
    """Return one for each rule, or for each error of load_state_dict that it explains, by weight and then by place."""
    found.sort(key=lambda each: (_weight(each), each.start if isinstance(each, _Place) else each.offset))
    if found and _weight(found[0]) is not Weight.ECHO:
        found = [each for each in found if _weight(each) is not Weight.ECHO]
    chosen: list[_Place | Hit] = []
    seen: dict[str, set[int | None]] = {}
    for each in found:
        noun, error = (each.message, None) if isinstance(each, _Place) else (each, each.offset)
        before = seen.setdefault(noun.code or noun.meaning, set())
        if not before or not (error is None or {error, None} & before):
            chosen.append(each)
        before.add(error)
    return chosen[:_MOST]


def _weight(each: _Place | Hit) -> Weight:
    return each.weight


def _places(text: PastedText) -> Iterator[_Place]:
    """Yield the first place of every wording; of several messages at one place the least general is meant."""
    taken: set[int] = set()
    for message in messages():
        for says in message.says:
            place = _first(message, (each for each in _wherever(text, message, says) if each.start not in taken))
            if place is not None:
                taken.add(place.start)
                yield place


def _first(message: Message, places: Iterator[_Place]) -> _Place | None:
    """Return the first place where it was said; where none is, the first in a line of source."""
    first = next(places, None)
    if first is None or first.weight is message.weight:
        return first
    return next((each for each in places if each.weight is message.weight), first)


def _wherever(text: PastedText, message: Message, says: str) -> Iterator[_Place]:
    pattern, wanted = _compiled(message.then), squeeze(says)
    start = -1
    for _ in range(_TRIES):
        start = text.squeezed.find(wanted, start + 1)
        if start < 0:
            return
        found = pattern.match(text.squeezed, start + len(wanted))
        if found is not None and message.holds is not None and not message.holds(found.groupdict()):
            continue
        if found is not None and _belongs(text, message, start):
            source = _IN_SOURCE.search(text.squeezed, max(start - _RAISE, 0), start) is not None
            weight = Weight.ECHO if source else message.weight
            yield _Place(message, says, start, found.end(), found.groupdict(), weight)


def _hit(text: PastedText, place: _Place) -> Hit:
    message, groups = place.message, place.groups
    ways = tuple([Way(way.label, _filled(way.command, groups)) for way in message.ways])
    meaning = _filled(message.meaning, {name: _separated(word) for name, word in groups.items()})
    return Hit(message.code, _words(text, place), meaning, ways, place.start, message.also, message.weight)


def _filled(template: str, groups: dict[str, str]) -> str:
    return template.format_map(groups) if groups else template


def _separated(word: str) -> str:
    """Return a long number as people read it: ``185,936``; any other word as it is."""
    return f"{int(word):,}" if word is not None and _LONG_NUMBER.fullmatch(word) else word


def _words(text: PastedText, place: _Place) -> str:
    """Return the message as the text has it, or its known wording where a line was broken inside a word."""
    words = text.original(place.start, place.end)
    rest = place.start + len(squeeze(place.says))
    return words if place.says in words else f"{place.says} {text.original(rest, place.end)}".strip()


def _belongs(text: PastedText, message: Message, start: int) -> bool:
    """Return whether the words that must be near it are."""
    wanted = message.near or (message.among if _TRACEBACK in text.squeezed else ())
    if not wanted:
        return True
    around = text.squeezed[max(start - _NEAR, 0) : start + _NEAR]
    return any(squeeze(word) in around for word in wanted)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


# ---- errors of ``load_state_dict``: every rule that can judge one is asked, and takes what it explains


def _hits(error: LoadError, text: PastedText, alone: bool) -> Iterator[Hit]:
    """Yield one hit for each cause, the one that says most of the file first.

    ``alone`` says that the text has no other error, so that it can be a target.
    """
    weight = Weight.OUTCOME if error.warning else Weight.CAUSE
    words = line_of(error, text) if error.warning else words_of(error)
    found = list(_causes(error))
    for rule, cause in found:
        ways = _ways(cause, [each for _, each in found], error, alone)
        code, also = (rule.code, rule.also) if cause.code is None else (cause.code, ())
        yield Hit(code, words, cause.meaning, ways, error.offset, also, weight)


def _causes(error: LoadError) -> Iterator[tuple[Rule, Cause]]:
    """Yield what the rules make of an error, one after another: what one explains the next does not see any more."""
    rest = IncompatibleKeys(error, error.missing, error.unexpected, error.mismatched)
    for _, judges in groupby(_judges(), key=_turn):
        found = [(rule, cause) for rule, judge in judges for cause in judge.ask(rest)]
        found.sort(key=lambda each: -each[1].size)
        yield from found
        if found:
            rest = rest.without([cause for _, cause in found])


@cache
def _judges() -> tuple[tuple[Rule, Judge], ...]:
    """Return every way to ask a rule, in the order in which they are asked."""
    return tuple(sorted([(rule, judge) for rule in all_rules() for judge in rule.judges], key=_turn))


def _turn(asked: tuple[Rule, Judge]) -> tuple[int, int]:
    return asked[1].turn, asked[1].general


def _ways(cause: Cause, all_causes: list[Cause], error: LoadError, alone: bool) -> tuple[Way, ...]:
    """Return what to do.

    It is the cause's own way where it is the only one, else one command for all of them, where there is one.

    The error is the target where it is a whole one and the only one of its text; a warning, or a list that is cut
    short, tells too little of it.
    """
    repairs = {each.repair for each in all_causes}
    if cause.ways and (len(all_causes) == 1 or Repair.NONE in repairs or Repair.BY_HAND in repairs):
        ways = cause.ways
    elif Repair.BY_HAND in repairs or Repair.NONE in repairs:
        ways = (SEE,)
    else:
        unsafe = " --unsafe-fixes" * (Repair.LOSS in repairs)
        ways = (Way("repair it", f"ckptdoctor fix FILE --auto TARGET{unsafe}"),)
    target = "--error TEXT" if alone and error.complete and not error.warning else "--model MODULE:CLASS"
    return tuple([replace(way, command=way.command.replace("TARGET", target)) for way in ways])
