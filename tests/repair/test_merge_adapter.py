"""``--merge-adapter``: LoRA and IA3 added to the weights, held against the exact sum and against peft's own merge."""

from __future__ import annotations

import json
import sys
from math import sqrt
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ckptdoctor.edits import Compute
from ckptdoctor.edits.computing import TURNED
from ckptdoctor.errors import RefusedError
from tests.commands import run
from tests.libraries import peft, real, transformers
from tests.repair.arranging import edited, loaded, same

HALVES = (torch.float16, torch.bfloat16)
CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": ["q", "v"], "fan_in_fan_out": False}


def base(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """Two layers with an adapter, and one without."""
    torch.manual_seed(1)
    shapes = {"layers.0.q.weight": (6, 6), "layers.0.q.bias": (6,), "layers.0.v.weight": (4, 6), "head.weight": (3, 6)}
    return {key: torch.randn(shape).to(dtype) for key, shape in shapes.items()}


def factors(rank: int = 2, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """A and B on both, under the names that ``save_pretrained`` writes."""
    torch.manual_seed(2)
    lead, sizes = "base_model.model.layers.0", {"q": (6, 6), "v": (4, 6)}
    found = {}
    for name, (rows, columns) in sizes.items():
        found[f"{lead}.{name}.lora_A.weight"] = torch.randn(rank, columns).to(dtype)
        found[f"{lead}.{name}.lora_B.weight"] = torch.randn(rows, rank).to(dtype)
    return found


def nearest(numbers: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rounded once, whatever torch does on the way: of the neighbours of what torch gives the nearest."""
    near = numbers.to(dtype)
    if dtype not in HALVES:
        return near
    bits = near.view(torch.int16)
    every = torch.stack([near, (bits + 1).view(dtype), (bits - 1).view(dtype)])
    apart = (every.double() - numbers).abs()
    return every.gather(0, apart.argmin(0, keepdim=True))[0]


def summed(
    weights: dict[str, torch.Tensor], adapter: dict[str, torch.Tensor], scales: dict[str, float]
) -> dict[str, torch.Tensor]:
    """The exact sums, rounded once."""
    found = dict(weights)
    for name, scale in scales.items():
        lead, key = f"base_model.model.layers.0.{name}", f"layers.0.{name}.weight"
        delta = adapter[f"{lead}.lora_B.weight"].double() @ adapter[f"{lead}.lora_A.weight"].double()
        found[key] = nearest(weights[key].double() + scale * delta, weights[key].dtype)
    return found


def folder_of(tmp_path: Path, adapter: dict[str, torch.Tensor], **config: object) -> Path:
    """An adapter as ``save_pretrained`` leaves it."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    save_file(adapter, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({**CONFIG, **config}))
    return folder


def saved(tensors: dict[str, torch.Tensor], path: Path) -> Path:
    """The file, as its suffix says."""
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)
    return path


def wrapped(weights: dict[str, torch.Tensor], adapter: dict[str, torch.Tensor], name: str = "default"):
    """The whole model with its adapter, as ``model.state_dict()`` gives it."""
    found = {}
    for key, value in weights.items():
        module, _, leaf = key.rpartition(".")
        lead = f"base_model.model.{module}"
        if f"{lead}.lora_A.weight" not in adapter:
            found[f"base_model.model.{key}"] = value
            continue
        found[f"{lead}.base_layer.{leaf}"] = value
        if leaf == "weight":
            found[f"{lead}.lora_A.{name}.weight"] = adapter[f"{lead}.lora_A.weight"]
            found[f"{lead}.lora_B.{name}.weight"] = adapter[f"{lead}.lora_B.weight"]
    return found


def merged(tmp_path: Path, path: Path, source: object, *options: object) -> dict[str, torch.Tensor]:
    """What comes of a merge that is carried out."""
    output = tmp_path / f"merged{path.suffix}"
    result = run("fix", path, "--merge-adapter", source, "-o", output, *options, cwd=tmp_path)
    assert result.returncode == 0, result.stdout.decode() + result.stderr.decode()
    assert b"a loss that you requested" in result.stdout
    return loaded(output)


def refused(tmp_path: Path, path: Path, source: object) -> str:
    """What is said where nothing is written."""
    result = run("fix", path, "--merge-adapter", source, "-o", tmp_path / "merged.pt", cwd=tmp_path)
    assert result.returncode == 1, result.stdout.decode()
    assert not (tmp_path / "merged.pt").exists()
    return " ".join(result.stdout.decode().split())


def equal(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> bool:
    """The same keys, and under each the same bits."""
    return set(found) == set(wanted) and all(same(found[key], value) for key, value in wanted.items())


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_the_sum_is_rounded_once(tmp_path: Path, suffix: str, dtype: torch.dtype):
    """Whatever the dtypes of weight and factors; everything else stays as it is, byte for byte."""
    weights, adapter = base(dtype), factors(dtype=torch.float32 if dtype in HALVES else torch.float16)
    path = saved(weights, tmp_path / f"base{suffix}")
    found = merged(tmp_path, path, folder_of(tmp_path, adapter))
    assert equal(found, summed(weights, adapter, {"q": 3.0, "v": 3.0}))


@pytest.mark.parametrize(
    ("config", "scales"),
    [
        ({"use_rslora": True}, {"q": 6 / sqrt(2), "v": 6 / sqrt(2)}),
        ({"alpha_pattern": {"v": 1}}, {"q": 3.0, "v": 0.5}),
        ({"alpha_pattern": {"^layers.0.v": 1, "0.q": 4}}, {"q": 2.0, "v": 0.5}),
        ({"r": 8, "rank_pattern": {"q": 2, "v": 2}}, {"q": 3.0, "v": 3.0}),
    ],
    ids=str,
)
def test_alpha_and_rank_are_those_of_the_config(tmp_path: Path, config, scales):
    """rslora divides by the root of the rank, and patterns name modules by their last tokens."""
    adapter = factors()
    found = merged(tmp_path, saved(base(), tmp_path / "base.pt"), folder_of(tmp_path, adapter, **config))
    assert equal(found, summed(base(), adapter, scales))


def test_an_adapter_inside_its_model_is_merged_where_it_is(tmp_path: Path):
    """The names become those of the base model, and its config says how strongly it works; or a person does."""
    adapter = factors()
    config = folder_of(tmp_path, adapter) / "adapter_config.json"
    path = saved(wrapped(base(), adapter), tmp_path / "both.pt")
    wanted = summed(base(), adapter, {"q": 3.0, "v": 3.0})
    assert equal(merged(tmp_path, path, config), wanted)
    assert equal(merged(tmp_path, path, "alpha=6", "--force"), wanted)


def test_nothing_is_merged_unasked(tmp_path: Path):
    """Towards the base model the merge is named, and neither mode does it by itself."""
    path, like = saved(wrapped(base(), factors()), tmp_path / "both.pt"), saved(base(), tmp_path / "like.pt")
    result = run("fix", path, "--auto", "--like", like, cwd=tmp_path)
    assert result.returncode == 1
    assert b"--merge-adapter" in result.stdout
    run("fix", path, "--auto", "--like", like, "--unsafe-fixes", "-o", tmp_path / "out.pt", cwd=tmp_path)
    assert equal(loaded(tmp_path / "out.pt"), base())
    whole = merged(tmp_path, path, "alpha=6", "--like", like)
    assert equal(whole, summed(base(), factors(), {"q": 3.0, "v": 3.0}))


def test_a_missing_alpha_is_asked_for(tmp_path: Path):
    """It is in no tensor: the refusal has the command that says it."""
    path = saved(base(), tmp_path / "base.pt")
    folder = folder_of(tmp_path, factors())
    (folder / "adapter_config.json").unlink()
    said = refused(tmp_path, path, folder)
    assert f"--merge-adapter {folder},alpha=N" in said
    found = merged(tmp_path, path, f"{folder},alpha=6")
    assert equal(found, summed(base(), factors(), {"q": 3.0, "v": 3.0}))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"r": 4}, "rank_pattern is missing"),
        ({"rank_pattern": {"q": 4}}, "rank_pattern is missing"),
        ({"use_dora": True}, "DoRA is not a plain sum"),
        ({"init_lora_weights": "pissa"}, "changes the base before training"),
        ({"layer_replication": [[0, 1]]}, "layer_replication"),
        ({"something_new": 3}, "something_new"),
        ({"peft_type": "LOHA"}, "only LoRA and IA3"),
        ({"alpha_pattern": {"(q|v)+": 1}}, "regular expression, which is not run"),
        ({"lora_alpha": None}, "does not give r and lora_alpha"),
    ],
    ids=str,
)
def test_what_is_no_plain_sum_is_refused(tmp_path: Path, config, said: str):
    """A config that disagrees with the tensors, or says something of which the sum is not known."""
    assert said in refused(tmp_path, saved(base(), tmp_path / "base.pt"), folder_of(tmp_path, factors(), **config))


