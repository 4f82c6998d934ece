"""The config or the model has one tensor where the file has two that differ, such as a head and its embedding.

Meaning
    The weights were trained, merged or resized separately, and ``config.json`` still has ``tie_word_embeddings: true``;
    or the model that is given as the target has one parameter under both names.

Why it matters
    A loader that ties them silently discards one of the two; one that does not keeps both. The same file gives
    different results in different programs.

Symptoms
    Nothing, or results that are worse than they were in training.

Detection
    ``tie_word_embeddings`` is true in the ``config.json`` next to the file, both matrices exist with the same shape and
    dtype, and the archive's checksums of their bytes differ. Where a container keeps none (safetensors), ``check
    --deep`` compares the bytes. With a target that shows which names are one tensor (a module, or a torch file with the
    same view of one storage), its names are compared in the same way.

Repair
    None in the file: the finding gives the line of ``config.json`` to change, if you want both. A model needs a tensor
    for each before it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath
from ckptdoctor.facts.names import TiedPair, tied_pairs
from ckptdoctor.facts.siblings import says_tied
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.ties import pairs_of_target
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
    Example(
        "two matrices for a model that has one", {"encoder.weight": T((4, 4)), "decoder.weight": T((4, 4), value=2.0)},
        like={"encoder.weight": T((4, 4), storage="one"), "decoder.weight": T((4, 4), storage="one")},
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
def tied_but_diverged(subject: Checkpoint | Comparison | Integrity) -> Iterator[Problem]:
    """Report tensors that differ where the config or the target has one tensor for both."""
    checkpoint = subject if isinstance(subject, Checkpoint) else subject.checkpoint
    pairs = list(subject.twins if isinstance(subject, Integrity) else tied_pairs(checkpoint))
    if isinstance(subject, Comparison):
        pairs += pairs_of_target(subject)
    seen: set[frozenset[KeyPath]] = set()
    for pair in pairs:
        both = frozenset((pair.head.path, pair.embedding.path))
        if pair.same is False and both not in seen and (pair.target or says_tied(checkpoint)):
            seen.add(both)
            yield _problem(pair)


def _problem(pair: TiedPair) -> Problem:
    ties = "config.json ties them" if not pair.target else f"{pair.target} has one tensor for both"
    where = wording.of_place(pair.head.path[:-1])
    return Problem(
        message=f'"{pair.head.key}" and "{pair.embedding.key}"{where} differ, but {ties}',
        cause="A loader that ties them silently discards one of the two."
        if not pair.target
        else "The model silently keeps only the one that is copied last.",
        advice='To keep both, write "tie_word_embeddings": false into config.json.'
        if not pair.target
        else "To keep both, give the model a parameter of its own for each name before it loads them.",
        keys=(pair.head.path, pair.embedding.path),
        location=Location(path=pair.head.path),
    )
