"""The file is a Git LFS pointer: three lines of text in place of the checkpoint.

Meaning
    The repository keeps large files in Git LFS. It was cloned (or downloaded as an archive) without them, so there is
    only the pointer: a version line, the SHA-256 of the real file and its size.

Why it matters
    There are no weights in the file. torch ≥ 2.6 claims that ``weights_only=False`` "will likely succeed": it will not.

Symptoms
    invalid load key, 'v'.
    Unsupported operand 118
    Error while deserializing header: header too large

Detection
    The file begins with ``version https://git-lfs.github.com/spec/``.

Repair
    None can be made from the pointer. ``git lfs pull -I PATH`` fetches the file; compare its size with the one that the
    pointer gives.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Container, NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import location, notes_of
from ckptdoctor.rules.kit.refusals import torch_says
from ckptdoctor.rules.messages import CHECK, Message, Way, first_byte
from ckptdoctor.rules.when import noticed

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 307200123\n"
)
MESSAGES = (
    *first_byte(
        ord("v"),
        "the file begins like a Git LFS pointer: a small text that stands for the real file, left by a clone "
        "without LFS",
        (Way("get the real file", "git lfs pull"), Way("then check again", "ckptdoctor check FILE")),
    ),
    Message(
        ("HeaderTooLarge", "header too large"),
        "the first eight bytes are not the length of a header that safetensors reads: the file is not in the format,"
        " and most such files are Git LFS pointers, error pages of a download, or torch files under another name."
        " Only a file with about a million tensors has a header that is really longer than 100 MB",
        (CHECK, Way("if it is an LFS pointer", "git lfs pull")),
        also=("F002", "F003", "C101", "C102", "C112"),
    ),
    Message(
        ("You seem to have cloned a repository without having git-lfs installed",),
        "the file is a Git LFS pointer: a small text that stands for the real file",
        (Way("get the real file", "git lfs install && git lfs pull"), Way("then check again", "ckptdoctor check FILE")),
    ),
)
SICK = (
    Example("an LFS pointer", raw=POINTER),
    Example("an LFS pointer named safetensors", raw=POINTER, suffix=".safetensors"),
)
HEALTHY = (Example("text in a checkpoint", {"version": "https://git-lfs.github.com/spec/v1"}),)


@rule("F001", "git-lfs-pointer", Severity.ERROR, when=noticed)
def git_lfs_pointer(container: Container) -> Iterator[Problem]:
    """Report a pointer instead of the file."""
    for note in notes_of(container, NoteKind.LFS_POINTER):
        fields = _fields(container.head)
        size = fields.get("size", "")
        real = f" of {int(size):,} bytes" if size.isdecimal() and len(size) < 20 else ""
        yield Problem(
            message=f"this is a Git LFS pointer; the real file{real} was not downloaded",
            cause="The repository was cloned without Git LFS: no weights are here. weights_only=False does not help.",
            torch_says=torch_says(container),
            advice=f"git lfs install && git lfs pull -I {_include(container.path)}",
            location=location(note),
        )


def _fields(head: bytes) -> dict[str, str]:
    lines = head[:1024].decode("ascii", "replace").splitlines()
    return {name: value for name, _, value in (line.partition(" ") for line in lines)}


def _include(path: str) -> str:
    """Return the path as an argument for a shell; relative to the repository is what git expects."""
    from ckptdoctor.shell import word

    return word(path)
