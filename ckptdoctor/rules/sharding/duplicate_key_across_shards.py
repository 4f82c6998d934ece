"""Two files of the checkpoint have a tensor with the same name.

Meaning
    A file was left from an earlier save, or a merged file is among the shards that it was made from.

Why it matters
    Loaders that read every file take the last one, as transformers 5 does, others the one that the index names: which
    of the two values is used depends on the program. ``convert``, ``merge`` and ``fix -o`` refuse values that differ.

Symptoms
    Nothing: one of the two is used.

Detection
    The names in the headers of all shards, and of other files that are named like shards. Different dtypes or shapes
    are reported: then one of the files belongs to another model, or is quantised.

Repair
    None: find out which value is the right one. Move a file out of the folder only if the others have all of its
    tensors; otherwise leave the key out of the file that is wrong, with ``ckptdoctor fix SHARD --drop KEY``, and put
    the new file in its place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, NoteKind, show_path
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, notes_of, problems
from ckptdoctor.rules.kit.sharded_samples import INDEX, ONE, TWO, index_file, shard
from ckptdoctor.rules.when import noticed
from ckptdoctor.shell import quote

_FIRST, _SECOND = shard(1), shard(2)

SICK = (
    Example(
        "a tensor in both shards",
        files={INDEX: index_file(), _FIRST: ONE | {"b.bias": T((2,))}, _SECOND: TWO},
    ),
)
HEALTHY = (Example("an index that fits", files={INDEX: index_file(), _FIRST: ONE, _SECOND: TWO}),)


@rule("X806", "duplicate-key-across-shards", Severity.WARNING, when=noticed)
def duplicate_key_across_shards(subject: Noted) -> Iterator[Problem]:
    """Report a name that two files have."""
    yield from problems(
        notes_of(subject, NoteKind.KEY_IN_TWO_FILES),
        otherwise="two files have tensors with the same name",
        cause="One of them is left from an earlier save. Loaders that read every file take the last (transformers 5), "
        "others the one that the index names.",
        advice=_advice(subject),
    )


def _advice(subject: Noted) -> str:
    """Return what to do: a file goes only where others have all that is in it."""
    if not isinstance(subject, Checkpoint) or not subject.rivals:
        return "Find out which value is right, and leave the key out of the other file."
    used = {each.storage.key.rpartition("/")[0] for each in subject.tensors if each.storage is not None}
    spare = [each.file for each in subject.rivals if not any(f"{key}/".startswith(f"{each.file}/") for key in used)]
    if spare:
        return f"Other files have all tensors of {spare[0]}: if it is left over, move it out of the folder."
    first = subject.rivals[0]
    file, key = quote(os.path.join(subject.path, first.file)), quote(show_path(first.path[-1:]))
    return (
        f"Each of the files has other tensors, too, so neither may go. If the value in {first.taken} is right, leave "
        f"the other out, and put the new file in the place of the old one: ckptdoctor fix {file} --drop {key}"
    )
