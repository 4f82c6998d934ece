"""Stripping ``module.`` removed other letters: from the middle of names, or from the start of keys that lack it.

Meaning
    ``key.replace("module.", "")`` was meant to strip the prefix of DataParallel, and also removed the same letters from
    the middle: ``mlp_module.layer0`` became ``mlp_layer0``. Or ``key[7:]`` was applied to keys that do not begin with
    it: ``conv1.weight`` became ``eight``.

Why it matters
    ``load_state_dict`` fails; with ``strict=False`` these layers keep their random weights.

Symptoms
    Missing key(s) in state_dict: "mlp_module.layer0.weight".
    Unexpected key(s) in state_dict: "mlp_layer0.weight".

Detection
    With a reference: its keys, with ``module.`` removed wherever it occurs, are the keys here, shape by shape; or each
    key here is one of its keys without its first few letters. Without one, only keys that are the ends of names that
    nearly every model has, cut in the middle of a word (``eight``, ``ning_mean``), or that begin with a dot.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER``: keys are renamed one to one, in ``_metadata`` and an optimizer's
    ``param_names`` as well; no value changes. Where two keys were cut to the same letters, the file has the tensor of
    only one of them: strip the original again, with ``key.removeprefix("module.")``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.facts.names import ends_of_names
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.prefixes import Cut
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.moving import moved_problems
from ckptdoctor.rules.kit.names_in_errors import cut_keys, rename_causes
from ckptdoctor.rules.messages import Way
from ckptdoctor.rules.when import cut_names

_WANTED = {"mlp_module.layer0.weight": T((4, 3)), "mlp_module.layer1.weight": T((2, 4)), "head.weight": T((5, 2))}
_HERE = {key.replace("module.", ""): value for key, value in _WANTED.items()}
_WHOLE = {"conv1.weight": T((4, 3, 1, 1)), "layers.bias": T((5,)), "classifier.weight": T((2, 5))}
SICK = (
    Example("stripped incorrectly", _HERE, like=_WANTED),
    Example("cut incorrectly", {key[7:]: value for key, value in _WHOLE.items()}, like=_WHOLE),
    Example("cut, and nothing to compare with", {"eight": T((4, 3)), "ning_mean": T((4,)), "0.weight": T((2, 4))}),
)
HEALTHY = (
    Example("the same keys", _WANTED, like=_WANTED),
    Example("another shape", {**_HERE, "mlp_layer0.weight": T((4, 9))}, like={"mlp_module.layer0.weight": T((4, 3))}),
    Example(
        "a prefix",
        {"0.weight": T((4, 3)), "1.weight": T((2, 4))},
        like={"a.0.weight": T((4, 3)), "a.1.weight": T((2, 4))},
    ),
    Example("short names of the model's own", {"w": T((4, 3)), "t": T((2, 4)), "mean": T((3,)), "var": T((3,))}),
)
_REPLACED = 'Somebody stripped "module." with key.replace(), which also removes it from the middle of names.'
_AGAIN = 'Strip the original file again: {key.removeprefix("module."): value for key, value in weights.items()}.'


@rule("N403", "mangled-by-naive-replace", Severity.ERROR, when=cut_names)
def mangled_by_naive_replace(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report one step of the chain; or keys that were cut, with a target or without."""
    if isinstance(subject, Comparison):
        if subject.cut is not None and subject.cut.back is None and subject.state_dict is not None:
            yield _fallen_together(subject, subject.state_dict, subject.cut)
        letters = subject.cut.letters if subject.cut is not None else 0
        yield from moved_problems(subject, "N403", _cause(letters) if letters else _REPLACED)
        return
    for state_dict in subject.state_dicts:
        if state_dict.role in WEIGHTS and (found := ends_of_names(state_dict.keys)):
            yield _ends(state_dict, found)


def _cause(letters: int) -> str:
    return f'Somebody stripped "module." with key[{letters}:], which also cuts keys that do not begin with it.'


def _fallen_together(comparison: Comparison, state_dict: StateDict, cut: Cut) -> Problem:
    lost = wording.plural(cut.lost, "tensor")
    return Problem(
        message=(
            f"every key is one of {comparison.reference.source} without its first {cut.letters} letters, and "
            f"several became one: {lost} {'is' if cut.lost == 1 else 'are'} lost"
        ),
        cause=_cause(cut.letters),
        advice=f"No command brings them back. {_AGAIN}",
        keys=tuple([(*state_dict.path, key) for key in state_dict.keys]),
        location=Location(path=state_dict.path),
    )


def _ends(state_dict: StateDict, found: list[str]) -> Problem:
    return Problem(
        message=f"{wording.plural(len(found), 'key')} {'looks' if len(found) == 1 else 'look'} like the end of a name"
        f" ({wording.abridged(found)})",
        cause='Most likely "module." was stripped with key[7:], which also cuts keys that do not begin with it.',
        advice=f"The model shows which: ckptdoctor check FILE --model MODULE:CLASS. {_AGAIN}",
        keys=tuple([(*state_dict.path, key) for key in found]),
        location=Location(path=state_dict.path),
        severity=Severity.WARNING,
    )


@judges(Turn.PREFIX)
def of_cut_keys(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Each unexpected key is the end of a missing one."""
    found = cut_keys(rest)
    if found is None:
        return
    made, names = found
    meaning = (
        f"key[{made.letters}:] cut the first {made.letters} letters off every key, which is right only if "
        'all keys begin with "module.": each unexpected key is what was left of a missing one'
    )
    if not made.lost:
        yield Cause(meaning, Repair.SAFE, missing=names, unexpected=rest.unexpected)
        return
    lost = len(names) - len(rest.unexpected)
    meaning += f". Several keys became one, so {lost:,} of the tensors are lost, and no command brings them back"
    save = 'weights = {key.removeprefix("module."): value for key, value in weights.items()}'
    ways = (Way("strip the original file with", save),)
    yield Cause(meaning, Repair.NONE, ways, missing=names, unexpected=rest.unexpected)


@judges(Turn.NAME, general=1)
def of_replaced_text(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Missing keys are unexpected ones, except for ``module.`` in the middle of names."""
    yield from rename_causes(rest, "N403", _REPLACED)
