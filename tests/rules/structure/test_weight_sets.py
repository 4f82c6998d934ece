"""W302 multiple-weight-sets and W304 multiple-networks."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import T
from tests.rules import nouns
from tests.rules.examined import found

NET = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}
AVERAGE = {"n_averaged": T((), "int64"), **{f"module.{key}": tensor for key, tensor in NET.items()}}
OTHER = {"conv.weight": T((400, 300, 1, 1))}


def test_sets_are_named_with_their_size() -> None:
    """Which, how many keys, how many bytes, and which is an average."""
    [found] = nouns.findings("W302", {"state_dict": NET, "ema": {"state_dict": AVERAGE}})
    assert found.message == (
        '2 sets of weights for one network: "state_dict" (2 keys, 40 bytes) and "ema/state_dict" (2 keys, 40 '
        "bytes, averaged)"
    )
    assert found.severity is Severity.INFO
    assert found.fix is None
    assert "--root" in found.advice


def test_many_sets_are_counted() -> None:
    """Of many sets the first five are named."""
    [found] = nouns.findings("W302", {f"epoch{number}": NET for number in range(9)})
    assert found.message.startswith("9 sets of weights for one network: ")
    assert found.message.endswith(" and 4 more")


def test_an_average_beside_what_fits_is_told() -> None:
    """With a reference the raw weights are compared, and the average is still worth knowing."""
    [found] = nouns.findings("W302", {"model": NET, "ema": NET}, NET)
    assert found.severity is Severity.INFO


def test_rivals_are_left_to_w301() -> None:
    """Two sets that fit alike are named by W301, and not again."""
    contents = {"last": NET, "best": NET}
    [named] = nouns.findings("W301", contents, NET)
    assert named.message == '2 sets of weights are under "last" and "best"'
    assert nouns.findings("W302", contents, NET) == []


def test_tensors_saved_twice_are_told() -> None:
    """A best state that was never copied is the last state, and the finding says so."""
    shared = {"fc.weight": T((2, 4), storage="a", storage_size=8)}
    [found] = nouns.findings("W302", {"last": shared, "best": shared})
    assert "gives different results" in found.cause


def test_a_copy_that_was_none_is_told(tmp_path: Path) -> None:
    """``best = model.state_dict()`` without a copy saves the same tensors twice; an average is a copy."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    state = model.state_dict()
    torch.save({"last": state, "best": dict(state)}, tmp_path / "same.pt")
    torch.save({"model": state, "ema": AveragedModel(model).state_dict()}, tmp_path / "copied.pt")
    [same], [copied] = found(tmp_path / "same.pt", "W302"), found(tmp_path / "copied.pt", "W302")
    assert same.cause.startswith("All of them are the same tensors")
    assert copied.cause.startswith("They have the same keys and shapes")


def test_networks_are_named_with_their_size() -> None:
    """Two networks, one of them averaged as well: two names."""
    [found] = nouns.findings("W304", {"g": NET, "d": OTHER, "g_ema": NET})
    assert found.message == '2 networks: "g" (2 keys, 40 bytes) and "d" (1 key, 480 kB)'
    assert found.severity is Severity.INFO


def test_a_reference_chooses_the_network() -> None:
    """Held against one of two networks, nothing is left to choose."""
    assert nouns.findings("W304", {"g": NET, "d": OTHER}, OTHER) == []
