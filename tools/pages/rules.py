"""One page a rule, out of its docstring: each message that people paste into a search engine is a heading of it."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Mapping

from ckptdoctor.rendering.sarif import sections
from ckptdoctor.rules.framework import Rule
from ckptdoctor.rules.registry import all_rules
from tools.pages.examples import SAMPLES, carry_out
from tools.pages.marking import cell, fenced, prose, span

_WIDTH = 120  # columns of a docstring: where the next word had room, the line was meant to end
# lines under "Symptoms" that are no message but say what happens instead of one
_NO_MESSAGE = re.compile(r"(?:Nothing|Often nothing|Or|A|An) ?\b(?![^.]*is \[)")
_BEFORE = re.compile(r"(Nothing, or: |Often nothing\. In transformers: )(.+)", re.DOTALL)
_SEES = "Symptoms"


def pages(leading: Mapping[str, list[str]], sampled: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Names and texts of the pages.

    ``leading`` has, by code, links to the pages of messages that are about a rule, and ``sampled`` a console block in
    which check finds it.
    """
    yield "index", _index()
    for rule in all_rules():
        yield rule.code, _page(rule, leading.get(rule.code, []), sampled.get(rule.code, ""))


def samples() -> Iterator[tuple[str, str]]:
    """By the code of a rule: what check prints of the sample checkpoint that shows it, where there is one."""
    expected = json.loads((SAMPLES / "EXPECTED.json").read_text(encoding="utf-8"))
    for code in [rule.code for rule in all_rules()]:
        for path in [path for path in expected if path.startswith(f"sick/{code}-")][:1]:
            command = " ".join(["ckptdoctor check", *expected[path].get("options", []), "--select", code, path])
            yield code, fenced(f"$ {command}\n{carry_out(command, SAMPLES).printed}", "console")


def seen(rule: Rule) -> tuple[list[str], list[str]]:
    """The messages that a rule's page quotes, each on one line, and what the page says besides."""
    messages, remarks = [], []
    for line in _logical(sections(rule.page).get(_SEES, "")):
        behind = _BEFORE.fullmatch(line)
        if behind:
            remarks.append(behind[1].rstrip(": ") + ":")
            messages.append(behind[2])
        elif _NO_MESSAGE.match(line):
            remarks.append(line)
        else:
            messages.append(line)
    return messages, remarks


def _logical(text: str) -> Iterator[str]:
    """The lines of a section with those put together that were broken at the margin."""
    whole = ""
    last = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        room = _WIDTH - len("    ") - len(last) - 1
        broken = last.endswith(",") or (last and not last.endswith((".", "…", "!")) and len(line.split()[0]) > room)
        if whole and not broken:
            yield whole
            whole = ""
        whole, last = f"{whole} {line}".strip(), line
    if whole:
        yield whole


def _page(rule: Rule, leading: list[str], sample: str) -> str:
    codes = {each.code for each in all_rules()} - {rule.code}
    parts = [f"# {rule.code} {rule.name}", f"**{rule.severity.value}** · {prose(rule.summary, codes, '')}"]
    for title, text in sections(rule.page).items():
        parts.append(f"## {title}")
        parts += _what_you_see(rule, leading, codes) if title == _SEES else _paragraphs(text, codes)
    if sample:
        parts += ["## Output of check", sample]
    parts += _examples(rule)
    parts.append(f"On the command line: `ckptdoctor explain {rule.code}`. [All rules](index.md)")
    return "\n\n".join(parts) + "\n"


def _paragraphs(text: str, codes: set[str]) -> list[str]:
    return [prose(each, codes, "") for each in re.split(r"\n\s*\n", text)]


def _what_you_see(rule: Rule, leading: list[str], codes: set[str]) -> Iterator[str]:
    messages, remarks = seen(rule)
    yield from (f"### {span(each)}" for each in dict.fromkeys(messages))
    yield from (prose(each, codes, "") for each in remarks)
    if leading:
        yield "Messages about it, each with a page:"
        yield "\n".join(f"- {each}" for each in leading)


def _examples(rule: Rule) -> Iterator[str]:
    """What the rule is tested with: these are found, those are not."""
    if rule.sick:
        yield "## Tested with"
        yield "\n".join([f"- found: {prose(each.title, (), '')}" for each in rule.sick])
    if rule.healthy:
        yield "\n".join([f"- not found: {prose(each.title, (), '')}" for each in rule.healthy])


def _index() -> str:
    """Every rule in a table, family by family."""
    codes = {rule.code for rule in all_rules()}
    parts = [
        "# Rules",
        "What `check` looks for. `ckptdoctor rules` lists them, and `ckptdoctor explain CODE` prints a page. A code is "
        "never used again; what a rule needs to be read decides whether it runs from headers or with `--deep`.",
    ]
    for family, members in families():
        parts.append(f"## {family}")
        rows = [
            f"| [{rule.code}]({rule.code}.md) | `{rule.name}` | {rule.severity.value} | "
            f"{cell(prose(rule.summary, codes, ''))} |"
            for rule in members
        ]
        parts.append("\n".join(["| code | name | severity | what it finds |", "|---|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def families() -> Iterator[tuple[str, list[Rule]]]:
    """The families by their letters, each with the sentence of its package."""
    grouped: dict[str, list[Rule]] = {}
    for rule in all_rules():
        grouped.setdefault(rule.body.__module__.rsplit(".", 1)[0], []).append(rule)
    for package in sorted(grouped, key=lambda each: grouped[each][0].code):
        yield _title(package, grouped[package]), grouped[package]


def _title(package: str, members: list[Rule]) -> str:
    said = (importlib.import_module(package).__doc__ or package).split("\n")[0].rstrip(".")
    letter, _, words = said.partition(": ")
    return f"{letter}: {words}" if words else f"{members[0].code[0]}: {said}"
