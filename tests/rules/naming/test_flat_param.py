"""N406 flat-param."""

from __future__ import annotations

import pytest

from ckptdoctor.rules.examples import T
from tests.rules import nouns


@pytest.mark.parametrize(
    "key", ["_flat_param", "flat_param_0", "_fsdp_wrapped_module.flat_param", "layers.3._fpw_module._flat_param"]
)
def test_flat_parameters_are_found_wherever_they_lie(key: str) -> None:
    """FSDP and fairscale call them so, at the top and in wrapped modules."""
    contents = {"model": {key: T((90,)), "head.weight": T((2, 4))}}
    [found] = nouns.findings("N406", contents)
    assert found.message == "1 of 2 keys of model is a flat parameter of FSDP"
    assert found.keys == (("model", key),)
    assert found.fix is None


def test_pieces_that_are_no_tensors_are_found() -> None:
    """A ShardedTensor is an object; its key tells what it is."""
    [found] = nouns.findings("N406", {"_flat_param": {"piece": 1}, "head.weight": T((2, 4))})
    assert found.message == "1 of 2 keys is a flat parameter of FSDP"


@pytest.mark.parametrize("contents", [{"_flat_param": T((8, 8))}, {"inflat_param": T((8,))}, {"flat_param.w": T((8,))}])
def test_other_tensors_are_left_alone(contents: dict[str, T]) -> None:
    """Two dimensions are not flat, and a longer name is another name."""
    assert nouns.findings("N406", contents) == []


def test_a_flat_target_settles_it() -> None:
    """Where the target has flat parameters too, nothing is wrong."""
    contents = {"_flat_param": T((90,))}
    assert nouns.findings("N406", contents, contents) == []
