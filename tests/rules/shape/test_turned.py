"""S505 transposed-linear and S506 unit-dim-mismatch, with the repairs that they offer."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.edits import Reshape, Safety, Transpose
from ckptdoctor.errors import RefusedError
from ckptdoctor.examine.targets import read_reference
from ckptdoctor.findings import Severity
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.rules.examples import T
from tests.match.architectures import Contents, gpt2
from tests.rules import nouns


def _perceptron() -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(6, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)]
    return torch.nn.Sequential(OrderedDict(net=torch.nn.Sequential(*layers)))


def _narrowing(*, conv1d: bool) -> Contents:
    """GPT-2 without the second layer of its perceptrons."""
    return {key: value for key, value in gpt2(conv1d=conv1d).items() if "mlp.c_proj" not in key}


def _repaired(saved: dict[str, torch.Tensor], model: torch.nn.Module, folder: Path, *, unsafe: bool = False) -> object:
    torch.save(saved, folder / "saved.pt")
    torch.save(model.state_dict(), folder / "like.pt")
    reference = read_reference(Settings(like=str(folder / "like.pt")))
    request = FixRequest(str(folder / "saved.pt"), auto=True, reference=reference, unsafe=unsafe)
    return torch.load(repair(plan(request)).plan.output)


def test_a_family_is_turned_whole() -> None:
    """All matrices of the blocks, squares too; none of the tables and none of the head."""
    [found] = nouns.findings("S505", _narrowing(conv1d=True), _narrowing(conv1d=False))
    assert found.fix is not None
    assert found.fix.safety is Safety.CONFIRMED
    assert all(isinstance(edit, Transpose) for edit in found.fix.edits)
    turned = {str(edit.path[-1]) for edit in found.fix.edits if isinstance(edit, Transpose)}
    layers = ("attn.c_attn", "attn.c_proj", "mlp.c_fc")
    assert turned == {f"transformer.h.{at}.{name}.weight" for at in range(12) for name in layers}
    assert "12 square matrices of the same family load silently, and would be wrong." in found.cause


def test_a_mixed_family_is_not_turned() -> None:
    """Where one kind of layer fits as it is, nobody knows about the squares: advice, and no repair."""
    right, wrong = _narrowing(conv1d=False), _narrowing(conv1d=True)
    fitting = {key: value for key, value in right.items() if key.endswith("c_fc.weight")}
    [found] = nouns.findings("S505", {**wrong, **fitting}, right)
    assert found.fix is None
    assert found.advice.startswith("No repair is offered: 12 matrices next to them have the model's shape as they are")
    assert "square" not in found.cause


def test_biases_refute_it() -> None:
    """Inputs and outputs that have changed places are another model."""
    here: Contents = {"enc.weight": T((8, 6)), "enc.bias": T((8,)), "a": T((1,)), "b": T((1,)), "c": T((1,))}
    there: Contents = {**here, "enc.weight": T((6, 8)), "enc.bias": T((6,))}
    assert nouns.findings("S505", here, there) == []


def test_two_matrices_without_a_bias_may_be_a_coincidence() -> None:
    """An autoencoder with inputs and code exchanged has reversed shapes, too."""
    rest: Contents = {name: T((1,)) for name in "abc"}
    here = {**rest, "enc.weight": T((8, 6)), "dec.weight": T((6, 8))}
    there = {**rest, "enc.weight": T((6, 8)), "dec.weight": T((8, 6))}
    assert nouns.findings("S505", here, there) == []


def test_a_dump_of_kernels_is_repaired_and_loads(tmp_path: Path) -> None:
    """Inputs × outputs become a state dict that computes the same, squares too."""
    model = _perceptron()
    kernels = {key: value.t().contiguous() if value.dim() == 2 else value for key, value in model.state_dict().items()}
    repaired = _repaired(kernels, model, tmp_path, unsafe=True)
    assert isinstance(repaired, dict)
    fresh = _perceptron()
    fresh.load_state_dict(repaired, strict=True)
    assert all(torch.equal(value, repaired[key]) for key, value in model.state_dict().items())


def test_turning_is_not_done_unasked(tmp_path: Path) -> None:
    """Without --unsafe-fixes the repair refuses."""
    model = _perceptron()
    kernels = {key: value.t().contiguous() if value.dim() == 2 else value for key, value in model.state_dict().items()}
    with pytest.raises(RefusedError):
        _repaired(kernels, model, tmp_path)


def test_torch_still_takes_a_vector_for_a_scalar_and_not_the_reverse() -> None:
    """What is only worth knowing, and what is an error, are so in torch."""
    model, other = torch.nn.Module(), torch.nn.Module()
    model.register_buffer("scale", torch.ones(()))
    other.register_buffer("scale", torch.ones(1))
    model.load_state_dict(other.state_dict(), strict=True)
    [known] = nouns.findings("S506", nouns.described(other.state_dict()), nouns.described(model.state_dict()))
    assert (known.severity, known.torch_says) == (Severity.INFO, ())
    [found] = nouns.findings("S506", nouns.described(model.state_dict()), nouns.described(other.state_dict()))
    assert found.severity is Severity.ERROR
    assert found.torch_says[0] in nouns.torch_error(other, model.state_dict())


def test_a_linear_head_becomes_a_convolution(tmp_path: Path) -> None:
    """The repair is confirmed by the target, changes no value, and loads strictly."""
    linear = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 2))
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 2, 1))
    here, there = nouns.described(linear.state_dict()), nouns.described(model.state_dict())
    [found] = nouns.findings("S506", here, there)
    assert found.fix is not None
    assert found.fix.safety is Safety.CONFIRMED
    assert found.fix.edits == (Reshape(("1.weight",), (2, 4, 1, 1)),)
    repaired = _repaired(linear.state_dict(), model, tmp_path)
    assert isinstance(repaired, dict)
    model.load_state_dict(repaired, strict=True)
    [before, after] = [next(layer[1].parameters()).flatten() for layer in (linear, model)]
    assert torch.equal(before, after)


@pytest.mark.parametrize(("biases", "safety"), [(True, Safety.CONFIRMED), (False, Safety.UNSAFE)])
def test_a_bias_for_each_proves_it(biases: bool, safety: Safety) -> None:
    """Reversed shapes alone may be those of two halves that have changed places."""
    rest: Contents = {name: T((1,)) for name in "abc"}
    for size in range(3):
        rest |= {f"net.{size}.bias": T((2 + size,))} if biases else {}
    here = {**rest, **{f"net.{size}.weight": T((9, 2 + size)) for size in range(3)}}
    there = {**rest, **{f"net.{size}.weight": T((2 + size, 9)) for size in range(3)}}
    [found] = nouns.findings("S505", here, there)
    assert found.fix is not None
    assert found.fix.safety is safety
