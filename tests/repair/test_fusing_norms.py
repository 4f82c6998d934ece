"""Weights that are computed of their norm, in real files, and held against torch in double precision."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations

from ckptdoctor.cli.main import run
from ckptdoctor.edits import Fuse, FuseNorm, Rename
from ckptdoctor.edits.norms import weight_dims
from ckptdoctor.errors import RefusedError, WriteError
from ckptdoctor.prove.norms import require_weights
from tests.repair.applying import repaired
from tests.repair.arranging import FORMATS, edited, loaded, same, written

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SHAPES = [
    *(((8, 4, 3), dim) for dim in (0, 1, 2, None)),
    *(((1, 5), dim) for dim in (0, 1)),
    ((70, 20000), 0),
    pytest.param((70, 70000), 0, marks=pytest.mark.slow),
    ((70000, 3), 0),
    ((3, 70000), 1),
    ((130, 3, 200), 2),
    ((40, 300, 7), 1),
    ((9,), 0),
    ((0, 4), 0),
]


def parts(shape, dim, dtype, seed=0):
    """Random g and v of a weight norm."""
    torch.manual_seed(seed)
    sizes = () if dim is None else [size if place == dim else 1 for place, size in enumerate(shape)]
    return torch.randn(sizes).to(dtype), torch.randn(shape).to(dtype)


def exact(g, v, dim):
    """The weight in double precision."""
    wide = v.double()
    others = [place for place in range(v.dim()) if place != dim]
    norm = wide.norm() if dim is None else wide.pow(2).sum(others, keepdim=True).sqrt() if others else wide.abs()
    return wide * (g.double() / norm)


def ulps(one, other):
    """The largest distance in units in the last place, of a weight and of what it should be."""
    if not one.numel():
        return 0.0
    wide = other.double()
    unit = torch.finfo(one.dtype).eps * 2.0 ** wide.abs().clamp_min(torch.finfo(one.dtype).tiny).log2().floor()
    return ((one.double() - wide).abs() / unit).max().item()


@pytest.mark.parametrize("suffix", [".pt", pytest.param(".safetensors", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_float32_is_within_one_unit_of_the_exact_weight(tmp_path: Path, suffix: str, shape, dim):
    """Rounded once from double precision: at most half a unit beside it; torch itself is further off."""
    g, v = parts(shape, dim, torch.float32)
    contents = {"a": torch.ones(2), "w_g": g, "w_v": v, "z": torch.ones(3)}
    result = edited(contents, tmp_path, suffix, FuseNorm((("w_v",), ("w_g",)), "w", "weight", dim))
    assert list(result) == ["a", "w", "z"]
    assert result["w"].dtype == torch.float32
    assert result["w"].shape == v.shape
    assert ulps(result["w"], exact(g, v, dim)) <= 0.5001
    if v.numel():  # torch divides by the number of elements
        theirs = torch._weight_norm(v, g, -1 if dim is None else dim)
        assert torch.allclose(result["w"], theirs, rtol=2e-5, atol=0)


@FORMATS
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_dtype_is_rounded_to_itself(tmp_path: Path, suffix: str, dtype: torch.dtype):
    """Halves to the nearest one, doubles to the last digits."""
    for number, (shape, dim) in enumerate([((6, 5, 3), 0), ((6, 5, 3), 2), ((700, 130), 1)]):
        g, v = parts(shape, dim, dtype, number)
        result = edited({"g": g, "v": v}, tmp_path, suffix, FuseNorm((("v",), ("g",)), "w", "weight", dim))
        assert result["w"].dtype == dtype
        assert ulps(result["w"], exact(g, v, dim)) <= (64 if dtype is torch.float64 else 0.5001)


@given(st.data())
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_shape_and_any_view(tmp_path: Path, data: st.DataObject):
    """Permuted views of v too, and numbers of any size."""
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    dim = data.draw(st.sampled_from([None, *range(len(shape))]))
    g, v = parts(shape, dim, torch.float32, data.draw(st.integers(0, 99)))
    v = v * 10.0 ** data.draw(st.integers(-15, 15))
    order = data.draw(st.permutations(range(len(shape))))
    view = v.permute(order).contiguous().permute([order.index(place) for place in range(len(shape))])
    (dim,) = weight_dims(shape, tuple(g.shape))
    result = edited({"g": g, "v": view}, tmp_path, ".pt", FuseNorm((("v",), ("g",)), "w", "weight", dim))
    assert ulps(result["w"], exact(g, v, dim)) <= 0.5001


def test_channels_without_a_direction_are_what_torch_makes_of_them(tmp_path: Path):
    """A channel of zeros has no weight, for torch either; infinite and missing numbers stay in their channel."""
    g, v = parts((5, 4), 0, torch.float32)
    v[1] = 0
    v[2, 0] = float("inf")
    v[3, 0] = float("nan")
    result = edited({"g": g, "v": v}, tmp_path, ".pt", FuseNorm((("v",), ("g",)), "w", "weight", 0))["w"]
    theirs = torch._weight_norm(v, g, 0)
    assert torch.equal(result.isnan(), theirs.isnan())
    assert torch.allclose(result, theirs, equal_nan=True)


def spectral(layer, dim=None, steps=20):
    """A layer under spectral norm as training leaves it, what it keeps, and its plain weight."""
    torch.manual_seed(1)
    layer = parametrizations.spectral_norm(layer, dim=dim)
    for _ in range(steps):
        layer.weight.sum()
    layer.eval()
    base = "parametrizations.weight"
    state = layer.state_dict()
    return {
        "w_orig": state[f"{base}.original"],
        "u": state[f"{base}.0._u"],
        "v": state[f"{base}.0._v"],
    }, layer.weight.detach()


@FORMATS
@pytest.mark.parametrize(
    ("layer", "dim"),
    [
        (lambda: nn.Linear(5, 7), 0),
        (lambda: nn.Conv2d(3, 6, 3), 0),
        (lambda: nn.ConvTranspose2d(3, 6, 3), 1),
        (lambda: nn.Conv1d(300, 300, 3), None),
        (lambda: nn.ConvTranspose1d(300, 300, 3), None),
    ],
)
def test_spectral_norm_gives_the_weight_of_the_model(tmp_path: Path, suffix: str, layer, dim):
    """Along the dimension that shapes tell; for square convolutions the values of u and v do."""
    contents, weight = spectral(layer())
    edit = FuseNorm((("w_orig",), ("u",), ("v",)), "w", "spectral", dim)
    result = edited(contents, tmp_path, suffix, edit)
    assert list(result) == ["w"]
    assert torch.allclose(result["w"], weight, rtol=1e-5, atol=1e-7)


def test_square_convolutions_that_do_not_tell_are_refused(tmp_path: Path):
    """With random u and v both dimensions are as likely: nothing is written."""
    torch.manual_seed(2)
    path = written({"o": torch.randn(8, 8, 3), "u": torch.randn(8), "v": torch.randn(24)}, tmp_path, ".pt")
    with pytest.raises(RefusedError, match="its shape fits both, and its u and v do not show which"):
        repaired(path, [FuseNorm((("o",), ("u",), ("v",)), "w", "spectral", None)])
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("contents", "edit", "words"),
    [
        ({"g": torch.ones(4, 1), "v": torch.ones(4, 3)}, FuseNorm((("v",), ("g",)), "w", "weight", 1), "norm along 1"),
        (
            {"g": torch.ones(4, 1), "v": torch.ones(4, 3)},
            FuseNorm((("v",), ("g",)), "w", "weight", None),
            "norm along None",
        ),
        ({"g": torch.ones(4), "v": torch.ones(4, 3)}, FuseNorm((("v",), ("g",)), "w", "weight", 0), "are not those"),
        (
            {"g": torch.ones(4, 1).half(), "v": torch.ones(4, 3)},
            FuseNorm((("v",), ("g",)), "w", "weight", 0),
            "cannot be computed",
        ),
        (
            {"g": torch.ones(4, 1).int(), "v": torch.ones(4, 3).int()},
            FuseNorm((("v",), ("g",)), "w", "weight", 0),
            "cannot be computed",
        ),
        ({"v": torch.ones(4, 3)}, FuseNorm((("v",),), "w", "weight", 0), "is not part"),
        ({"g": torch.ones(4, 1), "v": torch.ones(4, 3)}, FuseNorm((("v",), ("g",)), "w", "other", 0), "is not part"),
    ],
)
def test_what_no_norm_keeps_is_refused(tmp_path: Path, contents, edit, words):
    """Shapes and dtypes that torch does not leave, in a sentence."""
    with pytest.raises(RefusedError, match=words):
        repaired(written(contents, tmp_path, ".pt"), [edit])


def test_other_edits_follow(tmp_path: Path):
    """Computed weights are renamed and joined like others; their parts in the middle of a file are gone."""
    for suffix in (".pt", ".safetensors"):
        contents, whole = {}, []
        for name in "kq":
            g, v = parts((4, 3), 0, torch.float32, ord(name))
            contents |= {f"{name}_g": g, f"{name}_v": v}
            whole.append(exact(g, v, 0))
        edits = [FuseNorm(((f"{name}_v",), (f"{name}_g",)), name, "weight", 0) for name in "kq"]
        result = edited(contents, tmp_path, suffix, *edits, Rename((), (("k", "a"),)), Fuse((("a",), ("q",)), "w", 0))
        assert list(result) == ["w"]
        assert ulps(result["w"], torch.cat(whole)) <= 0.5001


def test_parameters_stay_parameters(tmp_path: Path):
    """The weight has the class of its direction, and everything else keeps its bytes."""
    g, v = parts((4, 3), 0, torch.float32)
    contents = {"w_g": nn.Parameter(g), "w_v": nn.Parameter(v), "b": nn.Parameter(torch.ones(3))}
    path = written(contents, tmp_path, ".pt")
    outcome = repaired(path, [FuseNorm((("w_v",), ("w_g",)), "w", "weight", 0)])
    result = loaded(outcome.plan.output)
    assert isinstance(result["w"], nn.Parameter)
    assert result["w"].requires_grad
    assert same(result["b"], contents["b"])
    assert outcome.plan.steps[0].changes[0].pairs == (("w_v [4, 3]", ""), ("w_g [4, 1]", "w [4, 3]"))


def test_the_proof_sees_a_wrong_weight(tmp_path: Path):
    """One number that is two units off is enough, in any of them."""
    g, v = parts((6, 5, 3), 1, torch.float32)
    path = written({"g": g, "v": v}, tmp_path, ".pt")
    outcome = repaired(path, [FuseNorm((("v",), ("g",)), "w", "weight", 1)])
    (weights,) = outcome.plan.wanted.remade.values()
    given = {part: tensor.numpy().tobytes() for part, tensor in zip(weights.parts, (v, g), strict=True)}
    good = loaded(outcome.plan.output)["w"]

    def judge(tensor):
        data = tensor.contiguous().numpy().tobytes()
        require_weights(weights, lambda part: iter([given[part]]), lambda at, length: data[at : at + length])

    judge(good)
    for index in range(good.numel()):
        bad = good.clone()
        bad.view(-1)[index] *= 1 + 4e-7
        with pytest.raises(WriteError, match="does not match its norm"):
            judge(bad)


@pytest.mark.parametrize("unsafe", [(), ("--unsafe-fixes",)], ids=["plain", "unsafe"])
@pytest.mark.parametrize("trivial", [True, False])
def test_what_a_file_does_not_name_is_not_computed(trivial, unsafe, tmp_path, monkeypatch, capsys):
    """Of an orthogonal weight it lacks the map: nothing is written, and the original does not become the weight."""
    monkeypatch.chdir(tmp_path)
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))
    torch.save(model.state_dict(), "like.pt")
    kind = "matrix_exp" if trivial else "householder"
    parametrizations.orthogonal(model[0], orthogonal_map=kind, use_trivialization=trivial)
    torch.save(model.state_dict(), "here.pt")
    assert run(["fix", "here.pt", "--auto", "--like", "like.pt", "-o", "out.pt", *unsafe]) == 1
    assert (
        "0.weight is computed from 0.parametrizations.weight.original by a parametrization" in capsys.readouterr().out
    )