@pytest.mark.parametrize(
    ("key", "shape", "said"),
    [
        ("base_model.model.layers.0.q.lora_magnitude_vector.weight", (6,), "DoRA's magnitudes"),
        ("base_model.model.layers.0.q.lora_B.bias", (6,), "a bias"),
        ("base_model.model.head.weight", (3, 6), "trained in full (base_model.model.head.weight)"),
        ("base_model.model.layers.7.q.lora_A.weight", (2, 6), "an adapter for another model"),
    ],
)
def test_more_than_two_factors_is_refused(tmp_path: Path, key: str, shape, said: str):
    """Nothing of an adapter is left out silently, and every layer of it must be there."""
    adapter = {**factors(), key: torch.randn(shape)}
    assert said in refused(tmp_path, saved(base(), tmp_path / "base.pt"), folder_of(tmp_path, adapter))


def test_an_adapter_for_another_base_is_refused(tmp_path: Path):
    """Shapes do not tell models apart, and their names do; a person may know better."""
    (tmp_path / "config.json").write_text(json.dumps({"_name_or_path": "org/base-7b"}))
    path = saved(base(), tmp_path / "model.pt")
    folder = folder_of(tmp_path, factors(), base_model_name_or_path="org/other-7b")
    assert "adapter is for org/other-7b" in refused(tmp_path, path, folder)
    assert equal(merged(tmp_path, path, f"{folder},alpha=6"), summed(base(), factors(), {"q": 3.0, "v": 3.0}))


