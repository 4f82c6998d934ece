"""The config ties the output layer to the input embedding, but the file has two different matrices.

Meaning
    The weights were trained, merged or resized separately, and ``config.json`` still has ``tie_word_embeddings: true``.

Why it matters
    A loader that ties them silently discards one of the two; one that does not keeps both. The same file gives
    different results in different programs.

Symptoms
    Nothing, or results that are worse than they were in training.

Detection
    ``tie_word_embeddings`` is true in the ``config.json`` next to the file, both matrices exist with the same shape and
    dtype, and the archive's checksums of their bytes differ. Where a container keeps none (safetensors), ``check
    --deep`` compares the bytes.

Repair
    None in the file: the finding gives the line of ``config.json`` to change, if you want both.
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
    Example("a separate head under a config that ties it", _APART, name="pytorch_model.bin", beside=_TIED),
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
        "a separate head under its config", _APART, name="pytorch_model.bin",
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
                message=f'"{pair.head.key}" and "{pair.embedding.key}"{wording.of_place(pair.head.path[:-1])} '
                "differ, but config.json ties them",
                cause="A loader that ties them silently discards one of the two.",
                advice='To keep both, write "tie_word_embeddings": false into config.json.',
                keys=(pair.head.path, pair.embedding.path),
                location=Location(path=pair.head.path),
            )
