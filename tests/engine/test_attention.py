"""``--qkv-layout``: fused and split projections of attention, in every layout and both directions."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ckptdoctor.cli.main import run
from tests.libraries import real, transformers

HEADS, KV_HEADS, SIZE, WIDTH = 4, 4, 3, 12
GROUPS = {"q-k-v": 2, "k-v-q": 2, "per-head": HEADS, "grouped": 2}


def apart(layers=2, kv_heads=KV_HEADS):
    """Weights and biases of attention, each projection by itself."""
    torch.manual_seed(0)
    state = {"norm.weight": torch.rand(WIDTH), "head.weight": torch.rand(5, WIDTH)}
    for n in range(layers):
        for part, heads in (("q", HEADS), ("k", kv_heads), ("v", kv_heads)):
            projection = nn.Linear(WIDTH, heads * SIZE)
            state[f"layers.{n}.attn.{part}_proj.weight"] = projection.weight.detach().clone()
            state[f"layers.{n}.attn.{part}_proj.bias"] = projection.bias.detach().clone()
    return state


def fused(state, layout):
    """The same in one tensor, as the layout orders its rows."""
    made = {key: value for key, value in state.items() if "_proj." not in key}
    for key, q in state.items():
        if "q_proj" in key:
            k, v = (state[key.replace("q_proj", f"{part}_proj")] for part in "kv")
            made[key.replace("q_proj", "qkv")] = one(q, k, v, layout)
    return made


def one(q, k, v, layout):
    """The three tensors as one."""
    if layout in ("q-k-v", "k-v-q"):
        return torch.cat([q, k, v] if layout == "q-k-v" else [k, v, q])
    groups = len(k) // SIZE
    rows = [torch.cat(each) for each in zip(q.chunk(groups), k.chunk(groups), v.chunk(groups), strict=True)]
    return torch.cat(rows)


def fixed(here, wanted, *options):
    """The file after --auto towards the other one."""
    torch.save(here, "here.pt")
    torch.save(wanted, "wanted.pt")
    assert run(["fix", "here.pt", "--auto", "--like", "wanted.pt", "-o", "out.pt", "--force", *options]) == 0
    return torch.load("out.pt", weights_only=True)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("layout", GROUPS)
def test_a_fused_projection_is_split_and_fused_again(layout):
    """In each layout the parts come out with the values they had, and go in again to the same tensor."""
    parts = apart(kv_heads=GROUPS[layout])
    whole = fused(parts, layout)
    options = ["--qkv-layout", layout, "--heads", str(HEADS)]
    split = fixed(whole, parts, *options)
    assert split.keys() == parts.keys()
    assert all(torch.equal(split[key], parts[key]) for key in parts)
    again = fixed(parts, whole, *options)
    assert all(torch.equal(again[key], whole[key]) for key in whole)


def test_without_a_layout_nothing_is_split(capsys):
    """The layout cannot be seen, so --auto refuses without it, and head by head it needs their number."""
    parts = apart()
    torch.save(fused(parts, "per-head"), "here.pt")
    torch.save(parts, "wanted.pt")
    assert run(["fix", "here.pt", "--auto", "--like", "wanted.pt"]) == 1
    assert "no chain of repairs makes this file fit" in capsys.readouterr().out
    assert run(["fix", "here.pt", "--auto", "--like", "wanted.pt", "--qkv-layout", "per-head"]) == 2
    assert "say how many there are with --heads N" in capsys.readouterr().err
    assert run(["fix", "here.pt", "--auto", "--like", "wanted.pt", "--qkv-layout", "per-head", "--heads", "5"]) == 1
    assert "5 heads do not divide the 12 rows of queries" in capsys.readouterr().out


def test_a_layout_alone_makes_no_sense(capsys):
    """It belongs to --auto."""
    torch.save(apart(), "here.pt")
    assert run(["fix", "here.pt", "--qkv-layout", "q-k-v"]) == 2
    assert "add --auto and a target" in capsys.readouterr().err


def test_conv1d_is_split_and_turned():
    """GPT-2 keeps inputs × outputs: the parts are split along the other side, and transposed."""
    parts = apart()
    whole = fused(parts, "q-k-v")
    turned = {key: value.t().contiguous() if ".qkv.weight" in key else value for key, value in whole.items()}
    split = fixed(turned, parts, "--qkv-layout", "q-k-v")
    assert all(torch.equal(split[key], parts[key]) for key in parts)


@pytest.mark.parametrize("layout", GROUPS)
def test_linear_layers_are_fused_into_conv1d(layout):
    """The same backwards, in every layout: joined, and transposed as a whole."""
    parts = apart(kv_heads=GROUPS[layout])
    turned = {
        key: value.t().contiguous() if ".qkv.weight" in key else value for key, value in fused(parts, layout).items()
    }
    again = fixed(parts, turned, "--qkv-layout", layout, "--heads", str(HEADS))
    assert list(again) == list(turned)
    assert all(torch.equal(again[key], turned[key]) for key in turned)


@real
def test_the_conv1d_of_transformers_computes_the_same():
    """Three Linear layers into c_attn as GPT-2 has it."""
    parts = apart(layers=1)
    layer = transformers.Conv1D(3 * WIDTH, WIDTH)
    wanted = {key: value for key, value in parts.items() if "_proj." not in key}
    wanted |= {f"layers.0.attn.c_attn.{key}": value.detach() for key, value in layer.state_dict().items()}
    again = fixed(parts, wanted, "--qkv-layout", "q-k-v")
    layer.load_state_dict({key: again[f"layers.0.attn.c_attn.{key}"] for key in ("weight", "bias")}, strict=True)
    inputs = torch.rand(5, WIDTH)
    each = [parts[f"layers.0.attn.{part}_proj.weight"] @ inputs.t() for part in "qkv"]
    bias = torch.cat([parts[f"layers.0.attn.{part}_proj.bias"] for part in "qkv"])
    assert torch.allclose(layer(inputs), torch.cat(each).t() + bias, atol=1e-6)
