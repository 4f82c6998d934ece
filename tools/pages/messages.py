"""One page for each message that ``explain`` knows: who prints it, what it means, and what to type."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ckptdoctor.explaining import other_messages, recognise
from ckptdoctor.explaining.text import PastedText, cleaned, squeeze
from ckptdoctor.rules.messages import Message
from ckptdoctor.rules.registry import all_rules
from tests.explaining import corpus
from tools.pages import rules
from tools.pages.marking import fenced, prose, slug, span

_LISTED = {  # errors that name keys: which rule is meant depends on the keys, so each has a page that lists them
    "Missing key(s) in state_dict": "The model has parameters or buffers that the file has not under these names.",
    "Unexpected key(s) in state_dict": "The file has keys that the model does not know.",
    "size mismatch for": "A key is in both, with another shape.",
}
# what is looked for is less than what people see
_SHOWN = {"GLOBAL": "Unsupported global: GLOBAL … was not an allowed global by default"}
_ELSEWHERE = "Causes that are not in the file"
_STAND = {"FILE": "`FILE` stands for your checkpoint", "TEXT": "`TEXT` for the error, saved as a file"}
_LAST = "`ckptdoctor explain` finds such messages in a traceback or a whole log. [All messages](index.md)"
_LONGEST = 1500  # characters of an example that are shown
_CORPUS = [(entry, cleaned(entry.text)) for entry in corpus.MESSAGES]


@dataclass(frozen=True)
class _Example:
    """A text that people met: who printed it, the words of the message in it, and what its pattern found there."""

    source: str
    text: str
    words: str
    groups: Mapping[str, str]


def pages() -> Iterator[tuple[str, str]]:
    """Names and texts of the pages."""
    titles = _titles()
    yield "index", _index()
    for title, together in titles.items():
        yield name_of(title), _page(title, together)
    for words, meaning in _LISTED.items():
        if words not in titles:
            yield name_of(words), f"# {span(words)}\n\n{_listing(words, meaning)}\n\n{_LAST}\n"


def leading() -> dict[str, list[str]]:
    """By the code of a rule: links to the pages of the messages that are about it."""
    links: dict[str, list[str]] = defaultdict(list)
    for message in recognise.messages():
        for code in (message.code, *message.also):
            link = f"[{span(shown(message.says[0]))}](../messages/{name_of(message.says[0])}.md)"
            if link not in links[code]:
                links[code].append(link)
    return links


def shown(words: str) -> str:
    """The words of a message as its page is titled: without a quote that is open at their end."""
    return _SHOWN.get(words) or re.sub(r"[,: ]+'$", "", words)


def name_of(title: str) -> str:
    """What the page of these words is called: a byte that is no letter or digit is named by its number."""
    return slug(re.sub(r"'(\W)'", lambda found: f"-{ord(found[1]):02x}", shown(title)))


def _titles() -> dict[str, list[Message]]:
    """The messages by their first words, which some have in common: what follows tells them apart."""
    titles: dict[str, list[Message]] = {}
    for message in recognise.messages():
        titles.setdefault(message.says[0], []).append(message)
    return titles


def _page(title: str, together: list[Message]) -> str:
    parts = [f"# {span(shown(title))}"]
    if len(together) > 1:
        parts.append("The words that follow decide what it means.")
    if title in _LISTED:
        parts.append(_listing(title, _LISTED[title]))
    for message in together:
        parts += _told(message, alone=len(together) == 1)
    typed = " ".join([way.command for message in together for way in message.ways])
    stand = [words for name, words in _STAND.items() if name in typed]
    if stand:
        parts.append(f"{' and '.join(stand)}.")
    return "\n\n".join([*parts, _LAST]) + "\n"


def _told(message: Message, alone: bool) -> Iterator[str]:
    codes = {rule.code: rule for rule in all_rules()}
    about = [codes[code] for code in (message.code, *message.also) if code in codes]
    example = next(_examples(message), None)
    groups = defaultdict(lambda: "…", example.groups if example else {})
    if alone:
        yield "## Meaning"
    else:
        yield f"## {span(example.words)}" if example else f"## {about[0].name if about else 'Another cause'}"
    yield prose(_sentence(message.meaning.format_map(groups)), codes, "../rules/")
    if alone and message.ways:
        yield "## Solution"
    typed = [(way.label, way.command.format_map(groups)) for way in message.ways]
    yield from (f"{_sentence(label, ':')}\n\n{fenced(command)}" for label, command in typed)
    if alone and about:
        yield "## The rule"
    for each in about:
        yield f"[{each.code} {each.name}](../rules/{each.code}.md): {prose(each.summary, codes, '../rules/')}"
    if example:
        if alone:
            yield "## Seen"
        yield f"{'From' if alone else 'Seen, from'} {prose(example.source, (), '')}:"
        yield fenced(_shortened(example.text))
    if len(message.says) > 1:
        yield "## Other wordings" if alone else "Other wordings:"
        yield "\n".join(f"- {span(words)}" for words in message.says[1:])


def _examples(message: Message) -> Iterator[_Example]:
    """The texts of the corpus in which this message is."""
    for entry, text in _CORPUS:
        found = _found(message, text) if message.code in entry.codes else None
        if found is not None:
            yield _Example(entry.source, entry.text.rstrip(), *found)


def _found(message: Message, text: PastedText) -> tuple[str, dict[str, str]] | None:
    """The words of the message as they are in a text, and the groups of its pattern."""
    for words in map(squeeze, message.says):
        start = text.squeezed.find(words)
        while start >= 0:
            found = re.compile(message.then).match(text.squeezed, start + len(words))
            if found and (message.holds is None or message.holds(found.groupdict())):
                groups = {name: value or "…" for name, value in found.groupdict().items()}
                return text.original(start, found.end()), groups
            start = text.squeezed.find(words, start + 1)
    return None


def _sentence(text: str, end: str = ".") -> str:
    return text[:1].upper() + text[1:].rstrip(".:") + end


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "\n…"


def _listing(words: str, meaning: str) -> str:
    """The rules that a list of keys or shapes may be about, by the keys that give each away."""
    codes = {rule.code for rule in all_rules()}
    listed = [
        f"- [{rule.code} {rule.name}](../rules/{rule.code}.md): {prose(rule.summary, codes, '../rules/')}\n\n"
        f"  {span(line)}"
        for rule in all_rules()
        for line in [each for each in rules.seen(rule)[0] if words in each][:1]
    ]
    parts = [
        f"{meaning} The names tell why: paste the whole error into `ckptdoctor explain`, or compare the file with the "
        "model:",
        fenced("ckptdoctor check FILE --model MODULE:CLASS"),
        "## Example and cause",
        "\n\n".join(listed),
    ]
    return "\n\n".join(parts)


def _index() -> str:
    parts = [
        "# Messages",
        "What torch, safetensors, transformers and others print when a checkpoint does not load. "
        "`ckptdoctor explain` finds these messages in a traceback or a log, and says what to type.",
        "## Keys and shapes that do not fit",
        "\n".join(f"- [{span(words)}]({name_of(words)}.md)" for words in _LISTED),
    ]
    listed = set(_LISTED)
    families = [(title, [rule.code for rule in members]) for title, members in rules.families()]
    for said, codes in (*families, (_ELSEWHERE, ["", *other_messages.NAMES])):
        together = [each for code in codes for each in recognise.messages() if each.code == code]
        titles = [title for title in dict.fromkeys(each.says[0] for each in together) if title not in listed]
        listed.update(titles)
        if titles:
            parts.append(f"## {said}")
            parts.append("\n".join(f"- [{span(shown(title))}]({name_of(title)}.md)" for title in titles))
    return "\n\n".join(parts) + "\n"
