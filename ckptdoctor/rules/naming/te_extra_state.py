"""Modules saved extra state (``_extra_state``) that the target does not have, or the reverse.

Meaning
    A module can put anything into the state dict under ``_extra_state`` (``Module.get_extra_state``). Layers of
    Transformer Engine, and so those of Megatron, keep the scaling factors of their fp8 formats there, and an empty
    tensor where they do not use fp8. The same layers made of plain torch have no such key.

Why it matters
    ``load_state_dict`` fails, although every weight is there.

Symptoms
    Unexpected key(s) in state_dict: "decoder.layers.0.self_attention.linear_qkv._extra_state", …
    Missing key(s) in state_dict: "decoder.layers.0.mlp.linear_fc1._extra_state", …

Detection
    Only with a reference: keys whose last token is exactly ``_extra_state`` on one side only. Their contents do not
    matter, nor does the shape of a tensor: the module itself loads it, whatever it is. A module of the target expects
    one if its class has ``set_extra_state``.

Repair
    Extra state that the target does not expect is dropped: ``ckptdoctor fix FILE --drop '*._extra_state'``. Confirmed:
    a layer without extra state has no use for it. Extra state that the file lacks cannot be made up;
    ``load_state_dict(…, strict=False)`` leaves it as the target made it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint.expectation import EXTRA_STATE, is_extra_state
from ckptdoctor.checkpoint.patterns import key_patterns
from ckptdoctor.edits import Drop, Fix, Safety
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.leftovers import leftovers
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Repair
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.signs import Sign, leaf_among
from ckptdoctor.shell import word

_NET = {"mlp.linear_fc1.weight": T((8, 4)), "mlp.linear_fc2.weight": T((4, 8))}
_EXTRA = {"mlp.linear_fc1._extra_state": T((16,), "uint8"), "mlp.linear_fc2._extra_state": T((0,), "uint8")}
MESSAGES = (
    Message(
        ("Missing key in checkpoint state_dict:",),
        "the folder has no {key}: Transformer Engine keeps an _extra_state next to the weights, and the "
        "version that saved keeps it in other places than the version that loads. It holds scales of FP8, "
        "and nothing where FP8 is not used",
        (
            Way(
                "leave what the folder lacks as it is",
                "torch.distributed.checkpoint.load(state, checkpoint_id=path,"
                " planner=torch.distributed.checkpoint.DefaultLoadPlanner(allow_partial_load=True))",
            ),
        ),
        then=r"(?P<key>[\w.]{1,400}?_extra_state)",
    ),
)
SIGNS = (
    Sign(
        "Transformer Engine keeps an _extra_state next to the weights, and only one side has it",
        Repair.SAFE,
        missing=leaf_among("_extra_state"),
        unexpected=leaf_among("_extra_state"),
        without=True,
        general=1,
    ),
)
SICK = (
    Example("Transformer Engine for plain layers", {**_NET, **_EXTRA}, like=_NET),
    Example("plain layers for Transformer Engine", {"model": _NET}, like={"model": {**_NET, **_EXTRA}}),
    Example("extra state that is not a tensor", {**_NET, "mlp._extra_state": {"amax": 3}}, like=_NET),
    Example("a target with extra state that is not a tensor", _NET, like={**_NET, "mlp._extra_state": None}),
)
HEALTHY = (
    Example("extra state on both sides", {**_NET, **_EXTRA}, like={**_NET, **_EXTRA}),
    Example(
        "extra state of a different type",
        {**_NET, "mlp._extra_state": b"fp8"},
        like={**_NET, "mlp._extra_state": T((16,), "uint8")},
    ),
    Example(
        "extra state with a different shape",
        {**_NET, "mlp._extra_state": T((3,))},
        like={**_NET, "mlp._extra_state": T((16,))},
    ),
    Example("a longer name", {**_NET, "mlp.my_extra_state": T((4,))}, like=_NET),
)

_PATTERNS = 8  # --drop options on one command line


@rule("N421", "te-extra-state", Severity.WARNING)
def te_extra_state(comparison: Comparison) -> Iterator[Problem]:
    """Report extra state of modules, on one side only."""
    if comparison.uncovered:
        return
    found, renamed = leftovers(comparison), comparison.renamed
    unexpected, missing = (*found.extra, *renamed.extra_unexpected), (*found.extra_missing, *renamed.extra_missing)
    if unexpected:
        yield _unexpected(comparison, unexpected)
    if missing:
        yield _missing(comparison, missing)


def _unexpected(comparison: Comparison, keys: tuple[str, ...]) -> Problem:
    assert comparison.state_dict is not None
    state_dict, here = comparison.state_dict, comparison.renamed.here
    old = {comparison.final_name(key): key for key in state_dict.others}
    going = [here[key].key if key in here else old[key] for key in keys]
    fix, advice = _drop(comparison, going)
    total = wording.plural(len(state_dict.tensors) + len(comparison.renamed.others), "key")
    verb = "is" if len(keys) == 1 else "are"
    return Problem(
        message=f"{len(keys):,} of {total}{wording.of_place(comparison.path)} {verb} extra state of modules, which "
        f"{comparison.reference.source} does not load",
        cause="The saved layers wrote extra state besides tensors (get_extra_state), as Transformer Engine's do "
        "for fp8; the target's layers do not.",
        torch_says=(wording.unexpected_line(keys),),
        advice=advice,
        keys=tuple([(*state_dict.path, key) for key in going]),
        location=Location(path=comparison.path),
        fix=fix,
    )


def _drop(comparison: Comparison, going: list[str]) -> tuple[Fix | None, str]:
    """Return the fix that drops keys of the state dict, or advice where it takes too many options."""
    assert comparison.state_dict is not None
    state_dict, gone = comparison.state_dict, set(going)
    staying = [key for key in (*state_dict.keys, *state_dict.others) if key not in gone]
    everywhere = f"*.{EXTRA_STATE}"
    patterns = [everywhere] if _all_of_them(going, staying) else key_patterns(going, staying)
    shown = [f"--drop {word(pattern)}" for pattern in patterns[:_PATTERNS]]
    if len(patterns) > _PATTERNS:
        return None, (
            f"They are scattered: it would take {len(patterns):,} options such as {shown[0]} to leave them out."
        )
    edits = (Drop(tuple([(*state_dict.path, key) for key in going])),)
    return Fix(f"drop {wording.plural(len(going), 'key')}", edits, Safety.CONFIRMED, " ".join(shown)), ""


def _all_of_them(going: list[str], staying: list[str]) -> bool:
    """Return whether one pattern is enough: every key that ends so goes, and there are several."""
    return len(going) > 1 and EXTRA_STATE not in going and not any(map(is_extra_state, staying))


def _missing(comparison: Comparison, keys: tuple[str, ...]) -> Problem:
    reference = comparison.reference
    total = wording.plural(len(reference.tensors) + len(reference.extra - reference.tensors.keys()), "key")
    return Problem(
        message=f"{len(keys):,} of {total} of {reference.source} {'is' if len(keys) == 1 else 'are'} extra state of "
        "modules, which the file does not hold",
        cause="The target's layers read extra state besides tensors (set_extra_state), as Transformer Engine's do "
        "for fp8; the saved layers wrote none.",
        torch_says=(wording.missing_line(keys),),
        advice="load_state_dict(…, strict=False) leaves it as the target made it; make sure that nothing else is "
        "missing.",
        keys=tuple([(*comparison.path, key) for key in keys]),
        location=Location(path=comparison.path),
    )
