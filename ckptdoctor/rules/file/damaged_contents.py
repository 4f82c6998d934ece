"""The contents cannot be read: the pickle or the archive around it is damaged.

What it means
    The file is recognised, but what stands in it breaks off or makes no sense at some byte: a record of the archive
    lies outside the file or over another one, or the pickle uses what it never made.

Why it matters
    torch refuses the file or, worse, reads something else. What could not be read is not called healthy.

What you see
    PytorchStreamReader failed reading zip archive: …
    Weights only load failed. … Unsupported operand 255
    pickle data was truncated

How it is found
    The reader follows every header and every opcode, and checks each length before it believes it.

Repair
    None: take the file from another copy. The byte offset in the report says where the damage begins. Of a shard that
    was cut off, ``ckptdoctor salvage FOLDER`` saves what is in front of the cut, with all that is in the other shards.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator

from ckptdoctor.checkpoint import Aside, Checkpoint, KeyPath, Lying, NoteKind, Storage
from ckptdoctor.checkpoint.sharing import leaves
from ckptdoctor.facts.globals import dangerous, is_allowed, modern
from ckptdoctor.facts.reader_notes import salvage_advice
from ckptdoctor.findings import Severity
from ckptdoctor.noun import replace
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.file import truncated_legacy, truncated_safetensors, truncated_zip
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.blocked import listed_names
from ckptdoctor.rules.kit.noticed import Noted, format_of, notes_of, problems
from ckptdoctor.rules.messages import CHECK, Message, Way, Weight
from ckptdoctor.rules.when import noticed
from ckptdoctor.values.damage import Integrity

# formats whose truncation has a rule of its own
_OWN_RULE = (truncated_zip.FORMAT, truncated_legacy.FORMAT, truncated_safetensors.FORMAT)
_HOSTILE = "Do not load it, and do not take it from the same place again: it names functions that run commands."
_AGAIN = "Download or copy it again and compare the sizes."

MESSAGES = (
    Message(
        ("data is not within the file bounds",),
        "the GGUF file is cut short: its list of tensors goes on behind its end. No command brings the rest back:"
        " download it again",
        (Way("see how long it is", "ls -l FILE"),),
    ),
    Message(
        ("Unable to load weights from pytorch checkpoint file", "Unable to load weights from checkpoint file"),
        "transformers could not read the weights file: it is damaged, cut short or no weights at all, as after a"
        " download that broke off. That it might be TensorFlow's is only its guess",
        (CHECK, Way("then", "download it again")),
        weight=Weight.OUTCOME,
        also=("F001", "F002", "F004", "F005", "F014"),
    ),
)
SICK = (
    Example(
        "an unknown opcode",
        {"epoch": 42, "w": T((3,))},
        "torch legacy",
        damage=lambda data: data.replace(b"K\x2a", b"\xff\x2a"),
    ),
)
HEALTHY = (Example("every opcode known", {"epoch": 42, "w": T((3,))}, "torch legacy"),)


@rule("F014", "damaged-contents", Severity.ERROR, when=noticed)
def damaged_contents(subject: Noted) -> Iterator[Problem]:
    """Report a pickle or an archive that makes no sense."""
    kinds = [NoteKind.PICKLE_DAMAGED, NoteKind.ZIP_DAMAGED]
    in_folder = isinstance(subject, Checkpoint) and os.path.isdir(subject.path)
    if format_of(subject) not in _OWN_RULE and not in_folder:
        kinds.append(NoteKind.TRUNCATED)
    asides = () if isinstance(subject, Integrity) else subject.asides
    named = before_the_break(asides)
    before = f"; before that it names {listed_names(named)}" if named else ""
    hostile = dangerous([name for aside in asides for name in aside.names])
    yield from problems(
        [replace(note, message=f"{note.message.rstrip('.')}{before}") for note in notes_of(subject, *kinds)],
        otherwise="the contents are damaged",
        cause="Bytes were lost or changed, or the file was edited by something that does not know the format.",
        advice=_HOSTILE if hostile else "Take the file from another copy, or use the checkpoint saved before it.",
    )
    if isinstance(subject, Checkpoint) and in_folder:
        yield from _cut_off(subject)


def _cut_off(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Yield files of a folder that end before their tensors do."""
    notes = notes_of(checkpoint, NoteKind.TRUNCATED)
    torn = _torn_by_file(checkpoint, {note.member: None for note in notes if note.member}) if notes else {}
    yield from problems(
        [replace(note, keys=torn.get(note.member or "", ())) for note in notes],
        otherwise="a file ends before its tensors do",
        cause="An interrupted download or copy, or a full disk.",
        advice=lambda note: f"{_AGAIN} {salvage_advice(checkpoint, note.member or '')}",
    )


def _torn_by_file(checkpoint: Checkpoint, files: Collection[str]) -> dict[str, tuple[KeyPath, ...]]:
    """Return the tensors of which bytes are missing, by which of these files of the folder they should lie in."""
    torn: dict[str, dict[KeyPath, None]] = {file: {} for file in files}
    for tensor in leaves(checkpoint.tensors):
        storage = tensor.storage
        if storage is None or not _is_torn(storage):
            continue
        file = next((each for each in files if storage.key.startswith(f"{each}/")), None)
        if file is not None:
            torn[file][tensor.path] = None
    return {file: tuple(paths) for file, paths in torn.items()}


def _is_torn(storage: Storage) -> bool:
    there = 0 if storage.extent is None else storage.extent.length
    return there < storage.nbytes and not (storage.compressed and there)


def before_the_break(asides: Iterable[Aside]) -> list[str]:
    """Return the names that torch refuses, of pickles that break off: an unpickler comes to them first."""
    broken = [name for aside in asides if aside.lying is Lying.BROKEN for name in aside.names]
    found = [modern(each.module, each.name) for each in broken]
    return list(dict.fromkeys([f"{module}.{name}" for module, name in found if not is_allowed(module, name)]))
