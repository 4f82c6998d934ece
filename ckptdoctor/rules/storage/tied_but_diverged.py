"""The config says that output layer and input embedding are one matrix, and the file has two different ones.

What it means
    The weights were trained, merged or resized apart, and ``config.json`` still has ``tie_word_embeddings: true``.

Why it matters
    A loader that ties them throws one of the two away, without a word; one that does not keeps both. The same file
    gives different results in different programs.

What you see
    Nothing, or results that are worse than they were in training.

How it is found
    ``tie_word_embeddings`` is true in the ``config.json`` beside the file, both matrices are there with one shape and
    dtype, and the checksums that the archive keeps of their bytes differ. Where a container keeps none (safetensors),
    ``check --deep`` compares the bytes.

Repair
    None in the file: the finding gives the line of ``config.json`` to change, if both are wanted.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.names import tied_pairs
from ckptdoctor.facts.siblings import says_tied
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import language_head
from ckptdoctor.values.damage import Integrity

_BODY: dict[str, object] = {"model.embed_tokens.weight": T((32, 8)), "model.norm.weight": T((8,))}
_TIED = {"config.json": b'{"tie_word_embeddings": true}'}
_APART = {**_BODY, "lm_head.weight": T((32, 8), value=2.0)}
SICK = (
    Example("a head of its own under a config that ties it", _APART, name="pytorch_model.bin", beside=_TIED),
    Example(
        "the same in safetensors", _APART, "safetensors", ".safetensors", metadata={"format": "pt"},
        name="model.safetensors", beside=_TIED, deep=True,
    ),
)  # fmt: skip
HEALTHY = (
    Example(
        "the same numbers twice", {**_BODY, "lm_head.weight": T((32, 8))}, name="pytorch_model.bin", beside=_TIED
    ),
    Example("a head of its own", _APART),
    Example(
        "a head of its own under its config", _APART, name="pytorch_model.bin",
        beside={"config.json": b'{"tie_word_embeddings": false}'},
    ),
)  # fmt: skip


@rule("A704", "tied-but-diverged", Severity.WARNING, when=language_head)
def tied_but_diverged(subject: Checkpoint | Integrity) -> Iterator[Problem]:
    """Report heads that are not what their config says."""
    checkpoint = subject.checkpoint if isinstance(subject, Integrity) else subject
    for pair in subject.twins if isinstance(subject, Integrity) else tied_pairs(subject):
        if pair.same is False and says_tied(checkpoint):
            yield Problem(
                message=f'"{pair.head.key}" and "{pair.embedding.key}"{wording.of_place(pair.head.path[:-1])} differ, '
                "and config.json says that they are tied",
                cause="A loader that ties them throws one of the two away without a word.",
                advice='If both are wanted, write "tie_word_embeddings": false into config.json.',
                keys=(pair.head.path, pair.embedding.path),
                location=Location(path=pair.head.path),
            )
