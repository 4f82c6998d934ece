"""The index looks for tensors in files that do not have them.

Meaning
    The index names the wrong shard for some tensor, or a tensor that is in none of them; or it cannot be read at all.
    Or, next to a ``config.json``, there is no index, or it has no ``metadata``: ``from_pretrained`` requires both.

Why it matters
    Loaders that use the index fail on that tensor, or leave it at its initial values.

Symptoms
    KeyError: 'b.bias'
    File does not contain tensor b.bias
    Error no file named model.safetensors, or pytorch_model.bin, found in directory
    KeyError: 'metadata'

Detection
    The header of each shard is compared with the index.

Repair
    ``ckptdoctor fix FOLDER --select X804`` rewrites the index from the headers of the shards, as a file next to the old
    one; with ``--force`` it replaces the old one, which is kept with ``.bak`` appended to its name. Download tensors
    that are in none of the shards first.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, notes_of, problems
from ckptdoctor.rules.kit.sharded_samples import INDEX, ONE, TWO, index_file, shard
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.sharding.index_repair import new_index
from ckptdoctor.rules.when import noticed

_FIRST, _SECOND = shard(1), shard(2)

_NO_METADATA = "has no metadata"  # the reader's words (formats.folders.weights)
MESSAGES = (
    Message(
        ("File does not contain tensor", "file does not contain tensor"),
        "the file lacks {key}, which an index or the program looks for in it",
        (Way("see what it has", "ckptdoctor show FILE"),),
        then=r"[`'\"]?(?P<key>[\w.]{1,300})",
        also=("X803", "R001"),
    ),
)
SICK = (
    Example(
        "a tensor in another shard",
        files={INDEX: index_file(b_bias=_FIRST), _FIRST: ONE, _SECOND: TWO},
    ),
    Example(
        "a tensor in no shard",
        files={INDEX: index_file(c_bias=_FIRST), _FIRST: ONE, _SECOND: TWO},
    ),
    Example("an index that is not one", files={INDEX: b"{", _FIRST: ONE, _SECOND: TWO}),
    Example("a model's shards without an index", files={"config.json": b"{}", _FIRST: ONE, _SECOND: TWO}),
    Example(
        "an index without metadata",
        files={
            "config.json": b"{}",
            INDEX: {"weight_map": index_file()["weight_map"]},
            _FIRST: ONE,
            _SECOND: TWO,
        },
    ),
)
HEALTHY = (
    Example("shards that no model's config is next to", files={_FIRST: ONE, _SECOND: TWO}),
    Example("shards that only their own program loads", files={"config.json": b"{}", "x-00001-of-00001.pt": ONE}),
    Example("an index that fits", files={INDEX: index_file(), _FIRST: ONE, _SECOND: TWO}),
)


@rule("X804", "index-tensor-missing", Severity.ERROR, when=noticed)
def index_tensor_missing(subject: Noted) -> Iterator[Problem]:
    """Report tensors that are not where the index says."""
    yield from problems(
        notes_of(subject, NoteKind.INDEX_WRONG),
        otherwise="the index does not match the shards",
        cause="The shards or the index were edited or written by hand. Loaders that use the index do not find them.",
        fix=new_index(subject, "X804"),
    )
    for note in notes_of(subject, NoteKind.INDEX_UNUSABLE):
        yield from problems(
            [note],
            otherwise="there is no index that from_pretrained can use",
            cause="The index was left out when the shards were copied, or another program wrote it. Programs that go "
            "by the names of the shards do not need it.",
            torch_says=("KeyError: 'metadata'" if _NO_METADATA in note.message else "Error no file named",),
            fix=new_index(subject, "X804"),
        )
    yield from problems(
        notes_of(subject, NoteKind.INDEX_LACKS),
        otherwise="the index names a tensor that is in none of the files",
        cause="A shard was rewritten without it, or does not belong to this index.",
        advice="Download the shards again: the values are not here.",
    )
