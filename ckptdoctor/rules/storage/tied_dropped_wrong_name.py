"""The output layer is in the file, but the input embedding, which is the same matrix, is not.

Meaning
    Language models often have one matrix as both ``lm_head.weight`` and ``model.embed_tokens.weight``.
    ``safetensors.torch.save_model`` keeps one name of such a tensor: the first in alphabetical order, which is that of
    the head.

Why it matters
    The file is complete only for programs that know that the two are one. transformers 4 initialises the missing
    embedding with random numbers, ties the head to it, and generates garbage; ``load_state_dict`` fails.

Symptoms
    Missing key(s) in state_dict: "model.embed_tokens.weight". Some weights of the model checkpoint were newly
    initialized: ['model.embed_tokens.weight'] Or nothing, and meaningless text.

Detection
    A head with the shape of a vocabulary is next to complete layers of a known family, in a file that is not a shard,
    and no tensor has its shape or a name like that of an embedding. A warning where the file's metadata or
    ``tie_word_embeddings`` in the ``config.json`` next to it shows that the two are one; otherwise only info, since the
    embedding may have been left out on purpose.

Repair
    If it is certain, ``ckptdoctor fix FILE --select A702`` adds the name of the embedding: as a second view of the same
    bytes in torch files, as a copy in safetensors. Safe: nothing else changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, NoteKind, StateDict, Tensor
from ckptdoctor.edits import Fix, Safety, Tie
from ckptdoctor.facts.names import heads, weights_of_models
from ckptdoctor.facts.siblings import is_shard, says_tied
from ckptdoctor.findings import Location, Severity
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import CHECK, Message, Way
from ckptdoctor.rules.when import language_head

_HEAD = "lm_head.weight"
# where the first layer lies beside such a head, and what the embedding is called: Llama and most others, GPT-2, OPT
_FAMILIES = (
    ("model.layers.0.", "model.embed_tokens.weight"),
    ("transformer.h.0.", "transformer.wte.weight"),
    ("model.decoder.layers.0.", "model.decoder.embed_tokens.weight"),
)
_LIKE_AN_EMBEDDING = regex(r"emb|wte|tok|vocab", re.IGNORECASE)
_IN_PIECES = frozenset({NoteKind.FILE_MISSING, NoteKind.FILE_DAMAGED, NoteKind.INDEX_LACKS})

_LAYER: dict[str, object] = {
    "model.layers.0.self_attn.q_proj.weight": T((8, 8)),
    "model.layers.0.input_layernorm.weight": T((8,)),
    "model.norm.weight": T((8,)),
}
_HEADED: dict[str, object] = {"lm_head.weight": T((32, 8)), **_LAYER}
_TIED = {"config.json": b'{"tie_word_embeddings": true}'}
ALSO = ("R005",)
MESSAGES = (
    Message(
        ("This checkpoint seem corrupted. The tied weights mapping",),
        "neither of two tied weights is in the checkpoint ({source} and {target}): both were left out when "
        "it was saved. No command recovers them",
        (CHECK,),
        then=r"forthismodelspecifiestotie(?P<source>[\w.]{1,200}?)to(?P<target>[\w.]{1,200}?),but",
        also=("R001",),
    ),
)
SICK = (
    Example(
        "a tied model as save_model writes it", _HEADED, "safetensors", ".safetensors",
        metadata={"format": "pt", "model.embed_tokens.weight": "lm_head.weight"},
    ),
    Example(
        "a config that ties them", _HEADED, "safetensors", ".safetensors", metadata={"format": "pt"},
        name="model.safetensors", beside=_TIED,
    ),
    Example("the same in a torch file's", _HEADED, name="pytorch_model.bin", beside=_TIED),
    Example("without any sign that they are one", {"state_dict": _HEADED}),
)  # fmt: skip
HEALTHY = (
    Example("both", {**_HEADED, "model.embed_tokens.weight": T((32, 8))}),
    Example("only the embedding", {"model.embed_tokens.weight": T((32, 8)), **_LAYER}),
    Example("a shard", _HEADED, name="pytorch_model-00002-of-00002.bin"),
    Example("an embedding under another name", {**_HEADED, "model.tok_embeddings.weight": T((32, 8))}),
    Example("a speech recogniser", {"lm_head.weight": T((32, 8)), "wav2vec2.encoder.layers.0.norm.weight": T((8,))}),
    Example(
        "an adapter", {"lm_head.weight": T((32, 8)), "model.layers.0.self_attn.q_proj.lora_A.weight": T((4, 8))}
    ),
    Example(
        "a config that does not tie them", _HEADED, name="pytorch_model.bin",
        beside={"config.json": b'{"tie_word_embeddings": false}'},
    ),
)  # fmt: skip


@rule("A702", "tied-dropped-wrong-name", Severity.WARNING, when=language_head)
def tied_dropped_wrong_name(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report heads whose embedding is missing."""
    for orphan in _orphans(checkpoint):
        yield _problem(orphan)


