"""Keys begin with ``module.``: saved from a model wrapped in DataParallel or DistributedDataParallel.

Meaning
    ``nn.DataParallel`` and ``nn.parallel.DistributedDataParallel`` hold the real model in an attribute called
    ``module``, so the keys of their ``state_dict()`` are ``module.conv1.weight`` instead of ``conv1.weight``.

Why it matters
    The bare model does not know these names: ``load_state_dict`` fails, or with ``strict=False`` silently loads nothing
    at all.

Symptoms
    Missing key(s) in state_dict: "conv1.weight", "bn1.weight", …
    Unexpected key(s) in state_dict: "module.conv1.weight", "module.bn1.weight", …

Detection
    Every key of a state dict begins with the token ``module`` (an error), or more than half of them do (a warning). The
    tokens of torch's other wrappers (``_orig_mod``, ``_fsdp_wrapped_module`` …) may precede it. ``module.`` further
    inside a key is reported as a warning and left alone: there it may be an attribute of the model. If the reference's
    own keys begin with ``module.``, nothing is wrong.

Repair
    ``ckptdoctor fix FILE --strip-module`` removes the leading token, once for each wrapper, in the keys, in
    ``_metadata`` and in an optimizer's ``param_names``. Safe where every key begins with it: no value changes, and
    ``--add-prefix module.`` undoes it. Where only some do, it is unsafe, since the model may have a part of that name.
    Where two keys would get one name, no repair is offered, and both are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.edits import Safety
from ckptdoctor.facts import names
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, Odict, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit.renames import how_many, rename_fix, weights, wrapped_lines
from ckptdoctor.rules.messages import NO_MODULE, NOT_MAPPED, STRIP, unknown_key
from ckptdoctor.rules.naming.wrapped_keys import led_keys, parts_in_wrapper
from ckptdoctor.rules.when import keys_mention

ALSO = ("N404", "N405", "N411")
MESSAGES = (
    *unknown_key(
        r"module(?:\.[\w.]{0,300})?",
        'the file was saved from a model inside DataParallel or DistributedDataParallel: its keys begin with "module."',
        (STRIP,),
        general=2,
        says=(NO_MODULE, NOT_MAPPED),  # KeyError: 'module' is said of much else
    ),
)
SICK = (
    Example(
        "every key begins with module.",
        Odict(
            {"module.conv.weight": T((4, 3, 3, 3)), "module.conv.bias": T((4,)), "module.fc.weight": T((2, 4))},
            {"": {"version": 1}, "module": {"version": 1}, "module.conv": {"version": 1}, "module.fc": {"version": 1}},
        ),
    ),
    Example(
        "a training checkpoint of two wrappers",
        {"epoch": 3, "state_dict": {"module.module.fc.weight": T((2, 4)), "module.module.fc.bias": T((2,))}},
    ),
)
HEALTHY = (
    Example("mlp_module is another word", {"mlp_module.layer0.weight": T((4, 4)), "mlp_module.layer0.bias": T((4,))}),
    Example("a part of the model called module", {"module.weight": T((2, 2)), "encoder.weight": T((2, 2))}),
    Example(
        "the target is wrapped too",
        {"module.fc.weight": T((2, 4)), "module.fc.bias": T((2,))},
        like={"module.fc.weight": T((2, 4)), "module.fc.bias": T((2,))},
    ),
)


@rule("N401", "module-prefix", Severity.ERROR, when=keys_mention("module."))
def module_prefix(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report keys that begin with ``module.``, or have it further inside."""
    for state_dict in weights(subject, "N401"):
        keys = names.keys_of(state_dict)
        led = names.module_led(keys)
        if led and names.average_counter(state_dict) is None:
            if len(led) == len(keys):
                yield _leading(state_dict, led, Severity.ERROR)
            elif 2 * len(led) > len(keys):
                yield _leading(state_dict, led, Severity.WARNING)
        inside = _module_inside(keys)
        if inside and not (isinstance(subject, Comparison) and _module_inside(subject.reference.tensors)):
            yield _inside(state_dict, inside)


def _leading(state_dict: StateDict, led: Sequence[str], severity: Severity) -> Problem:
    sure = severity is Severity.ERROR
    fix, advice = rename_fix(
        state_dict,
        names.without_module,
        'strip the leading "module."',
        Safety.SAFE if sure else Safety.UNSAFE,
        "--strip-module",
    )
    if fix is not None and not sure:
        advice = "The other keys do not: make sure that no part of the model itself is called module."
    return Problem(
        message=f"{how_many(len(led), state_dict)} {'begins' if len(led) == 1 else 'begin'} with "
        f'"module."{_behind(led)}',
        cause=(
            "Saved from a model wrapped in DataParallel or DistributedDataParallel. "
            "Loading it into the bare model fails, and with strict=False loads nothing"
        )
        + ("." if sure else " of these."),
        torch_says=wrapped_lines(led),
        advice=advice,
        keys=tuple([(*state_dict.path, key) for key in led]),
        location=Location(path=state_dict.path),
        fix=fix,
        severity=severity,
    )


def _behind(led: Sequence[str]) -> str:
    """Say so where the first key begins with another wrapper's token: people look for ``module.`` at the start."""
    first = names.leading(led[0])
    before = first[: first.index(names.MODULE)]
    return f' (behind "{".".join(before)}.")' if before else ""


def _inside(state_dict: StateDict, inside: Sequence[str]) -> Problem:
    tokens = inside[0].split(".")
    start = len(names.leading(inside[0]))
    prefix = ".".join(tokens[: tokens.index(names.MODULE, start) + 1])
    pattern, bare = prefix.replace(".", r"\."), prefix[: -len(names.MODULE)]
    hold = "has" if len(inside) == 1 else "have"
    return Problem(
        message=f'{how_many(len(inside), state_dict)} {hold} "module." inside, as in "{inside[0]}"',
        cause=(
            "Either a part of the model was wrapped in DataParallel before it was saved, or the model has an "
            "attribute called module; the file alone does not show which."
        ),
        advice=(
            "If the target has no such part: ckptdoctor fix FILE --rename "
            f"'^{pattern}\\.={bare}'. To find out, check with --like and a file that loads."
        ),
        keys=tuple([(*state_dict.path, key) for key in inside]),
        location=Location(path=state_dict.path),
        severity=Severity.WARNING,
    )


@judges(Turn.WRAPPER, general=1)
def of_all_keys(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Most unexpected keys begin with ``module.``, and without it they are the model's."""
    led = led_keys(rest)
    if not led or names.N_AVERAGED in rest.unexpected:
        return
    inner = {names.bare(key) for key in led}
    if rest.missing and inner.isdisjoint(rest.missing):
        return  # another name under module., not this model behind a wrapper
    meaning = (
        'the file was saved from a model inside DataParallel or DistributedDataParallel: its keys begin with "module."'
    )
    yield Cause(meaning, Repair.SAFE, (STRIP,), missing=inner, unexpected=led)


@judges(Turn.NAME)
def of_parts(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Keys are missing that are unexpected ones without ``module.``."""
    yield from parts_in_wrapper(rest, {names.MODULE})


def _module_inside(keys: Iterable[str]) -> list[str]:
    """Return the keys with the token ``module`` further inside, after a token that is not a wrapper's."""
    return [key for key in keys if ".module." in key and names.MODULE in key.split(".")[len(names.leading(key)) : -1]]