@pytest.mark.parametrize(("before", "option"), [("model.", "--strip-prefix model"), ("", "--add-prefix layers")])
def test_another_prefix_is_named_with_its_option(tmp_path: Path, before: str, option: str):
    """peft wants the names of the model; the option that gives them works."""
    weights = {before + key if before else key.removeprefix("layers."): value for key, value in base().items()}
    path = saved(weights, tmp_path / "base.pt")
    folder = folder_of(tmp_path, factors())
    assert f"add {option}" in refused(tmp_path, path, folder)
    found = merged(tmp_path, path, folder, *option.split())
    assert same(found["layers.0.v.weight"], summed(base(), factors(), {"v": 3.0})["layers.0.v.weight"])


def test_two_adapters_are_named_and_one_is_chosen(tmp_path: Path):
    """Which one is meant only a person knows."""
    adapter, other = factors(), {key: value + 1 for key, value in factors().items()}
    path = saved({**wrapped(base(), adapter), **wrapped(base(), other, "second")}, tmp_path / "both.pt")
    said = refused(tmp_path, path, "alpha=6")
    assert '"default" and "second"' in said
    found = merged(tmp_path, path, "alpha=6,name=second")
    assert equal(found, summed(base(), other, {"q": 3.0, "v": 3.0}))


def test_tied_weights_are_refused(tmp_path: Path):
    """Whether the other name changes as well, nobody has said."""
    weights = base()
    weights["head.weight"] = weights["layers.0.v.weight"]
    path = tmp_path / "base.pt"
    torch.save(weights, path)
    assert "tied weights" in refused(tmp_path, path, folder_of(tmp_path, factors()))


def test_a_word_that_means_nothing_is_a_mistake_of_the_command(tmp_path: Path):
    """Status 2, and what would make sense."""
    path = saved(base(), tmp_path / "base.pt")
    result = run("fix", path, "--merge-adapter", "adapter,alfa=3", cwd=tmp_path)
    assert result.returncode == 2
    assert b"adapter,alpha=16" in result.stderr


class Net(nn.Module):
    """One of each layer that peft puts LoRA on."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.fc, self.sq = nn.Embedding(11, 6), nn.Linear(6, 5), nn.Linear(6, 6)
        self.conv, self.point, self.line = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1), nn.Conv1d(4, 4, 3)
        self.turned = transformers.pytorch_utils.Conv1D(6, 6)
        self.wide = transformers.pytorch_utils.Conv1D(9, 6)


def compare(tmp_path: Path, config, dtype: torch.dtype, error: float) -> None:
    """Both ways to merge, against the model that peft merges."""
    torch.manual_seed(3)
    net = Net().to(dtype)
    path = saved({key: value.clone() for key, value in net.state_dict().items()}, tmp_path / "base.pt")
    model = peft.get_peft_model(net, config, autocast_adapter_dtype=False)
    model.save_pretrained(tmp_path / "adapter")
    both = saved({key: value.clone() for key, value in model.state_dict().items()}, tmp_path / "both.pt")
    theirs = model.merge_and_unload().state_dict()
    one = merged(tmp_path, path, tmp_path / "adapter")
    other = merged(tmp_path, both, tmp_path / "adapter" / "adapter_config.json", "--force")
    assert equal(one, other)
    assert set(one) == set(theirs)
    for key, value in theirs.items():
        assert one[key].dtype == value.dtype
        assert torch.allclose(one[key].double(), value.double(), rtol=error, atol=error), key


@real
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-6), (torch.bfloat16, 2e-2), (torch.float64, 1e-13)])
@pytest.mark.parametrize("options", [{}, {"use_rslora": True}, {"alpha_pattern": {"sq": 9}, "rank_pattern": {"fc": 2}}])
def test_lora_is_what_peft_merges(tmp_path: Path, dtype, error, options):
    """Linear, embedding, convolutions and Conv1D, up to what peft's own rounding takes."""
    layers = ["emb", "fc", "sq", "conv", "point", "line"]
    config = peft.LoraConfig(r=3, lora_alpha=5, target_modules=layers, init_lora_weights=False, **options)
    compare(tmp_path, config, dtype, error)


