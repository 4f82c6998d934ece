"""The file is a short text: a server's error message instead of the checkpoint.

Meaning
    The download link answered with plain text or JSON, such as "Entry not found", "Invalid username or password" or
    ``{"error": "…"}``, which was saved under the checkpoint's name.

Why it matters
    There are no weights in the file. torch ≥ 2.6 claims that ``weights_only=False`` "will likely succeed": it will not.

Symptoms
    invalid load key, 'E'.
    Unsupported operand 69
    Error while deserializing header: header too large

Detection
    The whole file is text, and short.

Repair
    None: download the file again; the text describes the problem.
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

_TEXT = (
    "the file is text, not weights: most likely a server's error message was saved in its place",
    (Way("see the text", "ckptdoctor check FILE"), Way("then", "download the file again")),
)
MESSAGES = (*[message for byte in map(ord, '{["EIANTU\n\r\t') for message in first_byte(byte, *_TEXT)],)
SICK = (
    Example("a plain error message", raw=b"Entry not found"),
    Example("an error in JSON", raw=b'{"error": "Repository not found"}'),
)
HEALTHY = (Example("text in a checkpoint", {"error": "Entry not found"}),)


@rule("F003", "text-error-body", Severity.ERROR, when=noticed)
def text_error_body(container: Container) -> Iterator[Problem]:
    """Report an error message instead of the file."""
    for note in notes_of(container, NoteKind.TEXT_BODY):
        yield Problem(
            message=f'this is text, not a checkpoint: "{_first_line(container.head)}"',
            cause="The server answered the download with a message. weights_only=False does not help.",
            torch_says=torch_says(container),
            advice="Download the file again; the text describes what went wrong.",
            location=location(note),
        )


def _first_line(head: bytes) -> str:
    lines = head.decode("utf-8", "replace").strip().splitlines()
    line = lines[0] if lines else ""
    return line if len(line) <= 100 else f"{line[:99]}…"
