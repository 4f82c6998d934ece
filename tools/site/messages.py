"""One page for each message that ``explain`` knows: who prints it, what it means, and what to type."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ckptdoctor.messages import recognise
from ckptdoctor.messages.message import Message
from ckptdoctor.messages.text import Text, cleaned, squeeze
from ckptdoctor.rules.registry import all_rules
from tests.messages import corpus
from tools.site import rules
from tools.site.marking import cell, fenced, prose, slug, span

_LISTED = {  # errors that name keys: which rule is meant depends on the keys, so each has a page that lists them
    "Missing key(s) in state_dict": "The model has parameters or buffers that the file has not under these names.",
    "Unexpected key(s) in state_dict": "The file has keys that the model does not know.",
    "size mismatch for": "A key is in both, with another shape.",
}
_LONGEST = 1500  # characters of an example that are shown
_CORPUS = [(entry, cleaned(entry.text)) for entry in corpus.MESSAGES]


@dataclass(frozen=True)
class _Example:
    """A text that people met: who printed it, and what the message's pattern found in it."""

    source: str
    text: str
    groups: Mapping[str, str]


def pages() -> Iterator[tuple[str, str]]:
    """Names and texts of the pages."""
    named = _named()
    yield "index", _index(named)
    for message, name in named:
        yield name, _page(message)
    for words, meaning in _LISTED.items():
        yield slug(words), _listing(words, meaning)


def leading() -> dict[str, list[str]]:
    """By the code of a rule: links to the pages of the messages that are about it."""
    links: dict[str, list[str]] = defaultdict(list)
    for message, name in _named():
        for code in (message.code, *message.also):
            links[code].append(f"[{span(_title(message))}](../messages/{name}.md)")
    return links


def _named() -> list[tuple[Message, str]]:
    """Every message with the name of its page: its words, and a number where two begin alike."""
    used: dict[str, int] = {}
    named = []
    for message in recognise.MESSAGES:
        name = slug(_title(message)) or "message"
        used[name] = used.get(name, 0) + 1
        named.append((message, f"{name}-{used[name]}" if used[name] > 1 else name))
    return named


def _title(message: Message) -> str:
    return message.says[0]


def _page(message: Message) -> str:
    codes = {rule.code: rule for rule in all_rules()}
    example = next(_examples(message), None)
    groups = defaultdict(lambda: "…", example.groups if example else {})
    said = message.meaning.format_map(groups)
    parts = [f"# {span(_title(message))}", "## What it means", prose(_sentence(said), codes, "../rules/")]
    if message.ways:
        parts.append("## What to do")
        parts += [f"{_sentence(way.label, ':')}\n\n{fenced(way.command.format_map(groups))}" for way in message.ways]
        parts.append("`FILE` stands for your checkpoint, and `TEXT` for the error, saved as a file.")
    about = [codes[code] for code in (message.code, *message.also) if code in codes]
    if about:
        parts.append("## The rule")
        parts += [
            f"[{each.code} {each.name}](../rules/{each.code}.md): {prose(each.summary, codes, '../rules/')}"
            for each in about
        ]
    if example:
        parts += ["## Seen", f"From {prose(example.source, (), '')}:", fenced(_shortened(example.text))]
    if len(message.says) > 1:
        parts += ["## Other wordings", "\n".join(f"- {span(words)}" for words in message.says[1:])]
    parts.append("`ckptdoctor explain` finds this message in a traceback or a whole log. [All messages](index.md)")
    return "\n\n".join(parts) + "\n"


def _examples(message: Message) -> Iterator[_Example]:
    """The texts of the corpus in which this message is."""
    for entry, text in _CORPUS:
        groups = _groups(message, text)
        if groups is not None and (message.code in entry.codes or not message.code):
            yield _Example(entry.source, entry.text.rstrip(), groups)


def _groups(message: Message, text: Text) -> dict[str, str] | None:
    for words in map(squeeze, message.says):
        start = text.squeezed.find(words)
        while start >= 0:
            found = re.compile(message.then).match(text.squeezed, start + len(words))
            if found and (message.holds is None or message.holds(found.groupdict())):
                return {name: value or "…" for name, value in found.groupdict().items()}
            start = text.squeezed.find(words, start + 1)
    return None


def _sentence(text: str, end: str = ".") -> str:
    return text[:1].upper() + text[1:].rstrip(".:") + end


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "\n…"


def _listing(words: str, meaning: str) -> str:
    """The rules that a list of keys or shapes may be about, by the keys that give each away."""
    codes = {rule.code for rule in all_rules()}
    rows = [
        f"| [{rule.code}](../rules/{rule.code}.md) | {cell(prose(rule.summary, codes, '../rules/'))} | "
        f"{cell(span(line))} |"
        for rule in all_rules()
        for line in [each for each in rules.seen(rule)[0] if words in each][:1]
    ]
    return "\n\n".join(
        [
            f"# {span(words)}",
            f"{meaning} Why, the names tell: paste the whole error into `ckptdoctor explain`, or compare the file with "
            "the model:",
            fenced("ckptdoctor check FILE --model MODULE:CLASS"),
            "## What it looks like, and why",
            "\n".join(["| rule | why | for example |", "|---|---|---|", *rows]),
            "[All messages](index.md)",
        ]
    ) + "\n"


def _index(named: list[tuple[Message, str]]) -> str:
    parts = [
        "# Messages",
        "What torch, safetensors, transformers and others print when a checkpoint does not load. "
        "`ckptdoctor explain` finds them in a traceback or a log, and says what to type.",
        "## `load_state_dict`",
        "\n".join(f"- [{span(words)}]({slug(words)}.md)" for words in _LISTED),
    ]
    names = iter([name for _, name in named])
    for family, messages in recognise.FAMILIES.items():
        said = sys.modules[f"ckptdoctor.messages.{family}"].__doc__ or family
        parts.append(f"## {said.split(chr(10))[0].rstrip('.')}")
        parts.append("\n".join(f"- [{span(_title(each))}]({next(names)}.md)" for each in messages))
    return "\n\n".join(parts) + "\n"