@real
def test_lora_on_transposed_weights_is_what_peft_merges(tmp_path: Path):
    """The layers of GPT-2, square and not: fan_in_fan_out."""
    config = peft.LoraConfig(
        r=3, lora_alpha=5, target_modules=["turned", "wide"], init_lora_weights=False, fan_in_fan_out=True
    )
    compare(tmp_path, config, torch.float32, 2e-6)


@real
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 0), (torch.bfloat16, 2e-2)])
def test_ia3_is_what_peft_merges(tmp_path: Path, dtype, error):
    """Outputs with their bias, and the inputs of feedforward layers; in float32 the very bits."""
    layers = ["fc", "sq", "conv", "point"]
    config = peft.IA3Config(target_modules=layers, feedforward_modules=["sq", "point"], init_ia3_weights=False)
    compare(tmp_path, config, dtype, error)


@pytest.mark.parametrize(("shape", "added"), [((3, 4), True), ((3, 2, 2), False)], ids=str)
def test_only_a_matrix_is_added_to_the_other_way_round(tmp_path: Path, shape, added):
    """Of a kernel nothing says which of its sides are the columns."""
    torch.manual_seed(0)
    weights = {"w": torch.randn(shape), "a": torch.randn(5, 3), "b": torch.randn(4, 5)}
    edit = Compute((("w",), ("a",), ("b",)), "w", TURNED, "float32", (), (0.5,))
    if not added:
        with pytest.raises(RefusedError, match="does not match factors"):
            edited(weights, tmp_path, ".pt", edit)
        return
    (result,) = edited(weights, tmp_path, ".pt", edit).values()
    assert torch.allclose(result, weights["w"] + 0.5 * (weights["b"] @ weights["a"]).t(), atol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells the peak of a process alone")
def test_memory_does_not_grow_with_the_weight(tmp_path: Path):
    """A weight of 400 MB takes at most three tiles of 64 MB more than one of 1 MB."""

    def peak(rows: int) -> int:
        folder = tmp_path / str(rows)
        folder.mkdir()
        weights = {"fc.weight": torch.ones(rows, 4096, dtype=torch.bfloat16)}
        adapter = {
            "base_model.model.fc.lora_A.weight": torch.ones(16, 4096),
            "base_model.model.fc.lora_B.weight": torch.ones(rows, 16),
        }
        source = folder_of(folder, adapter, r=16)
        path = saved(weights, folder / "base.safetensors")
        del weights, adapter
        command = (
            "import sys; from ckptdoctor.cli.main import run; "
            f"status = run(['fix', {str(path)!r}, '--merge-adapter', {str(source)!r}]); "
            "print('peak', open('/proc/self/status').read().split('VmHWM:')[1].split()[0], file=sys.stderr); "
            "sys.exit(status)"
        )
        return _peak_of(command, folder)

    small, large = peak(128), peak(50_000)
    assert large - small < 3 * 64 * 1024, (small, large)


def _peak_of(command: str, folder: Path) -> int:
    import subprocess

    result = subprocess.run([sys.executable, "-c", command], cwd=folder, capture_output=True, text=True, check=True)
    return int(result.stderr.rpartition("peak ")[2])


def test_a_config_that_does_not_exist_is_said_not_to(tmp_path: Path) -> None:
    """It is not looked for in itself."""
    base = {"fc.weight": torch.ones(4, 4)}
    adapter = {
        f"base_model.model.fc.lora_{side}.weight": torch.ones(shape) for side, shape in (("A", (2, 4)), ("B", (4, 2)))
    }
    path = saved(wrapped(base, adapter), tmp_path / "a.pt")
    assert "adapter_config.json does not exist." in refused(tmp_path, path, "adapter_config.json")
