"""Proposes the renames that undo wrappers, one for each rule that has one: what the file alone already tells."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ckptdoctor.checkpoint import StateDict, Tensor
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.facts import names
from ckptdoctor.noun import noun


@noun
class NameFix:
    """What the rule ``code`` does to the keys of one state dict. ``drops`` is a tensor that goes.

    ``sure`` is false where the file alone does not prove that a wrapper put the tokens there.
    """

    code: str
    title: str
    change: Callable[[str], str]
    drops: Tensor | None = None
    sure: bool = True


# the token rules: code → the tokens that one kind of wrapper leaves in keys
TOKENS = {"N404": names.COMPILE, "N405": names.FSDP, "N407": names.ACTIVATION_CHECKPOINT}


def name_fixes(state_dict: StateDict) -> list[NameFix]:
    """Return the fixes that this state dict calls for, in the order in which they are named to people.

    They commute: each takes out tokens of its own, and none of them looks at the others'.
    """
    keys = names.keys_of(state_dict)
    found = []
    counter = names.average_counter(state_dict)
    if counter is not None:
        title = f'drop {counter.key} and strip "module."'
        found.append(NameFix("N411", title, names.without_module, counter))
    else:
        led = len(names.module_led(keys))
        if 2 * led > len(keys):
            found.append(NameFix("N401", 'strip "module."', names.without_module, sure=led == len(keys)))
    for code, tokens in TOKENS.items():
        present = names.present(names.holding(state_dict, tokens), tokens)
        if present and not (code == "N405" and names.flat_parameter(keys)):
            title = "drop " + " and ".join([f'"{token}."' for token in present])
            found.append(NameFix(code, title, partial(names.without_tokens, tokens=tokens)))
    return found


def carries(reference: Reference, code: str) -> bool:
    """Return whether the reference's own keys have what the naming rule ``code`` takes away.

    Then nothing is wrong here.
    """
    keys = reference.tensors
    if code in TOKENS:
        return bool(names.present(keys, TOKENS[code]))
    if code == "N420":
        return any(names.is_counter(key) for key in keys)
    if code == "N411":
        return any(key.endswith(names.N_AVERAGED) for key in keys)
    return 2 * len(names.module_led(keys)) > len(keys)
