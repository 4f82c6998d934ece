"""N401 module-prefix."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.edits import Rename, Safety
from ckptdoctor.findings import Finding, Severity
from ckptdoctor.rules.examples import T
from tests.rules import nouns

W = T((2, 2))


def _find(contents: object, like: object = None) -> list[Finding]:
    return nouns.findings("N401", contents, like)


def test_the_lines_are_those_of_torch() -> None:
    """What the finding quotes is what torch says to a DataParallel state dict, word for word."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 3))
    saved = torch.nn.DataParallel(model).state_dict()
    [found] = _find(nouns.described(saved))
    error = nouns.torch_error(model, saved)
    assert all(line in error for line in found.torch_says)
    assert len(found.torch_says) == 2


def test_the_counter_of_batchnorm_is_not_called_missing() -> None:
    """torch does not miss ``num_batches_tracked`` of a DataParallel state dict, and neither does the finding."""
    model = torch.nn.BatchNorm1d(3, affine=False)
    saved = torch.nn.DataParallel(model).state_dict()
    [found] = _find(nouns.described(saved) | {"module.weight": W})
    assert 'Missing key(s) in state_dict: "running_mean", "running_var"' in nouns.torch_error(model, saved)
    assert found.torch_says[0] == 'Missing key(s) in state_dict: "running_mean", "running_var", "weight".'


def test_all_keys_are_an_error_with_a_safe_repair() -> None:
    """Where every key begins with it, stripping is safe and complete."""
    [found] = _find({"state_dict": {f"module.layer{number}.weight": W for number in range(1234)}})
    assert found.message == 'all 1,234 keys of state_dict begin with "module."'
    assert found.severity is Severity.ERROR
    assert found.fix is not None
    assert (found.fix.safety, found.fix.option) == (Safety.SAFE, "--strip-module")
    [edit] = found.fix.edits
    assert isinstance(edit, Rename)
    assert edit.state_dict == ("state_dict",)
    assert edit.pairs[7] == ("module.layer7.weight", "layer7.weight")
    assert found.keys[7] == ("state_dict", "module.layer7.weight")


def test_most_keys_are_a_warning_with_an_unsafe_repair() -> None:
    """Where only some keys begin with it, some may mean it."""
    [found] = _find({"module.a.weight": W, "module.b.weight": W, "c.weight": W})
    assert found.message == '2 of 3 keys begin with "module."'
    assert found.severity is Severity.WARNING
    assert found.fix is not None
    assert found.fix.safety is Safety.UNSAFE


def test_half_of_the_keys_are_a_part_of_the_model() -> None:
    """A part called module beside others is nobody's wrapper."""
    assert _find({"module.a.weight": W, "b.weight": W}) == []


def test_a_collision_offers_no_repair_and_names_both() -> None:
    """Two keys that would become one are both named."""
    [found] = _find({"module.a.weight": W, "module.b.weight": W, "a.weight": W})
    assert found.fix is None
    assert '"module.a.weight" and "a.weight" would both become "a.weight"' in found.advice


def test_a_value_without_a_tensor_collides_too() -> None:
    """A new name must not fall on a key that holds something else either."""
    [found] = _find({"module.a": W, "module.weight": W, "a": 3})
    assert found.fix is None


def test_values_without_tensors_are_renamed_as_well() -> None:
    """Extra state under the prefix follows the tensors."""
    [found] = _find({"module.weight": W, "module.extra": {"x": 1}})
    assert found.fix is not None
    [edit] = found.fix.edits
    assert isinstance(edit, Rename)
    assert edit.pairs == (("module.weight", "weight"), ("module.extra", "extra"))


@pytest.mark.parametrize("wrapper", ["_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"])
def test_it_is_seen_behind_other_wrappers(wrapper: str) -> None:
    """``module.`` behind another wrapper's token is a leading one, and the message says where to look."""
    [found] = _find({f"{wrapper}.module.weight": W, f"{wrapper}.module.b": W})
    assert found.severity is Severity.ERROR
    assert f'(behind "{wrapper}.")' in found.message


def test_inside_a_key_it_is_reported_and_left_alone() -> None:
    """``encoder.module.conv`` may be an attribute: a warning, and a command for who knows better."""
    [found] = _find({"encoder.module.conv.weight": W, "head.weight": W})
    assert found.severity is Severity.WARNING
    assert found.fix is None
    assert found.message == '1 of 2 keys has "module." inside, as in "encoder.module.conv.weight"'
    assert r"--rename '^encoder\.module\.=encoder.'" in found.advice


@pytest.mark.parametrize("key", ["a.module", "mlp_module.a", "mlp.module_b.a", "_orig_mod.mlp_module.a"])
def test_inside_is_a_token_that_is_not_the_last(key: str) -> None:
    """A tensor that is called module, and names that merely hold the word, are the model's own."""
    assert _find({key: W, "head.weight": W}) == []


def test_inside_and_leading_are_two_findings() -> None:
    """A wrapped model with a wrapped part has two causes."""
    found = _find({"module.a.module.weight": W, "module.b.weight": W})
    assert [each.severity for each in found] == [Severity.ERROR, Severity.WARNING]


def test_an_averaged_model_is_not_called_data_parallel() -> None:
    """The ``module.`` of AveragedModel is N411's."""
    keys = {f"module.layer{number}.weight": W for number in range(4)}
    assert _find({"n_averaged": T((), "int64"), **keys}) == []
    [found] = _find({"epoch": T((), "int64"), **keys})
    assert found.message == '4 of 5 keys begin with "module."', "it is the counter that tells"


def test_a_reference_with_the_same_names_settles_it() -> None:
    """Where the target has such names too, leading or inside, nothing is wrong."""
    assert _find({"module.weight": W}, {"module.weight": W}) == []
    assert _find({"a.module.weight": W}, {"a.module.weight": W}) == []
    assert _find({"module.weight": W}, {"weight": W})


def test_optimizers_are_left_alone() -> None:
    """Only weights are judged by their names."""
    optimizer = {"state": {"module.weight": {"exp_avg": W}}, "param_groups": []}
    assert _find({"model": {"weight": W}, "optimizer": optimizer}) == []