@noun
class _Orphan:
    """A head without its embedding: what that would be called, and what says that the two are one ("": nothing)."""

    head: Tensor
    missing: str
    proof: str


def _orphans(checkpoint: Checkpoint) -> Iterator[_Orphan]:
    """Yield heads whose embedding is missing in a model that is all there otherwise."""
    if is_shard(checkpoint.path) or any(note.kind in _IN_PIECES for note in checkpoint.notes):
        return
    for state_dict in weights_of_models(checkpoint):
        for head in heads(state_dict):
            missing = _missing_beside(state_dict, head) if head.key.endswith(_HEAD) else ""
            proof = _proof(checkpoint, state_dict, head, missing) if missing else None
            if proof is not None:
                yield _Orphan(head, missing, proof)


def _missing_beside(state_dict: StateDict, head: Tensor) -> str:
    """Return the name of the embedding that ought to be there, or "" where one may be there under whatever name."""
    prefix = head.key[: -len(_HEAD)]
    keys = state_dict.keys
    family = next((each for each in _FAMILIES if any(key.startswith(prefix + each[0]) for key in keys)), None)
    if family is None:
        return ""
    layer = prefix + family[0]
    whole = False
    for tensor in state_dict.tensors:
        if tensor is not head and len(tensor.shape) == 2:
            if tensor.shape == head.shape or _LIKE_AN_EMBEDDING.search(tensor.key):
                return ""
        elif tensor.key.startswith(layer) and tensor.shape == head.shape[1:]:  # its norm: an adapter has none
            whole = True
    return prefix + family[1] if whole else ""


def _proof(checkpoint: Checkpoint, state_dict: StateDict, head: Tensor, missing: str) -> str | None:
    """Return what says that the two are one, or "" where nothing does, None where something says the contrary."""
    if not state_dict.path and (checkpoint.metadata or {}).get(missing) == head.key:
        return "the file's metadata"
    tied = says_tied(checkpoint)
    if tied is False:
        return None
    return "config.json" if tied else ""


def _problem(orphan: _Orphan) -> Problem:
    head, place = orphan.head, orphan.head.path[:-1]
    edits = (Tie(head.path, orphan.missing),)
    title = f"add {orphan.missing}, which is {head.key}"
    return Problem(
        message=f'"{head.key}" is here, but "{orphan.missing}"{wording.of_place(place)} is not',
        cause=(
            f"They are one matrix, according to {orphan.proof}, and the file has the wrong name for it: "
            "transformers 4 treats the embedding as new, and fills it with random numbers."
            if orphan.proof
            else "If the two are one matrix, the file has the wrong name for it; otherwise the embedding was left out."
        ),
        torch_says=(wording.missing_line([orphan.missing]),),
        advice="" if orphan.proof else "Check it with --config or --model, which shows whether they are tied.",
        keys=(head.path,),
        location=Location(path=head.path),
        severity=Severity.WARNING if orphan.proof else Severity.INFO,
        fix=Fix(title, edits, Safety.SAFE, "--select A702") if orphan.proof else None,
    )


# what language models call the table of their tokens
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight")


@judges(Turn.TIE)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Nothing but input embeddings is missing, and nothing is unexpected."""
    if rest.error.unexpected or not rest.missing or not all(key.endswith(_EMBEDDINGS) for key in rest.missing):
        return
    meaning = (
        "the file lacks the input embeddings, most likely because they are tied to lm_head and only that "
        "name was saved: the loader may silently fill them with random values"
    )
    add = f'model.load_state_dict({{**weights, {rest.missing[0]!r}: weights["lm_head.weight"]}})'
    ways = (Way("if the two are tied, load it with", add),)
    yield Cause(meaning, Repair.BY_HAND, ways, missing=rest.missing)
