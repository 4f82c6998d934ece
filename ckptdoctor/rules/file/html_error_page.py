"""The file is a web page: a server sent an error, sign-in or quota page instead of the checkpoint.

Meaning
    The download link answered with HTML: Google Drive's quota or virus-scan page, a login page, GitHub's page about
    the file instead of the file, or "404 not found". The browser or ``wget`` saved it under the checkpoint's name.

Why it matters
    There are no weights in the file. torch ≥ 2.6 claims that ``weights_only=False`` "will likely succeed": it will not.

Symptoms
    invalid load key, '<'.
    Unsupported operand 60
    Error while deserializing header: header too large

Detection
    The first characters are ``<!DOCTYPE``, ``<html`` or ``<?xml``; the page's title is quoted.

Repair
    None: download the file again. On GitHub use the "raw" link, on Hugging Face ``resolve`` instead of ``blob``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Container, NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import location, notes_of
from ckptdoctor.rules.kit.refusals import torch_says
from ckptdoctor.rules.messages import Way, first_byte
from ckptdoctor.rules.when import noticed

PAGE = b"<!DOCTYPE html><html><head><title>Google Drive - Quota exceeded</title></head><body>Sorry</body></html>\n"
MESSAGES = (
    *first_byte(
        ord("<"),
        "the file is a web page: the download gave a sign-in, quota or error page instead of the weights",
        (Way("see what the page is", "ckptdoctor check FILE"), Way("then", "download the file again")),
    ),
)
SICK = (
    Example("a quota page", raw=PAGE, suffix=".pth"),
    Example("a page without a title", raw=b"\n  <html><body>404</body></html>"),
    Example("a page named safetensors", raw=PAGE, suffix=".safetensors"),
)
HEALTHY = (Example("markup in a checkpoint", {"page": "<!DOCTYPE html>"}),)


@rule("F002", "html-error-page", Severity.ERROR, when=noticed)
def html_error_page(container: Container) -> Iterator[Problem]:
    """Report a web page instead of the file."""
    for note in notes_of(container, NoteKind.HTML_PAGE):
        title = _title(container.head)
        called = f' called "{title}"' if title else ""
        yield Problem(
            message=f"this is a web page{called}, not a checkpoint",
            cause=f"The server answered the download with a page{_reason(title)}. weights_only=False does not help.",
            torch_says=torch_says(container),
            advice=(
                "Download the file again: from GitHub with the raw link, from Hugging Face with /resolve/ "
                "instead of /blob/, from a site that requires a login with your token."
            ),
            location=location(note),
        )


def _title(head: bytes) -> str:
    text = head.decode("utf-8", "replace")
    start = text.lower().find("<title")
    start = text.find(">", start) + 1 if start >= 0 else 0
    stop = text.lower().find("</title", start)
    return " ".join(text[start:stop].split())[:120] if 0 < start <= stop else ""


def _reason(title: str) -> str:
    title = title.lower()
    if "quota" in title:
        return ": too many people downloaded it today"
    if "sign in" in title or "log in" in title or "login" in title:
        return ": it requires you to sign in"
    if "404" in title or "not found" in title:
        return ": there is no such file"
    return ""
