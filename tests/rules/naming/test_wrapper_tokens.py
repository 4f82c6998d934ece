"""N404 compile-prefix, N405 fsdp-prefix and N407 checkpoint-wrapper-prefix, and how they and N401 end together."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.edits import Rename, Safety
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import T
from tests.rules import nouns

W = T((2, 2))
TOKENS = [
    ("N404", "_orig_mod"),
    ("N405", "_fsdp_wrapped_module"),
    ("N405", "_fpw_module"),
    ("N407", "_checkpoint_wrapped_module"),
]
RULES = ("N401", "N404", "N405", "N407", "N411")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile's own imports
def test_the_lines_are_those_of_torch() -> None:
    """What the finding quotes is what torch says to the state dict of a compiled model."""
    model = torch.nn.Linear(2, 3)
    saved = torch.compile(model).state_dict()
    [found] = nouns.findings("N404", nouns.described(saved))
    error = nouns.torch_error(model, saved)
    assert len(found.torch_says) == 2
    assert all(line in error for line in found.torch_says)


def test_the_token_of_activation_checkpointing_is_torchs_own() -> None:
    """``named_parameters`` before torch's hook took the token out is what the rule finds."""
    model = checkpoint_wrapper(torch.nn.Linear(2, 3))
    raw = dict(torch.nn.Module.named_parameters(model))
    [found] = nouns.findings("N407", nouns.described(raw))
    assert [key[-1] for key in found.keys] == list(raw)


@pytest.mark.parametrize(("rule", "token"), TOKENS)
def test_the_token_is_dropped_wherever_it_stands(rule: str, token: str) -> None:
    """At the start, in the middle and twice: one error with one safe renaming."""
    [found] = nouns.findings(rule, {f"{token}.a.weight": W, f"b.{token}.c.{token}.weight": W, "d.weight": W})
    assert found.severity is Severity.ERROR
    assert found.message == f'2 of 3 keys hold "{token}."'
    assert found.fix is not None
    assert (found.fix.safety, found.fix.option) == (Safety.SAFE, f"--select {rule}")
    [edit] = found.fix.edits
    assert isinstance(edit, Rename)
    assert edit.pairs == ((f"{token}.a.weight", "a.weight"), (f"b.{token}.c.{token}.weight", "b.c.weight"))


@pytest.mark.parametrize(("rule", "token"), TOKENS)
def test_words_around_the_token_are_other_words(rule: str, token: str) -> None:
    """A token inside a word, or as a tensor's own name, is none."""
    assert nouns.findings(rule, {f"my{token}.weight": W, f"{token}s.weight": W, f"weight.{token}": W}) == []


@pytest.mark.parametrize(("rule", "token"), TOKENS)
def test_a_collision_offers_no_repair(rule: str, token: str) -> None:
    """A module saved wrapped and plain cannot be told apart by dropping the token."""
    [found] = nouns.findings(rule, {f"a.{token}.weight": W, "a.weight": W})
    assert found.fix is None
    assert f'"a.{token}.weight" and "a.weight"' in found.advice


def test_flat_parameters_offer_no_repair() -> None:
    """Dropping the token does not make a flat parameter fit, so it is not offered."""
    [found] = nouns.findings("N405", {"_fsdp_wrapped_module._flat_param": T((99,)), "a.weight": W})
    assert found.fix is None
    assert "_flat_param" in found.advice
    steps = nouns.comparison({"_fsdp_wrapped_module._flat_param": T((99,)), "a.weight": W}, {"a.weight": W}).steps
    assert steps == ()


@pytest.mark.parametrize("order", list(itertools.permutations(RULES[:3])), ids=lambda order: "-".join(order))
@pytest.mark.parametrize(
    "prefix",
    ["module._orig_mod.module.", "_orig_mod.module._fsdp_wrapped_module.", "_fpw_module.module.module._orig_mod."],
)
def test_doubly_wrapped_keys_come_out_clean_in_any_order(order: tuple[str, ...], prefix: str) -> None:
    """Safe repairs one after another, in any order, with the rules run again each time, end at the bare keys."""
    checkpoint = nouns.checkpoint({"model": {f"{prefix}conv.weight": W, f"{prefix}fc.bias": W}, "epoch": 1})
    assert _fixed(checkpoint, order).state_dicts[0].keys == ("conv.weight", "fc.bias")


def test_random_wrappings_come_out_clean() -> None:
    """However torch's wrappers are stacked: the bare keys are left, and nothing is found any more."""
    dice = random.Random(0)
    for _ in range(40):
        stack = dice.choices(["module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"], k=4)
        prefix = "".join([f"{token}." for token in stack[: dice.randrange(1, 5)]])
        contents: dict[str, object] = {f"{prefix}conv.weight": W, f"{prefix}fc.bias": W}
        if dice.random() < 0.5:
            contents = {f"module.{key}": value for key, value in contents.items()}
            contents = {"n_averaged": T((), "int64"), **contents}
        outer = dice.choice(["", "module.", "_orig_mod."])
        contents = {outer + key: value for key, value in contents.items()}
        fixed = _fixed(nouns.checkpoint(contents), dice.sample(RULES, len(RULES)))
        assert fixed.state_dicts[0].keys == ("conv.weight", "fc.bias"), list(contents)
        assert not any(nouns.findings_in(rule, fixed) for rule in RULES)


def _fixed(checkpoint: Checkpoint, order: tuple[str, ...] | list[str]) -> Checkpoint:
    """Apply the first rule's first safe repair, run all rules again, and so on until there is none."""
    for _ in range(20):
        fixes = [found.fix for rule in order for found in nouns.findings_in(rule, checkpoint) if found.fix is not None]
        safe = [fix for fix in fixes if fix.safety is Safety.SAFE]
        if not safe:
            return checkpoint
        checkpoint = nouns.repaired(checkpoint, safe[0])
    raise AssertionError("the repairs do not end")
