"""The target holds one tensor under several names, and the checkpoint has only one of them.

Meaning
    The language model's head is the embedding a second time (``lm_head.weight`` and ``wte.weight`` are one parameter),
    as in GPT-2, T5 or BERT. ``save_pretrained`` and ``safetensors.torch.save_model`` write such a tensor once, and a
    base model has no head at all. In reverse, a torch file has every name, and a file that save_pretrained wrote is the
    target.

Why it matters
    ``load_state_dict`` expects every name, and fails. ``from_pretrained`` ties them again and needs one; a target named
    with ``--config`` is loaded that way, and misses nothing. An additional name does no harm: the saved model has it.

Symptoms
    Missing key(s) in state_dict: "lm_head.weight".

Detection
    Only with a reference that shows which names are tied: a module (the same parameter under two names), or a torch
    file (the same view of one storage). One of the names is here in the right shape, and another is missing. With a
    target in safetensors files, a name that it lacks is looked up here: to see whether it is one tensor with a name
    that fits, by the same view of one storage, or for a head and its embedding by equal checksums.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER`` gives the tensor its other names as well: in torch files as views of the
    same storage, which is how tied weights are saved; a safetensors file holds the values once for each. Confirmed: the
    reference shows that they are one. Without it, ``model.load_state_dict(weights, strict=False)`` fills the one
    parameter under all its names. A name that only the checkpoint has is not a fault, and stays.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.edits import Fix, Safety, Tie
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.leftovers import leftovers
from ckptdoctor.match.second_names import is_one
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option
from ckptdoctor.rules.kit.renames import rename_edits
from ckptdoctor.rules.messages import Way

_BODY = {"layer.weight": T((4, 4)), "layer.bias": T((4,))}
_TIED = {"embed.weight": T((8, 4), storage="embed"), **_BODY, "head.weight": T((8, 4), storage="embed")}
ALSO = ("A703",)
SICK = (
    Example("a head that is the embedding", {"embed.weight": T((8, 4)), **_BODY}, like=_TIED),
    Example("an embedding that is the head", {"model": {**_BODY, "head.weight": T((8, 4))}}, like={"model": _TIED}),
)
HEALTHY = (
    Example("both names", _TIED, like=_TIED),
    Example("both names, untied", {"embed.weight": T((8, 4)), **_BODY, "head.weight": T((8, 4))}, like=_TIED),
    Example("neither name, which another rule reports", _BODY, like=_TIED),
)

_SHOWN = 3  # pairs of names that a sentence gives


@rule("R005", "tied-keys", Severity.ERROR)
def tied_keys(comparison: Comparison) -> Iterator[Problem]:
    """Report missing names of tensors that are here under another one, and names that only the checkpoint has."""
    if comparison.renamed.twins:
        yield _more_names(comparison)
    tied = leftovers(comparison).tied
    if not tied:
        return
    one = len(tied) == 1
    total = wording.plural(len(comparison.reference.tensors), "key")
    yield Problem(
        message=f"{len(tied):,} of {total} of {comparison.reference.source} {'is' if one else 'are'} missing, and tied "
        f"to {_named(tied)}, {'which is' if one else 'which are'} here",
        cause=(
            "The target has one tensor under both names, like a head that is tied to the embedding. "
            "save_pretrained and safetensors write it once, and a base model has no head: from_pretrained "
            "ties them, load_state_dict does not."
        ),
        torch_says=(wording.missing_line([key for key, _ in tied]),),
        advice=(
            "Or load with model.load_state_dict(weights, strict=False): both names are one parameter, which "
            "is filled under the other one. Make sure that nothing else is missing."
        ),
        keys=tuple([(*comparison.path, key) for key, _ in tied]),
        location=Location(path=comparison.path),
        fix=_fix(comparison, tied),
    )


def _more_names(comparison: Comparison) -> Problem:
    renamed, source = comparison.renamed, comparison.reference.source
    twins = tuple(renamed.twins.items())
    one = len(twins) == 1
    same = all(is_one(renamed.here[key], renamed.here[partner]) for key, partner in twins)
    what = "another name of" if one else "other names of"
    what = what if same else "a copy of" if one else "copies of"
    keys = wording.listed([key for key, _ in twins[:_SHOWN]]) if len(twins) <= _SHOWN else f"{len(twins):,} keys"
    return Problem(
        message=f"{keys} {'is' if one else 'are'} not in {source}, and {what} {_named(twins)}, "
        f"{'which is' if one else 'which are'}",
        cause="Tied weights are one tensor under several names. A safetensors file holds it under one of them, and the "
        "model gives it the others when it is loaded; torch.save writes them all.",
        advice="Nothing needs repair: the saved model has this name as well."
        if one
        else "Nothing needs repair: the saved model has these names as well.",
        keys=tuple([renamed.here[key].path for key, _ in twins]),
        location=Location(path=comparison.path),
        severity=Severity.INFO,
    )


def _fix(comparison: Comparison, tied: tuple[tuple[str, str], ...]) -> Fix | None:
    """Return the final names for all keys, and then the missing ones.

    There can be a second view of plain tensors only.
    """
    state_dict, here = comparison.state_dict, comparison.renamed.here
    if state_dict is None or not all(is_plain_tensor(here[partner]) for _, partner in tied):
        return None
    if not all(move.sure for move in comparison.moves):
        return None
    dropped = [each.drops.path for each in comparison.name_fixes if each.drops is not None]
    edits, collision = rename_edits(state_dict, comparison.final_name, dropped)
    if collision is not None:
        return None
    ties = [Tie((*state_dict.path, partner), key) for key, partner in tied]
    return Fix(f"tie {wording.plural(len(ties), 'key')}", (*edits, *ties), Safety.CONFIRMED, auto_option(comparison))


def is_plain_tensor(tensor: Tensor) -> bool:
    """Return whether it is a tensor of torch's own class with a storage of its own device."""
    odd = tensor.parts or tensor.layout != "strided" or tensor.subclass is not None or tensor.moved
    return tensor.storage is not None and not odd


def _named(tied: tuple[tuple[str, str], ...]) -> str:
    if len(tied) == 1:
        [(_, partner)] = tied
        return partner
    return wording.listed(tied, _SHOWN, say=lambda pair: f"{pair[1]} ({pair[0]})")


# what language models call the layer that gives the next token
_HEADS = ("lm_head.weight", "lm_head.decoder.weight", "predictions.decoder.weight", "embed_out.weight")


@judges(Turn.TIE)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Nothing but the head of a language model is missing, and nothing is unexpected."""
    error = rest.error
    if error.unexpected or error.warning or not rest.missing:
        return
    if all(key.endswith(_HEADS) for key in rest.missing):
        meaning = (
            "the file lacks the head of the language model: either it is tied to the input embeddings and "
            "was saved only under their name, or the file holds the bare model, and the head is not trained "
            "yet"
        )
        load = "model.load_state_dict(weights, strict=False)  # fills a tied head, and leaves any other untrained"
        ways = (Way("if the two are tied, load it with", load),)
        yield Cause(meaning, Repair.BY_HAND, ways, missing=rest.missing)
