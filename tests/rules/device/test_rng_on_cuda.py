"""D607 rng-on-cuda."""

from __future__ import annotations

import pytest
import torch

import ckptdoctor
from ckptdoctor.edits import Retag, Safety
from ckptdoctor.errors import RefusedError
from ckptdoctor.rules.examples import T
from tests.rules import nouns

W = T((2, 2))


def test_torch_says_it() -> None:
    """What the finding quotes is what torch says to a state of another dtype."""
    state = torch.get_rng_state().to(torch.float32)
    with pytest.raises(TypeError) as caught:
        torch.set_rng_state(state)
    [found] = nouns.findings("D607", {"model": {"weight": W}, "rng": T(tuple(state.shape), "float32")})
    assert found.torch_says == (str(caught.value),)
    assert found.fix is not None
    assert found.fix.safety is Safety.UNSAFE


def test_only_the_states_are_retagged() -> None:
    """The repair names the storages of the states, and leaves the weights where they are."""
    contents = {"model": {"weight": T((2, 2), device="cuda:0")}, "rng_state": T((5056,), "uint8", "cuda:0")}
    [found] = nouns.findings("D607", contents)
    assert found.message == "the random number generator's state rng_state is tagged cuda:0"
    assert found.fix is not None
    assert found.fix.safety is Safety.SAFE
    assert found.fix.edits == (Retag("cpu", ("cuda:0",), ("1",)),)


def test_a_state_on_the_gpu_is_one_finding() -> None:
    """Where only the generator's state is tagged cuda, D601 does not say it again."""
    contents = {"model": {"weight": W}, "rng_state": T((5056,), "uint8", "cuda:0")}
    assert nouns.findings("D601", contents) == []
    assert len(nouns.findings("D607", contents)) == 1


@pytest.mark.parametrize(
    "contents",
    [
        {"rng_state": T((5056,), "uint8")},
        {"rng_state": T((5055,), "uint8", "cuda:0")},
        {"rng_state": T((16, 1), "uint8", "cuda:0")},
        {"orange": T((16,), "uint8", "cuda:0")},
        {"lookup": T((816,), "float32", "cuda:0")},
        {"random_projection": {"bias": T((16,), "float32", "cuda:0")}},
        {"rng_state": T((5056,), "uint8"), "head": {"bias": T((16,), "float32", "cuda:0")}},
    ],
)
def test_other_tensors_are_left_alone(contents: dict[str, object]) -> None:
    """States on the CPU, other lengths, and sixteen bytes under other names are no concern of the rule."""
    assert nouns.findings("D607", {"model": {"weight": W}, **contents}) == []


@pytest.mark.parametrize("name", ["rng", "cuda_rng_state", "torch_rng", "rngs", "random_state", "RNG"])
def test_states_are_told_by_their_names(name: str) -> None:
    """Sixteen bytes are a CUDA generator's state where the key says so."""
    assert nouns.findings("D607", {"model": {"weight": W}, name: T((16,), "uint8", "cuda:0")})


def test_states_are_told_by_their_company() -> None:
    """Beside the state of the CPU's generator, the lists of bytes are those of the GPUs."""
    contents = {"cpu": T((5056,), "uint8"), "cuda": [T((16,), "uint8", "cuda:0"), T((16,), "uint8", "cuda:1")]}
    [found] = nouns.findings("D607", contents)
    assert found.keys == (("cuda", 0), ("cuda", 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_a_state_that_was_cast_becomes_bytes_that_torch_takes(tmp_path, dtype):
    """The numbers that come after it are those that came after the original."""
    state = torch.get_rng_state()
    wanted = torch.rand(4)
    path = tmp_path / "training.pt"
    torch.save({"model": {"weight": torch.ones(2)}, "rng_state": state.to(dtype)}, path)
    out = ckptdoctor.fix(path, select=["D607"], unsafe_fixes=True).output
    torch.set_rng_state(torch.load(out, weights_only=True)["rng_state"])
    assert torch.equal(torch.rand(4), wanted)


def test_a_state_that_is_no_bytes_is_refused(tmp_path):
    """The repair never rounds: what is no whole number was not the state of a generator."""
    path = tmp_path / "training.pt"
    torch.save({"rng_state": torch.full((5056,), 0.5), "w": torch.ones(2)}, path)
    with pytest.raises(RefusedError, match="not exact in uint8"):
        ckptdoctor.fix(path, select=["D607"], unsafe_fixes=True)
    assert not list(tmp_path.glob("*fixed*"))
