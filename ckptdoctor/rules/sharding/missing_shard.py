"""A file of a checkpoint in several files is missing, or cannot be read.

Meaning
    The index of a sharded checkpoint, the numbers in its shards' names, or the ``.metadata`` of a distributed one name
    a file that is not in the folder, or that cannot be read. The download or the copy was interrupted, or left it out;
    or there is a Git LFS pointer, a web page or zeros in its place.

Why it matters
    Tensors are missing. Some loaders report it; those that take whatever is in the folder leave parameters at their
    initial values, and the model produces nonsense.

Symptoms
    does not appear to have files named
    FileNotFoundError: [Errno 2] No such file or directory: 'model-00002-of-00002.safetensors'

Detection
    The names in the folder are compared with the index, or with the ``-00001-of-00002`` of the names themselves, and
    each file is opened. The missing keys are those that the index assigns to it. A name that leads out of the folder is
    not followed.

Repair
    None: download the file, for example with ``hf download REPOSITORY --include NAME``, and check again. If there is no
    other copy, ``ckptdoctor salvage FOLDER`` recovers every intact tensor of all shards, including the damaged one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from ckptdoctor.checkpoint import Checkpoint, Container, Note, NoteKind
from ckptdoctor.checkpoint.checkpoint import lists_all
from ckptdoctor.facts.globals import dangerous
from ckptdoctor.facts.reader_notes import is_salvaged_whole, salvage_advice
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example
from ckptdoctor.rules.file.git_lfs_pointer import POINTER
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.noticed import Noted, format_of, notes_of, problems
from ckptdoctor.rules.kit.sharded_samples import INDEX, ONE, TWO, index_file, shard
from ckptdoctor.rules.messages import Message, Way, Weight
from ckptdoctor.rules.when import noticed
from ckptdoctor.shell import quote, word

_FIRST, _SECOND = shard(1), shard(2)
_AGAIN = "Download it again, or use another copy."

MESSAGES = (
    Message(
        ("Cannot find any model weights with",),
        "there is no weights file where the program looked: the download is not complete, or the path is wrong",
        (Way("look into the folder", "ckptdoctor check FILE"),),
    ),
    Message(
        ("does not appear to have files named",),
        "the index names shards that are missing: the download is not complete",
        (Way("download the rest, then", "ckptdoctor check FILE"),),
    ),
    Message(
        ("does not appear to have a file named", "Error no file named"),
        "there is no weights file with a name that the loader knows: the download is not complete, or the "
        "path is wrong",
        (Way("look into the directory", "ls"),),
        then=r"[`'\"]?(?P<name>[\w.,\[\]'-]{1,300})",
        weight=Weight.OUTCOME,
    ),
    Message(
        ("No such file or directory:",),
        "a shard of the checkpoint is missing: the download is not complete",
        (Way("download it again, then", "ckptdoctor check FILE"),),
        then=r"['\"]?[^'\"\n]{0,300}?-\d{5}-of-\d{5}\.(?:safetensors|bin)",
        general=1,
    ),
)
SICK = (
    Example("a shard that the index names", files={INDEX: index_file(), _FIRST: ONE}),
    Example("one of two numbered shards", files={"config.json": b"{}", _SECOND: TWO}),
    Example(
        "a shard that was cut off",
        files={INDEX: index_file(), _FIRST: ONE, _SECOND: b"\x40" + bytes(7) + b"{"},
    ),
    Example(
        "a shard that Git LFS left out",
        files={INDEX: index_file(), _FIRST: ONE, _SECOND: POINTER},
    ),
    Example(
        "a name that leads elsewhere",
        files={INDEX: index_file(b_bias="../other.safetensors"), _FIRST: ONE, _SECOND: TWO},
    ),
)
HEALTHY = (
    Example("both shards", files={INDEX: index_file(), _FIRST: ONE, _SECOND: TWO}),
    Example("shards without an index", files={_FIRST: ONE, _SECOND: TWO}),
)


@rule("X801", "missing-shard", Severity.ERROR, when=noticed)
def missing_shard(subject: Noted) -> Iterator[Problem]:
    """Report files that belong to the checkpoint and are not there, or cannot be read."""
    missing = [note.member for note in notes_of(subject, NoteKind.FILE_MISSING) if note.member]
    yield from problems(
        notes_of(subject, NoteKind.FILE_MISSING),
        otherwise="a file of the checkpoint is missing",
        cause="The download or the copy is not complete. Lenient loaders leave these parameters random.",
        advice=partial(_of_missing, subject),
        torch_says=(wording.files_asked_for(missing),) if missing and _is_sharded(subject) else (),
    )
    yield from problems(
        notes_of(subject, NoteKind.FILE_DAMAGED),
        otherwise="a file of the checkpoint cannot be read",
        cause="The tensors in it are missing from the checkpoint.",
        advice=partial(_of_damaged, subject),
    )
    yield from problems(
        notes_of(subject, NoteKind.FILE_OUTSIDE),
        otherwise="a name leads out of the folder",
        cause="No checkpoint needs that, and it is not followed: the target is not examined.",
        advice="Download the checkpoint from where it was published, and do not open this one with anything else.",
    )


def _of_missing(subject: Noted, note: Note) -> str:
    if isinstance(subject, Container) and subject.guidance:
        return subject.guidance
    if not _is_sharded(subject):
        return "Copy it from where the checkpoint was saved, and check again."
    name = word(note.member) if note.member else "NAME"
    again = f"Download it (for example with: hf download REPOSITORY --include {name}), and check again."
    return _with_salvage(again, subject, note)


def _of_damaged(subject: Noted, note: Note) -> str:
    """Return the advice of the file's reader, with the command that recovers what is intact, or one that shows more."""
    if not isinstance(subject, Checkpoint):
        return _AGAIN
    if _runs(subject, note.member or ""):
        return "Do not load it: it can run commands. Get the whole checkpoint from a source that you trust."
    file = quote(os.path.join(subject.path, note.member or ""))
    again = note.guidance.replace(" FILE.", f" {file}.") or _AGAIN
    complete = "ckptdoctor salvage " in again  # the reader's own command, with which its advice ends
    if is_salvaged_whole(subject):
        return _with_salvage(_AGAIN if complete else again, subject, note)
    if complete or lists_all(subject):  # a file of a distributed checkpoint shows nothing without .metadata
        return again
    return f"{again} More: ckptdoctor check {file}"


def _runs(checkpoint: Checkpoint, member: str) -> bool:
    """Return whether the file names what runs commands, in whatever pickle of it: another copy would do the same."""
    asides = [name for aside in checkpoint.asides for name in aside.names]
    named = [each for each in (*checkpoint.globals, *asides) if f"{each.member}/".startswith(f"{member}/")]
    return bool(member) and bool(dangerous(named))


def _with_salvage(again: str, subject: Noted, note: Note) -> str:
    """Return the same, and what can be done without another copy where tensors of other shards are there."""
    if isinstance(subject, Checkpoint) and subject.tensors and is_salvaged_whole(subject):
        return f"{again} {salvage_advice(subject, note.member or '')}"
    return again


def _is_sharded(subject: Noted) -> bool:
    """Return whether transformers would look for the file."""
    return format_of(subject).startswith(("sharded Hugging Face", "Hugging Face"))
