"""The checkpoint has keys that the target does not know, and no other rule explains it.

Meaning
    After every fix that the other rules propose, these keys have no counterpart in the reference: the saved model had
    layers or buffers that the target does not have, or names differently.

Why it matters
    ``load_state_dict`` fails. With ``strict=False`` these weights are silently left out.

Symptoms
    Unexpected key(s) in state_dict: "fc.weight", "fc.bias".

Detection
    The checkpoint's keys are looked up in the reference, after the proposed renames; what another rule explains (a
    loss, a counter, a buffer that the target makes itself) is not listed again. If less than half of the reference
    fits, W311 is reported instead.

Repair
    ``load_state_dict(strict=False)`` ignores them. To leave them out of a file, confirm that in a draft map:
    ``ckptdoctor fix FILE --like OTHER --write-map draft.json`` marks each of them, and ``--map draft.json`` drops those
    that you have replaced with ``null``. Unsafe, since they may exist only in this file: ``fix --auto --unsafe-fixes``
    drops them without asking, and a command that does so is printed only where they are copies of tensors that stay.
    Not offered while a key of the target is missing or has a different shape.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.edits import Fix, Safety
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.leftovers import explained
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges, some_keys
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option, choice_of
from ckptdoctor.rules.kit.dropping import drop_fix, keys_of_all
from ckptdoctor.rules.messages import CHECK, KEY_ERROR, NO_MODULE, NOT_MAPPED, SEE, Message, Way, Weight, unknown_key

_BODY = {"conv1.weight": T((4, 3, 3, 3)), "conv2.weight": T((4, 4, 3, 3)), "conv3.weight": T((4, 4, 3, 3))}
_NOT_THERE = (
    "the file has tensors called {key}, which the model that the program built does not have: the program is "
    "too old for the model, does not support it, or the names begin at another level"
)
_OF_LAYER = r"(?:[\w.]{0,300}\.)?(?:layers|blocks|block|h)\.\d{1,4}\.[\w.]{1,300}"
MESSAGES = (
    *unknown_key(_OF_LAYER, _NOT_THERE, also=("N409", "N410", "Q956"), general=3, says=(KEY_ERROR,)),
    *unknown_key(r"[\w.]{1,300}", _NOT_THERE, also=("N409", "N410", "Q956"), general=3, says=(NO_MODULE,)),
    *unknown_key(
        r"[\w.]{1,300}",
        "llama.cpp's converter does not know a tensor called {key}: it does not convert such models, or the "
        "names have a prefix",
        also=("N409", "N410"),
        general=3,
        says=(NOT_MAPPED,),
    ),
    Message(
        ("unet unexpected:", "clip unexpected:", "left over keys in unet:", "left over keys in diffusion model:"),
        "the file has keys that ComfyUI's model does not know, and leaves out",
        (CHECK,),
        then=r"\[",
        weight=Weight.OUTCOME,
    ),
    Message(
        ("does not have a parameter or a buffer named",),
        "the checkpoint has a tensor, {key}, in a layer that has none with its name: it belongs to another "
        "model, or is quantised",
        (CHECK,),
        then=r"(?P<key>[\w.]{1,200}?)\.?(?=$|[^\w.])",
        also=("Q951", "Q953", "N410"),
    ),
)
SICK = (
    Example("a head that the target lacks", {**_BODY, "fc.weight": T((2, 4)), "fc.bias": T((2,))}, like=_BODY),
    Example(
        "a second head next to the model",
        {"epoch": 1, "model": {**_BODY, "aux_head.weight": T((2,))}},
        like={"epoch": 1, "model": _BODY},
    ),
)
HEALTHY = (
    Example("the same keys", _BODY, like=_BODY),
    Example("a target with one more layer", _BODY, like={**_BODY, "fc.weight": T((2, 4)), "fc.bias": T((2,))}),
    Example("a loss, which another rule reports", {**_BODY, "criterion.weight": T((2,))}, like=_BODY),
)


@rule("R002", "unexpected-keys", Severity.ERROR)
def unexpected_keys(comparison: Comparison) -> Iterator[Problem]:
    """Report keys of the checkpoint without a counterpart."""
    renamed = comparison.renamed
    if not renamed.unexpected or comparison.uncovered:
        return
    known = explained(comparison).unexpected
    keys = tuple([key for key in renamed.unexpected if key not in known])
    if not keys:
        return
    sizes = {key: renamed.here[key].numel for key in keys}
    fix, advice, commands = _repair(comparison, keys)
    yield Problem(
        message=f"{keys_of_all(comparison, keys)} {'is' if len(keys) == 1 else 'are'} unknown to "
        f"{comparison.reference.source}",
        cause="The saved model had layers that the target does not have, or names differently: "
        f"{wording.module_groups(sizes)}.",
        torch_says=(wording.unexpected_line(keys),),
        advice=advice,
        keys=tuple([renamed.here[key].path for key in keys]),
        location=Location(path=comparison.path),
        fix=fix,
        commands=commands,
    )


def _repair(comparison: Comparison, keys: tuple[str, ...]) -> tuple[Fix | None, str, tuple[str, ...]]:
    """Return the fix that leaves the keys out, advice, and commands.

    None while the target lacks something: these may be its weights under another name. Nor where other parts of the
    file fit as well.
    """
    renamed, choice = comparison.renamed, choice_of(comparison, {comparison.renamed.here[key].key for key in keys})
    if choice is not None:
        return None, choice.advice, choice.commands
    lacking = {*renamed.missing, *renamed.mismatched} - explained(comparison).missing
    if lacking:
        advice = (
            f"They may have other names in {comparison.reference.source}: "
            f"{wording.plural(len(lacking), 'key of it has', 'keys of it have')} no weights yet, "
            "so none of these is dropped. To see what would make the file fit, or that nothing does:"
        )
        return None, advice, (f"ckptdoctor fix FILE {auto_option(comparison)}",)
    return *drop_fix(comparison, keys, Safety.UNSAFE), ()


@judges(Turn.REST, general=1)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """What nothing else explains is unexpected."""
    error, keys = rest.error, rest.unexpected
    if not keys:
        return
    if error.first_only and keys[0].startswith("module."):
        meaning = (
            f"the checkpoint has {keys[0]}, which the model does not know. torch before 0.4 names only the "
            'first such key: either all begin with "module.", because the file was saved inside '
            "DataParallel, or the model is inside it too, and has other names"
        )
        ways: tuple[Way, ...] = (Way("see which", "ckptdoctor check FILE --model MODULE:CLASS"),)
        yield Cause(meaning, Repair.NONE, ways, unexpected=keys)
    elif error.missing or error.mismatched:  # what is left over may be what is missing, under another name
        why = "; no command can know which of the model's keys they are"
        meaning = f"the checkpoint has {some_keys(keys)} that the model does not know{why}"
        yield Cause(meaning, Repair.NONE, (SEE,), unexpected=keys)
    else:
        drop = Way(
            "if the model needs none of them, leave them out", "ckptdoctor fix FILE --auto TARGET --unsafe-fixes"
        )
        meaning = f"the checkpoint has {some_keys(keys)} that the model does not know"
        yield Cause(meaning, Repair.LOSS, (SEE, drop), unexpected=keys)
