"""The output layer and the input embedding are in the file twice, with the same values.

Meaning
    The model has one matrix for both, or began with one; the file holds its bytes twice.

Why it matters
    Nothing is wrong with the values. The file is larger by a whole vocabulary, and a model with only one of the two
    names rejects the other.

Symptoms
    Unexpected key(s) in state_dict: "lm_head.weight".
    ValueError: Received 1 parameters not in model: lm_head.weight.

Detection
    The two have the same shape and dtype, and the archive's checksums of their bytes are equal. Where a container keeps
    no checksums (safetensors), ``check --deep`` compares the bytes. If a ``config.json`` next to it unties the two,
    nothing is reported.

Repair
    ``ckptdoctor fix FILE --select A703 --unsafe-fixes`` makes the head a second view of the embedding's bytes, as
    ``torch.save`` keeps tied weights; it moves behind the embedding. All bytes are compared first. No value changes,
    but changing one of the loaded tensors in place then changes the other, so it must be requested. ``ckptdoctor fix
    FILE --tie`` does it for all weights with the same bytes, and in safetensors as well: there the head is removed, and
    the file's metadata records that it is the embedding. ``--clone-shared`` undoes it in torch files. If the target
    does not have the head at all, leave it out with ``--drop``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.edits import Drop, Fix, Safety, Tie
from ckptdoctor.facts.names import TiedPair, tied_pairs
from ckptdoctor.facts.siblings import says_tied
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import language_head
from ckptdoctor.values.damage import Integrity

_BODY: dict[str, object] = {"model.embed_tokens.weight": T((32, 8)), "model.norm.weight": T((8,))}
SICK = (
    Example("the same numbers twice", {**_BODY, "lm_head.weight": T((32, 8))}),
    Example("deeper in the file", {"epoch": 3, "model": {**_BODY, "lm_head.weight": T((32, 8))}}),
    Example(
        "without checksums", {**_BODY, "lm_head.weight": T((32, 8))}, "safetensors", ".safetensors",
        metadata={"format": "pt"}, deep=True,
    ),
)  # fmt: skip
HEALTHY = (
    Example("other numbers", {**_BODY, "lm_head.weight": T((32, 8), value=2.0)}),
    Example(
        "one matrix under two names",
        {"model.embed_tokens.weight": T((32, 8), storage="e"), "lm_head.weight": T((32, 8), storage="e")},
    ),
    Example("no checksums to compare", {**_BODY, "lm_head.weight": T((32, 8))}, "safetensors", ".safetensors"),
    Example(
        "a config that does not tie them", {**_BODY, "lm_head.weight": T((32, 8))}, name="pytorch_model.bin",
        beside={"config.json": b'{"tie_word_embeddings": false}'},
    ),
)  # fmt: skip


@rule("A703", "tied-redundant", Severity.INFO, when=language_head)
def tied_redundant(subject: Checkpoint | Integrity) -> Iterator[Problem]:
    """Report heads with the bytes of their embedding."""
    checkpoint = subject.checkpoint if isinstance(subject, Integrity) else subject
    same = "the same bytes" if isinstance(subject, Integrity) else "equal checksums"
    for pair in subject.twins if isinstance(subject, Integrity) else tied_pairs(subject):
        if pair.same and not pair.target and says_tied(checkpoint) is not False:
            yield _problem(checkpoint, pair, same)


def _problem(checkpoint: Checkpoint, pair: TiedPair, same: str) -> Problem:
    head, embedding = pair.head, pair.embedding
    return Problem(
        message=f'"{head.key}" and "{embedding.key}"{wording.of_place(head.path[:-1])} have {same}: '
        f"{wording.size_words(head.nbytes)} are in the file twice",
        cause="They are one matrix, or were when training began; torch.save stores tied weights once.",
        advice="fix --tie keeps the bytes once:",
        commands=("ckptdoctor fix FILE --tie",),
        keys=(head.path, embedding.path),
        location=Location(path=head.path),
        fix=_fix(pair) if checkpoint.format == "torch zip" else None,
    )


def _fix(pair: TiedPair) -> Fix:
    title = f"make {pair.head.key} a second view of {pair.embedding.key}"
    edits = (Drop((pair.head.path,)), Tie(pair.embedding.path, pair.head.key))
    return Fix(title, edits, Safety.UNSAFE, "--select A703")
