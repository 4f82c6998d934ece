"""Densify: sparse tensors of every layout become what ``to_dense`` gives, in both of torch's formats."""

from __future__ import annotations

import warnings

import pytest
import torch

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.edits.elements import Scattered, View
from ckptdoctor.errors import RefusedError, WriteError
from ckptdoctor.prove.elements import require_scattered
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from tests.rules.examined import found, loads


def dense():
    """A matrix that is mostly zero."""
    torch.manual_seed(0)
    value = torch.randn(12, 8)
    value[torch.rand(12, 8) < 0.7] = 0
    value[3:7] = 0
    return value


def layouts(value):
    """The matrix in every sparse layout that torch has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that these layouts are in beta
        return {
            "coo": value.to_sparse(),
            "hybrid": value.to_sparse(1),
            "csr": value.to_sparse_csr(),
            "csc": value.to_sparse_csc(),
            "bsr": value.to_sparse_bsr((3, 2)),
            "bsc": value.to_sparse_bsc((2, 4)),
        }


def fixed(path, **asked):
    """The file after the repair, and the outcome of it."""
    request = FixRequest(
        str(path), output=str(path.with_suffix(".out.pt")), selection=Selection(select=("A709",)), unsafe=True, **asked
    )
    return repair(plan(request)), path.with_suffix(".out.pt")


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int16, torch.complex64, torch.bool]
)
def test_every_layout_becomes_what_to_dense_gives(tmp_path, zipped, dtype):
    """With each entry in its place, proven a second time; what was dense stays bit for bit."""
    plain = dense().to(dtype)
    state = {**layouts(plain), "plain": plain.clone()}
    path = tmp_path / "model.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save({"model": state, "epoch": 1}, path, _use_new_zipfile_serialization=zipped)
    outcome, out = fixed(path)
    after = loads(out)["model"]
    assert {each.layout for each in after.values()} == {torch.strided}
    assert all(torch.equal(after[key], plain) for key in state)
    assert outcome.proof.computed == len(state) - 1
    assert found(out, "A709") == []


def test_more_dimensions_and_nothing_at_all(tmp_path):
    """A volume, a vector of vectors, and tensors without entries or without elements."""
    volume = torch.zeros(3, 4, 5)
    volume[1, 2, 3], volume[2, 3, 4], volume[0, 0, 0] = 1, 2, 3
    state = {"volume": volume.to_sparse(), "rows": volume.to_sparse(2), "none": torch.zeros(4, 4).to_sparse()}
    state["parameter"] = torch.nn.Parameter(volume.to_sparse())
    path = tmp_path / "model.pt"
    torch.save(state, path)
    _, out = fixed(path)
    after = torch.load(out)
    assert all(torch.equal(after[key], value.detach().to_dense()) for key, value in state.items())
    assert isinstance(after["parameter"], torch.nn.Parameter)


def test_entries_in_any_order(tmp_path):
    """They are sorted here; one index twice is refused, and nothing is written."""
    indices, values = torch.tensor([[2, 0, 1], [1, 1, 0]]), torch.tensor([1.0, 2.0, 3.0])
    path = tmp_path / "model.pt"
    good = torch.sparse_coo_tensor(indices, values, (3, 2), is_coalesced=True, check_invariants=False)
    torch.save({"w": good, "b": torch.ones(2)}, path)
    _, out = fixed(path)
    assert torch.equal(loads(out)["w"], torch.tensor([[0.0, 2.0], [3.0, 0.0], [0.0, 1.0]]))
    out.unlink()
    indices[:, 2] = indices[:, 0]
    torch.save(
        {
            "w": torch.sparse_coo_tensor(indices, values, (3, 2), is_coalesced=True, check_invariants=False),
            "b": torch.ones(2),
        },
        path,
    )
    with pytest.raises(RefusedError, match="several times"):
        fixed(path)
    assert not out.exists()


def test_what_has_no_dense_tensor_is_not_offered_one(tmp_path):
    """Not coalesced, nested, batches of matrices, and what would take a gigabyte."""
    twice = torch.sparse_coo_tensor(torch.tensor([[0, 0]]), torch.ones(2), (3,), check_invariants=True)
    large = torch.sparse_coo_tensor(
        torch.tensor([[0], [0]]), torch.ones(1), (20_000, 20_000), check_invariants=True
    ).coalesce()
    for number, value in enumerate((twice, large)):
        path = tmp_path / f"{number}.pt"
        torch.save({"w": value, "b": torch.ones(2)}, path)
        (finding,) = found(path, "A709")
        assert finding.fix is None
        assert "to_dense" in finding.advice


@pytest.mark.parametrize("change", [0, 5, 11])
def test_the_proof_sees_a_single_other_byte(change):
    """A value that is lost, one that is moved, and one too many."""
    view = View("", 0, 4, (3,), (1,))
    parts = (View("i", 0, 8, (1, 3), (3, 1)), view)
    scattered = Scattered("sparse_coo", parts, ("int64",), 4, (6,))
    indices = b"".join(number.to_bytes(8, "little") for number in (0, 2, 5))
    values = bytes(range(1, 13))
    right = bytearray(24)
    for number, place in enumerate((0, 2, 5)):
        right[place * 4 : place * 4 + 4] = values[number * 4 : number * 4 + 4]

    def chunks(part):
        yield indices if part is parts[0] else values

    require_scattered(scattered, chunks, lambda at, length: bytes(right[at : at + length]))
    right[change] ^= 64
    with pytest.raises(WriteError):
        require_scattered(scattered, chunks, lambda at, length: bytes(right[at : at + length]))
