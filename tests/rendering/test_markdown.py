"""The report for a pull request."""

from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from ckptdoctor.findings import Report
from ckptdoctor.rendering import markdown
from ckptdoctor.rendering.markdown import code, plain
from tests.cli.files import HOSTILE, printable
from tests.golden import golden
from tests.rendering import samples


def html(text):
    """What a renderer of GitHub's tables makes of it."""
    return MarkdownIt("commonmark", {"html": True}).enable("table").render(text)


def test_the_report():
    """A sentence, a table of findings, what has none, and what was not examined."""
    one = samples.report(samples.MODULE_PREFIX, samples.SHARED)
    report = Report((one, samples.report(path="good.pt"), samples.damaged("it is a web page")))
    golden("check.md", markdown.render(report, statistics=True))
    assert html(markdown.render(report)).count("<tr>") == 4
    assert markdown.render(Report((samples.report(),))).startswith("**Nothing found in runs/resnet50.pt**\n")


@pytest.mark.parametrize(
    "text",
    [
        "a|b",
        "`a`",
        "``",
        "<img src=x>",
        "@everyone",
        "#12",
        "[x](http://e)",
        "**b** __c__ ~~d~~",
        "http://e",
        "\\|",
        "&lt;",
    ],
)
def test_text_stays_text(text):
    """Whatever a file holds is seen as it is, in a cell of its own, and links or mentions nobody."""
    for made in (plain(text), code(text)):
        shown = html(f"| a | b |\n|---|---|\n| {made} | x |")
        assert shown.count("<td>") == 2 and "<a " not in shown and "<img" not in shown and "<strong>" not in shown
        cell = shown.split("<td>")[1].split("</td>")[0].replace("<!-- -->", "")
        cell = cell.removeprefix("<code>").removesuffix("</code>")
        for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
            cell = cell.replace(entity, sign)
        assert cell == text
    assert "@e" not in plain(text) and "#1" not in plain(text) and "http://" not in plain(text)


def test_nothing_hostile():
    """Control characters are escaped, and rows have five cells."""
    bad = replace(samples.MODULE_PREFIX, message=f"{HOSTILE}|`x`", advice=f"{HOSTILE}|", fix=None)
    text = markdown.render(Report((samples.report(bad, path=HOSTILE), samples.damaged(f"{HOSTILE}|"))))
    assert printable(text.encode())
    assert html(text).count("<td>") == 10


def test_what_a_comment_holds():
    """Thousands of findings fit into a comment, and the rest is counted."""
    files = [samples.report(samples.MODULE_PREFIX, path=f"{number}.pt") for number in range(1000)]
    text = markdown.render(Report(tuple(files)))
    assert len(text) < 65_536 and "… and 800 more findings" in text
