"""Every text that a person reads is plain English: no word or phrase of the list below is in any of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ckptdoctor"


class Banned(NamedTuple):
    """What no text may have, and what to write in its place."""

    pattern: str
    say: str


EVERYWHERE = (
    Banned(r"\bcur(?:e|es|ed|ing)\b", "fix, repair"),
    Banned(r"(?<!here )\b(?:is|are|was|were|be) no\b(?! (?:longer|more|one|less|better|worse)\b)", "is not a"),
    Banned(r"\b(?:is|are) (?:something else|none of (?:them|these|those))\b", "is not one of, or unrecognised"),
    Banned(r"\banew\b", "again"),
    Banned(r"\b(?:lies?|lay|lain|lying)\b", "is, has"),
    Banned(r"\b(?:stands?|stood|standing)\b(?! for\b)", "is, has"),
    Banned(r"\bbeside\b", "next to"),
    Banned(r"\bother way a?round\b", "reversed, the reverse"),
    Banned(r"\b(?:hold|holds|held|holding)\b[^.;:]{0,40}\bagainst\b", "compare with"),
    Banned(r"\binsist", "requires"),
    Banned(r"\b(?:sticks?|stuck|sticking) out\b", "outlier"),
    Banned(r"\bremarks?\b", "info"),
    Banned(r"\brebuilt by\b", "loader"),
    Banned(r"\b(?:makes?|made|making) no sense\b", "invalid"),
    Banned(r"\bbut for\b", "except for"),
    Banned(r"\bas often as wanted\b", "repeatable"),
    Banned(r"\bas ever\b", "as usual"),
    Banned(r"\bwithout a word\b", "silently"),
    Banned(r"\bknow(?:s|n)? no\b", "does not have, does not know"),
)
MESSAGES = (
    *EVERYWHERE,
    Banned(r"[“”„]", 'a straight " in what a terminal shows'),
    Banned(r"(?<![A-Za-z])E(?:rror|RROR):", 'one spelling: "error:"'),
    Banned(r"(?<![.\s/])\.\.(?=\s|$)", "one period"),
    Banned(r"^(?:What|Which|Whether|Whatever)\b(?!.*\?)", "a heading or sentence that does not begin like that"),
    Banned(r"\b(?:is|are|be|not|damaged or) whole\b(?! bytes)|\bwhole of (?:a|it|the)\b", "intact, complete"),
    Banned(r"\b(?:that|which|none) (?:is|are) (?:not )?known\b|\b(?:is|are) not known\b", "unknown, unrecognised"),
    Banned(r"\bof another (?:shape|kind|dtype)\b", "shape mismatch, a different shape"),
    Banned(r"\bwant(?:s|ed)\b|(?<!you )\bwant\b", "expects, requires, needs"),
    Banned(r"\b(?:tells?|told|telling)\b", "shows, reports, prints; is determined"),
    Banned(r"[,;] for (?:it|they|its|their|this|no|there|what|only)\b", "because, since"),
    Banned(r"\bkind of (?:it|them)\b", "a noun"),
    Banned(r"\bby (?:its|their) names?\b", "by name"),
)
PAGES = (
    *EVERYWHERE,
    Banned(r"^#+ .*\b(?:What|Which|Whether|Whatever)\b(?!.*\?)", "a heading that is not half a sentence"),
    Banned(r"(?<![.\s/])\.\.(?=\s|$)", "one period"),
    Banned(r"(?<![\d.,])\b1 (?:tensors|keys|files|findings|errors|warnings|layers|repairs|storages)\b", "one has no s"),
)

# words of other programs, names in code, and data that is no text: nothing in them is a word of a sentence
QUOTED: dict[str, tuple[str, ...]] = {
    "checkpoint/expectation.py": ("``beside``",),
    "converting/writing.py": ("``beside``",),
    "edits/grafts.py": ("``beside``",),
    "edits/kinds.py": ("``beside``",),
    "rules/examples.py": ("``beside``",),
    "writing/recipe.py": ("``beside``",),
}


class Text(NamedTuple):
    """One text: where it begins, and how it reads. A name in braces stands for what is only known later."""

    file: str
    line: int
    words: str


@lru_cache
def catalogue() -> tuple[tuple[Text, ...], tuple[Text, ...]]:
    """Every text in the code that has a space: those that are printed, and the docstrings."""
    printed: list[Text] = []
    docstrings: list[Text] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        seen: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr):  # of a module, class or function, or below an attribute
                said = node.value
                if isinstance(said, ast.Constant) and isinstance(said.value, str):
                    seen.add(id(said))
                    shown = file.startswith("rules/") and "\nRepair\n" in said.value
                    (printed if shown else docstrings).append(Text(file, said.lineno, said.value))
            elif isinstance(node, ast.JoinedStr):
                seen.update(id(part) for part in node.values)
                printed.append(Text(file, node.lineno, "".join(_part(part) for part in node.values)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in seen:
                printed.append(Text(file, node.lineno, node.value))
    return tuple(text for text in printed if " " in text.words.strip()), tuple(docstrings)


def _part(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "{}"


def pages() -> Iterator[Text]:
    """Each paragraph of what is written by hand, and of the pages that are made of rules and messages."""
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        line = 1
        for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
            yield Text(path.relative_to(ROOT).as_posix(), line, paragraph)
            line += paragraph.count("\n") + 2


def faults(text: Text, banned: tuple[Banned, ...]) -> Iterator[str]:
    """What is wrong with a text, each with where it is and what to write."""
    words = text.words
    for quoted in QUOTED.get(text.file, ()):
        words = words.replace(quoted, "…")
    words = re.sub(r"[^\S\n]*\n[^\S\n]*(?!\n)", " ", words) if not words.startswith("#") else words
    for pattern, say in banned:
        for match in re.finditer(pattern, words):
            near = words[max(0, match.start() - 40) : match.end() + 40]
            yield f"{text.file}:{text.line}: “{match[0]}” in “{near}”: write {say}"


@pytest.mark.parametrize(("kind", "banned"), [("printed", MESSAGES), ("docstrings", EVERYWHERE), ("pages", PAGES)])
def test_texts_are_plain(kind, banned):
    """No text has a banned word."""
    printed, docstrings = catalogue()
    texts = {"printed": printed, "docstrings": docstrings, "pages": pages()}[kind]
    assert "\n".join(fault for text in texts for fault in faults(text, banned)) == ""


def test_what_is_quoted_is_still_there():
    """Each exception is one that a text still needs."""
    printed, docstrings = catalogue()
    for file, quotes in QUOTED.items():
        words = "\n".join(text.words for text in (*printed, *docstrings) if text.file == file)
        assert [quoted for quoted in quotes if quoted not in words] == []


@pytest.mark.parametrize(
    "words",
    [
        "x is no checkpoint.",
        "It lies in a folder.",
        "Made anew.",
        "the other way round",
        "“x” is here",
        "Done..",
        "Error: x",
    ],
)
def test_a_banned_phrase_is_refused(words):
    """Each kind of fault is found where it is."""
    assert list(faults(Text("x.py", 1, words), MESSAGES))


@pytest.mark.parametrize("words", ["There is no tensor.", "it is no longer here", "layers 0..1 of 5", "and more..."])
def test_plain_english_is_not(words):
    """What only looks like one is left alone."""
    assert not list(faults(Text("x.py", 1, words), MESSAGES))
