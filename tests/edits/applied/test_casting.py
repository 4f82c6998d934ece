"""Tensors are cast in real files, and torch reads what it would have made of them itself."""

from __future__ import annotations

from io import BytesIO
from resource import RLIMIT_NOFILE, getrlimit, setrlimit
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ckptdoctor.edits import Cast, Drop, MakeContiguous, Rename
from ckptdoctor.errors import RefusedError, WriteError
from ckptdoctor.repair.repair import repair
from tests.repair.applying import assert_all_proven, planned, planned_steps, repaired
from tests.repair.checkpoints import save

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def contents() -> dict[str, torch.Tensor]:
    """Tied, transposed, fused, strided and empty tensors of every dtype that is cast, and others beside them."""
    generator = torch.Generator().manual_seed(0)
    emb, flat = torch.randn(30, 20, generator=generator), torch.randn(1000, generator=generator)
    return {
        "emb.weight": emb,
        "head.weight": emb,
        "turned.weight": emb.t(),
        "a.weight": flat[:500].view(20, 25),
        "a.bias": flat[500:600:2],
        "wide": torch.randn(4, 4, dtype=torch.float64, generator=generator),
        "half": torch.randn(4, 4, generator=generator).half(),
        "brain": torch.randn(4, 4, generator=generator).bfloat16(),
        "odd": torch.tensor([float("nan"), float("inf"), -0.0, 1e-42, 3.0]),
        "empty": torch.empty(0, 3),
        "parameter": nn.Parameter(torch.randn(5, 5, generator=generator)),
        "steps": torch.tensor(3),
        "mask": torch.ones(3, dtype=torch.bool),
    }


def require(found: dict[str, torch.Tensor], old: dict[str, torch.Tensor], dtype: torch.dtype) -> None:
    assert list(found) == list(old)
    for key, tensor in old.items():
        wanted = tensor.detach().to(dtype) if tensor.is_floating_point() else tensor
        assert found[key].dtype == wanted.dtype, key
        torch.testing.assert_close(found[key].detach(), wanted, rtol=0, atol=0, equal_nan=True)
        assert type(found[key]) is type(tensor)


def floats(old: dict[str, torch.Tensor]) -> tuple[str, ...]:
    return tuple([key for key, tensor in old.items() if tensor.is_floating_point()])


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("dtype", DTYPES, ids=name)
def test_torch_files(tmp_path, dtype, zipped):
    """Values are those of ``Tensor.to``; storages go on being shared, and strides stay."""
    old, path = contents(), tmp_path / "model.pt"
    torch.save(old, path, _use_new_zipfile_serialization=zipped)
    outcome = repaired(path, [Cast(tuple([(key,) for key in floats(old)]), name(dtype))])
    found = torch.load(outcome.plan.output, weights_only=True)
    require(found, old, dtype)
    assert all(found[key].stride() == old[key].stride() for key in old)
    assert found["emb.weight"].data_ptr() == found["head.weight"].data_ptr() == found["turned.weight"].data_ptr()
    assert found["a.weight"].untyped_storage().data_ptr() == found["a.bias"].untyped_storage().data_ptr()


@pytest.mark.parametrize("dtype", DTYPES, ids=name)
def test_safetensors(tmp_path, dtype):
    """The same; the values of wide tensors come first there, so that all stay aligned."""
    old, path = (
        {key: tensor.detach().clone().contiguous() for key, tensor in contents().items()},
        tmp_path / "m.safetensors",
    )
    save_file(old, path, {"format": "pt"})
    outcome = repaired(path, [Cast(tuple([(key,) for key in floats(old)]), name(dtype))])
    found = load_file(outcome.plan.output)
    require({key: found[key] for key in old}, old, dtype)


def test_what_shares_a_storage_with_something_else(tmp_path):
    """Such a tensor gets a storage of its own, and what is not cast stays as it was."""
    flat = torch.randn(100)
    path = save({"w": flat[10:40].view(5, 6).t(), "same": flat[10:40].view(5, 6).t(), "rest": flat}, tmp_path / "m.pt")
    found = torch.load(repaired(path, [Cast((("w",), ("same",)), "bfloat16")]).plan.output)
    assert torch.equal(found["rest"], flat)
    assert torch.equal(found["w"], flat[10:40].view(5, 6).t().bfloat16())
    assert found["w"].is_contiguous()
    assert found["w"].data_ptr() == found["same"].data_ptr()


def test_one_object_in_two_places(tmp_path):
    """A tensor that the pickle holds once, of which one place is cast."""
    tensor = torch.randn(4, 4)
    path = save({"a": {"w": tensor}, "b": {"w": tensor}}, tmp_path / "m.pt")
    found = torch.load(repaired(path, [Cast((("a", "w"),), "float16")]).plan.output)
    assert torch.equal(found["a"]["w"], tensor.half())
    assert torch.equal(found["b"]["w"], tensor)
    found = torch.load(repaired(path, [Cast((("a", "w"), ("b", "w")), "float16")]).plan.output)
    assert found["a"]["w"].data_ptr() == found["b"]["w"].data_ptr()


def test_after_other_edits(tmp_path):
    """What was put in order, dropped and renamed before is cast all the same."""
    old = {"w": torch.randn(6, 8).t(), "x": torch.randn(3), "y": torch.randn(3)}
    path = save(old, tmp_path / "m.pt")
    steps = [
        [MakeContiguous((("w",),)), Drop((("x",),)), Rename((), (("y", "z"),))],
        [Cast((("w",), ("z",)), "bfloat16")],
    ]
    outcome = repair(planned_steps(path, steps))
    assert_all_proven(outcome)
    found = torch.load(outcome.plan.output)
    assert torch.equal(found["w"], old["w"].bfloat16())
    assert torch.equal(found["z"], old["y"].bfloat16())


