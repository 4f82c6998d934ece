"""N417 num-batches-tracked-unexpected."""

from __future__ import annotations

import torch

from ckptdoctor.edits import Safety
from ckptdoctor.rules.examples import T
from tests.rules import nouns


class Frozen(torch.nn.Module):
    """A BatchNorm as detectron2 and torchvision freeze it: four buffers, and no counter."""

    def __init__(self, features: int) -> None:
        super().__init__()
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, torch.zeros(features))


def _net(norm: type[torch.nn.Module]) -> torch.nn.Module:
    blocks = [torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3), norm(4)) for _ in range(3)]
    return torch.nn.Sequential(*blocks)


def test_the_counters_of_a_frozen_target_go() -> None:
    """One pattern drops them all, the reference confirms it, and the rest loads."""
    saved, target = _net(torch.nn.BatchNorm2d).state_dict(), _net(Frozen)
    [found] = nouns.findings("N417", nouns.described(saved), nouns.described(target.state_dict()))
    assert found.torch_says[0] in nouns.torch_error(target, saved)
    assert found.message == "3 of 21 keys count batches, which like.pt does not"
    assert found.fix is not None
    assert (found.fix.safety, found.fix.option) == (Safety.CONFIRMED, "--drop '*.num_batches_tracked'")
    left = nouns.repaired(nouns.described(saved), found.fix).state_dicts[0].keys
    target.load_state_dict({key: saved[key] for key in left})


def test_r002_does_not_list_them_again() -> None:
    """One cause is one finding."""
    contents = nouns.described(_net(torch.nn.BatchNorm2d).state_dict())
    assert nouns.findings("R002", contents, nouns.described(_net(Frozen).state_dict())) == []


def test_a_layer_that_the_target_lacks_is_not_this() -> None:
    """Where the whole BatchNorm is unexpected, its counter is only a part of it."""
    contents = nouns.described(_net(torch.nn.BatchNorm2d).state_dict())
    like = {key: value for key, value in contents.items() if not key.startswith("2.1.")}
    assert nouns.findings("N417", contents, like) == []
    assert len(nouns.findings("R002", contents, like)[0].keys) == 5


def test_counters_beside_unwanted_stats_are_not_this() -> None:
    """A target without running stats is N418's, counters and all."""
    saved = {"c.weight": T((4, 3, 3, 3)), "n.weight": T((4,)), "n.running_mean": T((4,)), "n.running_var": T((4,))}
    contents = {**saved, "n.num_batches_tracked": T((), "int64")}
    like = {"c.weight": T((4, 3, 3, 3)), "n.weight": T((4,))}
    assert nouns.findings("N417", contents, like) == []
    [found] = nouns.findings("N418", contents, like)
    assert len(found.keys) == 3
