"""The bytes of a record do not match its checksum: they are not the ones that were saved.

Meaning
    A torch archive keeps a CRC-32 of every record. For this one the bytes in the file give a different value: bad
    memory or disk, a network file system, a download joined from wrong parts, or an editor that changed bytes in place.

Why it matters
    ``torch.load`` never checks the checksums. It silently loads the damaged weights.

Symptoms
    Nothing: training or inference just gets worse, or NaN.

Detection
    ``check --deep`` reads every byte. Where all checksums are 0 they were never computed
    (``torch.serialization.set_crc32_options(False)``): then damage cannot be detected, which is reported as info.

Repair
    Where ``ckptdoctor seal --parity`` kept parity that is enough, ``ckptdoctor rebuild FILE`` makes the file again as
    it was sealed, and the finding names that command, as those about other lost bytes do. Otherwise ``ckptdoctor graft
    FILE --from OTHER`` takes the damaged tensors from another copy, and the checksum proves whether they are what was
    saved. From this file alone only a single flipped bit can be healed: ``ckptdoctor graft FILE`` flips it back where
    the checksum of a small tensor, a seal or a published SHA-256 leaves no doubt. Otherwise download the file again;
    ``ckptdoctor salvage FILE`` recovers all the others. Of what is only read, such as a distributed checkpoint,
    ``ckptdoctor fix FILE --drop KEY -o model.pt`` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import NoteKind, show_path
from ckptdoctor.checkpoint.sharing import paths_on
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.noticed import Noted, notes_of, problems
from ckptdoctor.rules.kit.recovering import salvaged, without
from ckptdoctor.rules.when import noticed
from ckptdoctor.values.damage import Integrity

_ONE = b"\x00\x00\x80\x3f"  # 1.0 in float32
SICK = (
    Example(
        "one flipped bit",
        {"w": T((100,), value=1.0)},
        damage=lambda data: data.replace(_ONE, b"\x00\x00\x80\xbf", 1),
        deep=True,
    ),
)
HEALTHY = (Example("every bit as it was saved", {"w": T((100,), value=1.0)}, deep=True),)


@rule("F009", "crc-mismatch", Severity.ERROR, when=noticed)
def crc_mismatch(subject: Noted) -> Iterator[Problem]:
    """Report bytes that do not fit their checksum."""
    if isinstance(subject, Integrity):
        yield from _damaged(subject)
        return
    yield from problems(
        notes_of(subject, NoteKind.CRC_MISMATCH),
        otherwise="the bytes of a record do not match its checksum",
        cause="They are not the bytes that were saved. torch.load never checks checksums and loads them.",
        advice="Use another copy of the file, or download it again.",
    )
    yield from problems(
        notes_of(subject, NoteKind.CRC_NOT_COMPUTED),
        otherwise="no checksums were computed, so damage cannot be detected",
        cause="Saved after torch.serialization.set_crc32_options(False), or by a writer that omits checksums.",
        severity=Severity.INFO,
    )


def _damaged(integrity: Integrity) -> Iterator[Problem]:
    # storages with holes are F010's: it says what happened to them
    damaged = [each.storage for each in integrity.damage if each.computed is not None and not each.holes]
    if not damaged:
        return
    keys = paths_on(integrity.checkpoint, damaged)
    extent = damaged[0].extent
    others = len(keys) < len(integrity.checkpoint.tensors)
    path = salvaged(integrity.checkpoint, damaged)
    if path is not None:
        advice = f"ckptdoctor graft {path} --from OTHER takes these tensors from another copy. Without one, download "
        advice += "the file again" + (", or recover all the others:" if others else ".")
        commands: tuple[str, ...] = (f"ckptdoctor salvage {path}",) if others else ()
    else:
        rest = without(integrity.checkpoint, keys)
        advice = "Use another copy of it." + (" Without one, write all the others into a file:" if rest else "")
        commands = (rest,) if rest else ()
    first = wording.the_first(show_path(keys[0]), len(keys)) if keys else ""
    yield Problem(
        message=(
            f"the bytes of {wording.plural(len(damaged), 'storage')} do not match the checksum, so "
            f"{wording.plural(len(keys), 'tensor has', 'tensors have')} other values than were saved{first}"
        ),
        cause=(
            "The bytes changed after they were saved: bad memory or disk, or a badly joined download. "
            "torch.load never checks checksums and loads them."
        ),
        advice=advice,
        commands=commands,
        keys=keys,
        location=Location(offset=extent.offset, length=extent.length) if extent is not None else Location(),
    )