def test_exact_is_refused_where_a_value_would_change(tmp_path):
    """And goes where none would."""
    path = save({"w": torch.tensor([0.1, 0.5])}, tmp_path / "m.pt")
    with pytest.raises(RefusedError, match="1 value is not exact in bfloat16"):
        planned(path, [Cast((("w",),), "bfloat16", exact=True)])
    path = save({"w": torch.tensor([0.25, 0.5])}, tmp_path / "m.pt")
    found = torch.load(repaired(path, [Cast((("w",),), "bfloat16", exact=True)]).plan.output)
    assert found["w"].dtype is torch.bfloat16


def test_what_is_no_plain_tensor_is_refused(tmp_path):
    """Integers, sparse tensors, other dtypes, and what is not there."""
    path = save({"i": torch.ones(3, dtype=torch.int64), "s": torch.eye(3).to_sparse()}, tmp_path / "m.pt")
    for key in ("i", "s", "nothing"):
        with pytest.raises(RefusedError):
            planned(path, [Cast(((key,),), "bfloat16")])
    with pytest.raises(RefusedError, match="not to int8"):
        planned(save({"w": torch.ones(3)}, path), [Cast((("w",),), "int8")])


def test_a_wrong_number_in_the_output_is_found(tmp_path, monkeypatch):
    """The proof computes by itself: a cast that rounds wrongly never becomes a file."""
    import ckptdoctor.casting.cast as module

    right = module.cast
    monkeypatch.setattr(module, "cast", lambda *given: bytes([right(*given)[0] ^ 1]) + right(*given)[1:])
    path = save({"w": torch.randn(10)}, tmp_path / "m.pt")
    with pytest.raises(WriteError, match="not the nearest"):
        repair(planned(path, [Cast((("w",),), "bfloat16")]))


def small_ones(number=700):
    """Tensors of three dtypes and any small shape: views, one that two keys have, empty ones, NaN and infinity."""
    torch.manual_seed(7)
    dtypes = (torch.float32, torch.float64, torch.float16)
    found = {}
    for each in range(number):
        given = torch.randn(each % 5, 3, dtype=dtypes[each // 30 % 3])
        found[f"layers.{each}.w"] = given.t() if each % 11 == 0 else given[1:] if each % 13 == 0 else given
    found["tied"], found["odd"] = found["layers.8.w"], torch.tensor([float("nan"), float("inf"), -0.0])
    return found


def saved_as(kind, contents, path):
    """Write them as ``torch.save`` does, the same with compressed records, or as safetensors."""
    if kind == "safetensors":
        save_file({key: value.clone().contiguous() for key, value in contents.items()}, path)
        return path
    torch.save(contents, path)
    if kind == "compressed":
        with ZipFile(BytesIO(path.read_bytes())) as old, ZipFile(path, "w", ZIP_DEFLATED) as new:
            for name in old.namelist():
                new.writestr(name, old.read(name))
    return path


@pytest.mark.parametrize("kind", ["zip", "compressed", "safetensors"])
def test_many_small_tensors_become_what_torch_makes_of_each(tmp_path, kind):
    """They are made and proven together, with fewer open files than there are tensors."""
    old = small_ones()
    path = saved_as(kind, old, tmp_path / "m")
    before = getrlimit(RLIMIT_NOFILE)
    setrlimit(RLIMIT_NOFILE, (min(600, before[0]), before[1]))
    try:
        outcome = repair(planned(path, [Cast(tuple([(key,) for key in old]), "bfloat16")]))
    finally:
        setrlimit(RLIMIT_NOFILE, before)
    new = load_file(outcome.plan.output) if kind == "safetensors" else torch.load(outcome.plan.output)
    assert set(new) == set(old)
    for key, value in old.items():
        assert torch.equal(new[key], value.bfloat16()) or value.isnan().any(), key
    assert new["odd"].isnan().tolist() == [True, False, False]
    if kind != "safetensors":
        assert new["tied"].data_ptr() == new["layers.8.w"].data_ptr()


@pytest.mark.parametrize("kind", ["zip", "safetensors"])
@pytest.mark.parametrize("which", [0, 350, 699])
def test_a_wrong_number_in_one_of_many_small_tensors_is_found(tmp_path, monkeypatch, kind, which):
    """The first of all, the last, and one between them; wrong by one bit, in the same way each time."""
    import ckptdoctor.casting.cast as module

    right, marked = module.cast, torch.tensor([1234.5]).bfloat16().view(torch.int16).item().to_bytes(2, "little")
    old = {f"layers.{each}.w": torch.tensor([0.1, 1234.5 if each == which else 0.2]) for each in range(700)}
    path = saved_as(kind, old, tmp_path / "m")

    def wrongly(*given):
        made = right(*given)
        at = made.find(marked)
        return made if at < 0 else made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :]

    monkeypatch.setattr(module, "cast", wrongly)
    with pytest.raises(WriteError, match="not the nearest"):
        repair(planned(path, [Cast(tuple([(key,) for key in old]), "bfloat16")]))
    assert [each.name for each in tmp_path.iterdir()] == ["m"]
