"""The rules about quantised weights share what is said of a file alone, and where the other side is plain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.edits import Fix
from ckptdoctor.facts.quantization import BY_RULE, Layer, quantized_in
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.quantized import unfit
from ckptdoctor.noun import noun
from ckptdoctor.rules.framework import Problem
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.shaping import key_places
from ckptdoctor.rules.quantization.config import config_lacks_it

_KINDS = 3  # of layers that a sentence names before it only counts them


@noun
class Words:
    """What one rule says. ``one`` describes a layer; ``config`` is the quantization_config that is missing, if told."""

    code: str
    cause: str
    opens: str
    one: Callable[[Layer], str]
    config: Callable[[Sequence[Layer]], str] = lambda layers: ""
    fix: Callable[[Comparison, Sequence[Layer], Sequence[str]], tuple[Fix | None, str]] = lambda *given: (None, "")


def quantized_problems(subject: Checkpoint | Comparison, words: Words) -> Iterator[Problem]:
    """Yield what is to be said of the quantised layers of one family."""
    if isinstance(subject, Comparison):
        yield from _compared(subject, words)
        return
    for state_dict in weights_among(subject.state_dicts):
        layers = quantized_in(state_dict).of(words.code)
        if layers:
            yield _alone(subject, state_dict, layers, words)


def _alone(checkpoint: Checkpoint, state_dict: StateDict, layers: Sequence[Layer], words: Words) -> Problem:
    """Report on a file by itself: nothing is wrong with it, unless its config does not say what it is."""
    config = config_lacks_it(checkpoint) if not state_dict.path else ""
    added = words.config(layers) if config else ""
    lacking = (
        f" {config} does not mention this, so loaders take the packed numbers for weights: write "
        f'"quantization_config": {added} into it.'
        if added
        else ""
    )
    return Problem(
        message=f"{_counted(layers, words)}{wording.in_place(state_dict.path)}",
        cause=words.cause,
        advice=f"{words.opens}{lacking}",
        keys=tuple([(*state_dict.path, key) for layer in layers for key in layer.keys]),
        location=Location(path=state_dict.path),
        severity=Severity.WARNING if lacking else Severity.INFO,
    )


def _compared(comparison: Comparison, words: Words) -> Iterator[Problem]:
    found = unfit(comparison)
    codes = BY_RULE[words.code]
    here = [layer for layer in found.here if layer.scheme in codes]
    there = [layer for layer in found.there if layer.scheme in codes]
    if here:
        others = found.others if words.code == "Q956" else ()
        yield _quantized_here(comparison, here, others, words)
    if there:
        yield _quantized_there(comparison, there, words)


def _quantized_here(comparison: Comparison, layers: list[Layer], others: tuple[str, ...], words: Words) -> Problem:
    renamed, source = comparison.renamed, comparison.reference.source
    loose, missing = set(renamed.unexpected), set(renamed.missing)
    unexpected = [*[key for layer in layers for key in layer.keys if key in loose], *others]
    absent = [layer.key for layer in layers if layer.key in missing]
    apart = set(renamed.mismatched)
    odd = [layer.key for layer in layers if layer.key in apart]
    sizes = [
        wording.mismatch_line(key, renamed.here[key].shape, comparison.reference.tensors[key].shape) for key in odd
    ]
    fix, advice = words.fix(comparison, layers, others)
    return Problem(
        message=f"{_counted(layers, words)}{wording.in_place(comparison.path)}, and plain in {source}",
        cause=f"{words.cause} With strict=False the packed numbers load silently where their shapes allow it, and "
        "the model computes garbage.",
        torch_says=(
            *((wording.missing_line(absent),) if absent else ()),
            wording.unexpected_line(unexpected),
            *sizes[:1],
        ),
        advice=" ".join(filter(None, (advice, words.opens))),
        keys=key_places(comparison, [*[key for layer in layers for key in layer.keys], *others]),
        location=Location(path=comparison.path),
        fix=fix,
        severity=Severity.ERROR,
    )


def _quantized_there(comparison: Comparison, layers: list[Layer], words: Words) -> Problem:
    missing, loose = set(comparison.renamed.missing), set(comparison.renamed.unexpected)
    absent = [key for layer in layers for key in layer.keys if key in missing]
    unexpected = [layer.key for layer in layers if layer.key in loose]
    return Problem(
        message=f"{_counted(layers, words)} in {comparison.reference.source}, and plain"
        f"{wording.in_place(comparison.path) or ' here'}",
        cause="The target was built for quantised weights, and these are plain: only the library that quantises "
        "can convert them.",
        torch_says=(
            wording.missing_line(absent),
            *((wording.unexpected_line(unexpected),) if unexpected else ()),
        ),
        advice="Load the plain weights into the plain model and let the library quantise it, or build the model "
        "without a quantization_config.",
        keys=key_places(comparison, [layer.key for layer in layers]),
        location=Location(path=comparison.path),
        severity=Severity.ERROR,
    )


def _counted(layers: Sequence[Layer], words: Words) -> str:
    """Return ``224 layers are GPTQ, 4 bits, groups of 128``; several kinds each with its number."""
    kinds = Counter([words.one(layer) for layer in layers])
    if len(kinds) == 1:
        verb = "is" if len(layers) == 1 else "are"
        return f"{wording.plural(len(layers), 'layer')} {verb} {next(iter(kinds))}"
    shown = [f"{number:,} {kind}" for kind, number in kinds.most_common(_KINDS)]
    more = len(kinds) - _KINDS
    rest = [f"{more} more kinds"] if more > 0 else []
    return f"{wording.plural(len(layers), 'layer')} are quantised: {wording.listed([*shown, *rest])}"
