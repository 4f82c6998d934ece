"""The contents cannot be read: the pickle or the archive around it is damaged.

Meaning
    The file is recognised, but its contents break off or are invalid at some byte: a record of the archive is outside
    the file or overlaps another one, or the pickle uses an object that it never made.

Why it matters
    torch refuses the file or, worse, reads something else. Contents that could not be read are never called healthy.

Symptoms
    PytorchStreamReader failed reading zip archive: …
    Weights only load failed. … Unsupported operand 255
    pickle data was truncated

Detection
    The reader follows every header and every opcode, and checks each length before it relies on it.

Repair
    None without loss: use another copy of the file. The byte offset in the report shows where the damage begins. If
    headers between the tensors of a ``.pt`` file are damaged, ``ckptdoctor salvage FILE`` recovers every tensor whose
    checksum is right. If a shard was cut off, ``ckptdoctor salvage FOLDER`` recovers the tensors before the cut and
    everything in the other shards.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator

from ckptdoctor.checkpoint import Aside, Checkpoint, Container, KeyPath, Lying, Note, NoteKind, Storage
from ckptdoctor.checkpoint.sharing import pieces
from ckptdoctor.facts.globals import dangerous, is_allowed, modern
from ckptdoctor.facts.reader_notes import is_salvaged_whole, salvage_advice
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
_HOSTILE = "Do not load it, and do not download it from the same place again: it names functions that run commands."
_AGAIN = "Download or copy it again and compare the sizes."

MESSAGES = (
    Message(
        ("data is not within the file bounds",),
        "the GGUF file is cut short: its list of tensors continues past its end. No command recovers the "
        "rest: download it again",
        (Way("see how long it is", "ls -l FILE"),),
    ),
    Message(
        ("Unable to load weights from pytorch checkpoint file", "Unable to load weights from checkpoint file"),
        "transformers could not read the weights file: it is damaged, cut short or does not hold weights, as "
        "after an interrupted download. That it might be a TensorFlow file is only a guess",
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
HEALTHY = (Example("only known opcodes", {"epoch": 42, "w": T((3,))}, "torch legacy"),)


@rule("F014", "damaged-contents", Severity.ERROR, when=noticed)
def damaged_contents(subject: Noted) -> Iterator[Problem]:
    """Report a pickle or an archive that is invalid."""
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
        cause="Bytes were lost or changed, or the file was edited by a program that does not know the format.",
        advice=_HOSTILE if hostile else lambda note: _advice(subject, note),
    )
    if isinstance(subject, Checkpoint) and in_folder:
        yield from _cut_off(subject)


def _advice(subject: Noted, note: Note) -> str:
    """Return what to do: of an archive whose list can be read, tensors between damaged headers can be recovered."""
    listed = isinstance(subject, Container) and subject.readable and subject.format == "torch zip"
    shards = isinstance(subject, Checkpoint) and is_salvaged_whole(subject)
    if note.kind is NoteKind.ZIP_DAMAGED and (listed or shards):
        return "Use another copy of the file, or recover every tensor whose checksum is right: ckptdoctor salvage FILE"
    return "Use another copy of the file, or the checkpoint saved before it."


def _cut_off(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Yield files of a folder that end before their tensors do."""
    notes = notes_of(checkpoint, NoteKind.TRUNCATED)
    torn = _torn_by_file(checkpoint, {note.member: None for note in notes if note.member}) if notes else {}
    yield from problems(
        [replace(note, keys=torn.get(note.member or "", ())) for note in notes],
        otherwise="a file ends before its tensors do",
        cause="An interrupted download or copy, or a full disk.",
        advice=lambda note: f"{_AGAIN} {salvage_advice(checkpoint, note.member or '')}".rstrip(),
    )


def _torn_by_file(checkpoint: Checkpoint, files: Collection[str]) -> dict[str, tuple[KeyPath, ...]]:
    """Return the tensors with missing bytes, by the file of the folder that they should be in."""
    torn: dict[str, dict[KeyPath, None]] = {file: {} for file in files}
    for tensor in pieces(checkpoint.tensors):
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
