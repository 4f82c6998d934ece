"""What a rule is made of."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Container
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import T
from ckptdoctor.rules.framework import Problem, Rule, rule, subject_for
from tests.rules import nouns

NET = {"fc.weight": T((2, 4))}


def _rule(body: object) -> Rule:
    return rule("X123", "some-thing", Severity.WARNING)(body)  # type: ignore[arg-type]


def test_the_subject_is_the_annotation_of_the_first_parameter() -> None:
    """What a rule reads is said by its signature alone."""

    def body(container: Container) -> Iterator[Problem]:
        yield Problem("x")

    assert _rule(body).subject is Container


def test_problems_become_findings_of_the_rule() -> None:
    """Code, name and severity come from the rule, unless the problem has a severity of its own."""

    def body(checkpoint: Checkpoint) -> Iterator[Problem]:
        yield Problem("one", cause="because", keys=(("a",),), location=Location(path=("a",)))
        yield Problem("two", severity=Severity.INFO)

    one, two = _rule(body).run(nouns.checkpoint(NET))
    assert (one.code, one.name, one.severity) == ("X123", "some-thing", Severity.WARNING)
    assert (one.message, one.cause, one.keys, one.location.path) == ("one", "because", (("a",),), ("a",))
    assert two.severity is Severity.INFO


def test_the_page_is_the_docstring_of_the_module() -> None:
    """The page and its first sentence come from where the rule is written."""

    def body(checkpoint: Checkpoint) -> Iterator[Problem]:
        yield Problem("x")

    assert _rule(body).page == __doc__
    assert _rule(body).summary == "What a rule is made of."


def test_a_union_is_read_as_the_most_telling_subject() -> None:
    """A rule over checkpoints or comparisons runs once: over the comparison, where there is one."""

    def body(subject: Checkpoint | Comparison) -> Iterator[Problem]:
        yield Problem("x")

    checkpoint, comparison = nouns.checkpoint(NET), nouns.comparison(NET, NET)
    assert subject_for(_rule(body), (comparison, checkpoint)) is comparison
    assert subject_for(_rule(body), (None, checkpoint)) is checkpoint
    assert subject_for(_rule(body), (None,)) is None
