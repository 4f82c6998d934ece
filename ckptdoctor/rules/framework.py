"""A rule is a generator over one subject, registered under a code that is never reused.

The module that holds a rule is its page: the module's docstring is published by ``ckptdoctor explain CODE`` and has
the sections of ``SECTIONS``; ``SICK`` and ``HEALTHY`` hold its examples, which tests run; ``MESSAGES`` what programs
print of it, and ``SIGNS`` and what is marked with ``@judges`` how it is told from an error of ``load_state_dict``.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any

from ckptdoctor.checkpoint import KeyPath
from ckptdoctor.findings import Finding, Location, Severity
from ckptdoctor.noun import field, noun
from ckptdoctor.rules.examples import Example

if TYPE_CHECKING:
    from ckptdoctor.edits import Fix
    from ckptdoctor.rules.incompatible_keys import Judge
    from ckptdoctor.rules.messages import Message

# where the pages of the rules are published, one file a code: tools/readme.py writes them
PAGES = "https://github.com/ckptdoctor/ckptdoctor/blob/main/docs/rules"

SECTIONS = ("Meaning", "Why it matters", "Symptoms", "Detection", "Repair")


@noun
class Problem:
    """What a rule yields: a finding that has not got its code yet. See ``findings.Finding`` for the fields."""

    message: str
    cause: str = ""
    torch_says: tuple[str, ...] = ()
    advice: str = ""
    keys: tuple[KeyPath, ...] = ()
    location: Location = field(default_factory=Location)
    fix: Fix | None = None
    severity: Severity | None = None
    commands: tuple[str, ...] = ()


@noun
class Rule:
    """A registered rule. ``subject`` is what its function reads: Container, Checkpoint, Comparison,
    Integrity, Values or SameAsBase.

    A union of two (``Checkpoint | Comparison``) means that the rule reads the checkpoint alone, or says something
    better where there is a reference: it runs once, over the most telling subject (``subject_for``).
    ``when`` says of which containers and checkpoints the rule may speak by their headers alone; ``messages`` are what
    programs print where the rule finds something; ``also`` are the codes of other rules that the keys in an error may
    mean as well.
    """

    code: str
    name: str
    severity: Severity
    subject: type | UnionType
    body: Callable[[Any], Iterator[Problem]]
    page: str
    sick: tuple[Example, ...]
    healthy: tuple[Example, ...]
    when: Callable[[Any], bool] | None = None
    messages: tuple[Message, ...] = ()
    also: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first sentence of the page."""
        return self.page.strip().split("\n", 1)[0]

    @property
    def address(self) -> str | None:
        """Where the page is published; None for a rule of another package, whose pages are its own matter."""
        return f"{PAGES}/{self.code}.md" if self.body.__module__.startswith("ckptdoctor.rules.") else None

    @property
    def judges(self) -> tuple[Judge, ...]:
        """How the rule is asked of an error of ``load_state_dict``."""
        from ckptdoctor.rules.incompatible_keys import Judge  # which no check has a use for

        module = vars(sys.modules[self.body.__module__])
        signs = [sign.judge for sign in module.get("SIGNS", ())]
        return (*[each for each in module.values() if isinstance(each, Judge)], *signs)

    def run(self, subject: Any) -> Iterator[Finding]:
        """Yield the rule's findings over one subject."""
        for problem in self.body(subject):
            yield Finding(
                code=self.code,
                name=self.name,
                severity=problem.severity or self.severity,
                message=problem.message,
                cause=problem.cause,
                torch_says=problem.torch_says,
                advice=problem.advice,
                keys=problem.keys,
                location=problem.location,
                fix=problem.fix,
                commands=problem.commands,
            )


def subject_for(rule: Rule, subjects: Iterable[object]) -> object | None:
    """Return the first of ``subjects`` that the rule reads. Order them by how much they tell: a Comparison first."""
    kind = rule.subject
    for subject in subjects:
        if isinstance(subject, kind):
            return subject
    return None


Body = Callable[[Any], Iterator[Problem]]


def _subject(body: Body, known: Mapping[str, Any]) -> type | UnionType:
    """Return what the annotation of the first parameter stands for.

    Most are plain names: get_type_hints takes longer.
    """
    parameter, annotation = next(iter(body.__annotations__.items()))
    named: type | UnionType | None = known.get(annotation)
    return named if named is not None else typing.get_type_hints(body)[parameter]


_LEFT_OUT = "Python was started with -OO (or PYTHONOPTIMIZE=2), which leaves out what this page says."


def rule(code: str, name: str, severity: Severity, when: Callable[[Any], bool] | None = None) -> Callable[[Body], Rule]:
    """Turn a generator into the rule ``code`` (``name``); the first parameter's annotation is its subject.

    ``when`` (a condition of ``rules.when``) spares other files the import of the rule: ``tools/rule_index.py``.
    """

    def register(body: Body) -> Rule:
        module = sys.modules[body.__module__]
        subject = _subject(body, vars(module))
        return Rule(
            code=code,
            name=name,
            severity=severity,
            subject=subject,
            body=body,
            page=module.__doc__ or _LEFT_OUT,
            sick=getattr(module, "SICK", ()),
            healthy=getattr(module, "HEALTHY", ()),
            when=when,
            messages=getattr(module, "MESSAGES", ()),
            also=getattr(module, "ALSO", ()),
        )

    return register
