"""A706, A708, A709, A710, A711 and A712: views, layouts, classes and gradients of tensors."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.findings import Severity
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from tests.builders import build
from tests.rules.examined import find_one, found, loads, sick

CODES = ("A706", "A708", "A709", "A710", "A711")


def fixed(path, code):
    """The file after the repair of one rule."""
    output = path.with_suffix(".fixed.pt")
    request = FixRequest(str(path), output=str(output), selection=Selection(select=(code,)), unsafe=True)
    return repair(plan(request)).plan.output


@pytest.mark.parametrize("example", sick("A706"), ids=lambda example: example.title)
def test_overlapping_views_get_bytes_of_their_own(tmp_path, example):
    """safetensors refuses them with the quoted line, and takes them after the repair, with the same values."""
    finding = find_one(example, tmp_path, "A706")
    assert found(build(example, tmp_path), "A701") == []
    path = build(example, tmp_path)
    before = loads(path)
    with pytest.raises(RuntimeError) as caught:
        save_file(before, tmp_path / "x.safetensors")
    if all(value.is_contiguous() for value in before.values()):  # over others save_file stumbles before it says so
        assert finding.torch_says[0] in str(caught.value)
    after = loads(fixed(path, "A706"))
    assert all(torch.equal(after[key], value) for key, value in before.items())
    save_file(after, tmp_path / "x.safetensors")


def test_an_expanded_tensor_is_written_out(tmp_path):
    """torch refuses to write into it with the quoted line; the repair makes a plain tensor of it."""
    torch.save({"w": torch.arange(3.0).expand(5, 3), "b": torch.ones(2)}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "A708")
    assert finding.severity is Severity.INFO
    with pytest.raises(RuntimeError) as caught:
        loads(tmp_path / "a.pt")["w"].add_(1)
    assert finding.torch_says[0] in str(caught.value)
    after = loads(fixed(tmp_path / "a.pt", "A708"))
    assert after["w"].is_contiguous()
    assert torch.equal(after["w"], torch.arange(3.0).expand(5, 3))
    assert found(tmp_path / "a.pt", "A707") == []


def test_what_would_fill_a_disk_is_not_offered(tmp_path):
    """One number shown 10^12 times."""
    torch.save({"w": torch.ones(1, 1).expand(1_000_000, 1_000_000), "b": torch.ones(2)}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "A708")
    assert finding.fix is None


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # torch calls some layouts a beta
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc], ids=str)
def test_sparse_weights(tmp_path, layout):
    """A dense layer refuses a sparse weight, and so does safetensors, both with the quoted lines."""
    torch.save({"weight": torch.eye(4).to_sparse(layout=layout), "bias": torch.ones(4)}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "A709")
    assert finding.severity is Severity.INFO
    state = loads(tmp_path / "a.pt")
    if layout is torch.sparse_coo:
        with pytest.raises(RuntimeError) as refused:
            torch.nn.Linear(4, 4).load_state_dict(state)
        assert finding.torch_says[0] in str(refused.value)
        with pytest.raises(ValueError, match="sparse") as caught:
            save_file({"weight": state["weight"]}, tmp_path / "x.safetensors")
        assert finding.torch_says[1] in str(caught.value)


def test_parameters_require_gradients(tmp_path):
    """named_parameters() and keep_vars give parameters; state_dict() gives none."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    for name, contents, number in (
        ("a", dict(net.named_parameters()), 1),
        ("b", net.state_dict(keep_vars=True), 1),
        ("c", net.state_dict(), 0),
    ):
        torch.save(contents, tmp_path / f"{name}.pt")
        assert len(found(tmp_path / f"{name}.pt", "A711")) == number


def test_a_parameter_with_attributes_is_no_subclass(tmp_path):
    """Attributes, buffers and lazy parameters are torch's own."""
    net = torch.nn.Linear(3, 3)
    net.weight.tensor_parallel = True
    net.buffer = torch.nn.Buffer(torch.ones(3))
    torch.save(net.state_dict(keep_vars=True), tmp_path / "a.pt")
    assert found(tmp_path / "a.pt", "A710") == []


class Wrapping(torch.Tensor):
    """A class of tensors of this program."""


def test_a_class_of_another_package(tmp_path):
    """Loading needs the package: a warning that names it."""
    torch.save({"w": torch.ones(3).as_subclass(Wrapping), "b": torch.ones(3)}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "A710")
    assert finding.severity is Severity.WARNING
    assert "tests" in finding.cause


def test_plain_files_have_none_of_it(tmp_path):
    """A recurrent layer, a tied and a strided weight."""
    torch.save(torch.nn.LSTM(3, 3).state_dict(), tmp_path / "a.pt")
    assert [found(tmp_path / "a.pt", code) for code in CODES] == [[]] * len(CODES)


KINDS = {str(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}
DIFFERENTIABLE = [name for name, each in KINDS.items() if each.is_floating_point or each.is_complex]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("parameter", [False, True])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_what_requires_gradients_loads_or_is_a712(tmp_path, name, parameter):
    """Of every dtype that can require gradients: torch loads what was saved, or refuses it and A712 says so."""
    plain = torch.zeros(16, dtype=torch.uint8).view(KINDS[name])
    tensor = torch.nn.Parameter(plain) if parameter else plain.requires_grad_()
    torch.save({"w": tensor}, tmp_path / "m.pt")
    try:
        torch.load(tmp_path / "m.pt")
    except RuntimeError as error:
        (finding,) = found(tmp_path / "m.pt", "A712")
        assert finding.torch_says == (f"RuntimeError: {error}",)
    else:
        assert found(tmp_path / "m.pt", "A712") == []
