"""N402 module-prefix-absent and N409 enclosing-prefix."""

from __future__ import annotations

import torch

from ckptdoctor.edits import Rename, Safety
from ckptdoctor.findings import Finding
from ckptdoctor.rules.examples import T
from tests.rules import nouns

NET = {"conv.weight": T((4, 3, 3, 3)), "fc.weight": T((2, 4)), "fc.bias": T((2,))}


def _under(prefix: str) -> dict[str, object]:
    return {prefix + key: value for key, value in NET.items()}


def _one(rule: str, contents: object, like: object) -> Finding:
    [found] = nouns.findings(rule, contents, like)
    return found


def test_the_lines_are_those_of_torch() -> None:
    """What the finding quotes is what a wrapped model says to bare weights."""
    model = torch.nn.Linear(2, 3)
    target = torch.nn.DataParallel(model)
    found = _one("N402", nouns.described(model.state_dict()), nouns.described(target.state_dict()))
    error = nouns.torch_error(target, model.state_dict())
    assert len(found.torch_says) == 2
    assert all(line in error for line in found.torch_says)


def test_module_is_added_for_a_wrapped_target() -> None:
    """N402 adds ``module.`` and N409 says nothing of it."""
    found = _one("N402", NET, _under("module."))
    assert found.fix is not None
    assert (found.fix.safety, found.fix.option) == (Safety.SAFE, "--add-prefix module.")
    assert found.message == 'with "module." before each key 3 of 3 keys of like.pt fit (0 without)'
    assert nouns.findings("N409", NET, _under("module.")) == []


def test_an_attribute_is_stripped_and_the_rest_left_over() -> None:
    """N409 strips the LightningModule's attribute from the keys that have it, and from no other."""
    contents = {"pytorch-lightning_version": "2.6.0", "state_dict": {**_under("model."), "loss.weight": T((9,))}}
    found = _one("N409", contents, NET)
    assert "Lightning" in found.cause
    assert found.fix is not None
    assert (found.fix.safety, found.fix.option) == (Safety.SAFE, "--strip-prefix model.")
    assert found.fix.edits == (Rename(("state_dict",), tuple([(f"model.{key}", key) for key in NET])),)


def test_an_attribute_is_added_for_a_larger_target() -> None:
    """N409 adds the prefix where the target is the larger model."""
    found = _one("N409", NET, {**_under("backbone."), "head.weight": T((1, 2))})
    assert found.fix is not None
    assert (found.fix.safety, found.fix.option) == (Safety.SAFE, "--add-prefix backbone.")


def test_a_prefix_that_proves_little_is_unsafe() -> None:
    """A common prefix with which only little fits may be a coincidence."""
    here = {f"model.layer{number}.weight": T((4, number + 1)) for number in range(8)}
    there = {f"layer{number}.weight": T((4, number + 1 if number < 2 else 99)) for number in range(8)}
    found = _one("N409", here, there)
    assert found.fix is not None
    assert found.fix.safety is Safety.UNSAFE


def test_the_repair_includes_what_must_go_first() -> None:
    """Behind another wrapper the repair takes both away, and its command names both."""
    contents = {"n_averaged": T((), "int64"), **_under("module._orig_mod.model.")}
    found = _one("N409", contents, NET)
    assert found.fix is not None
    assert found.fix.option == "--drop n_averaged --strip-module --strip-prefix model."
    assert nouns.repaired(contents, found.fix).state_dicts[0].keys == tuple(NET)


def test_the_repaired_file_fits() -> None:
    """After the repair everything fits and neither rule has more to say."""
    for rule, here, there in (
        ("N409", _under("net."), NET),
        ("N409", NET, _under("a.b.")),
        ("N402", NET, _under("module.module.")),
    ):
        found = _one(rule, here, there)
        assert found.fix is not None
        fixed = nouns.repaired(here, found.fix)
        assert {tensor.key for tensor in fixed.tensors} == set(there)
