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
    assert "specify the number of heads with --heads N" in capsys.readouterr().err
    assert run(["fix", "here.pt", "--auto", "--like", "wanted.pt", "--qkv-layout", "per-head", "--heads", "5"]) == 1
    assert "5 heads do not divide the 12 rows of queries" in capsys.readouterr().out


def test_a_layout_alone_makes_no_sense(capsys):
    """It belongs to --auto."""
    torch.save(apart(), "here.pt")
    assert run(["fix", "here.pt", "--qkv-layout", "q-k-v"]) == 2
    assert "add --like OTHER or --model MODULE:NAME" in capsys.readouterr().err


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


def projected(state):
    """torch's MultiheadAttention taken apart: three projections, each by itself."""
    made = {}
    for key, value in state.items():
        place, _, leaf = key.rpartition(".in_proj_")
        if place:
            made |= {f"{place}.{part}_proj.{leaf}": each for part, each in zip("qkv", value.chunk(3), strict=True)}
        else:
            made[key] = value
    return {key: value.clone() for key, value in made.items()}


def named(state, *names):
    """The same, the projections called so."""
    words = dict(zip(("q_proj", "k_proj", "v_proj"), names, strict=True))
    return {".".join(words.get(token, token) for token in key.split(".")): value for key, value in state.items()}


def attended(state, name, x):
    """Self-attention computed of three projections."""
    q, k, v = (
        nn.functional.linear(x, state[f"{name}.{part}_proj.weight"], state[f"{name}.{part}_proj.bias"])
        .unflatten(-1, (2, -1))
        .transpose(1, 2)
        for part in "qkv"
    )
    found = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    return nn.functional.linear(found, state[f"{name}.out_proj.weight"], state[f"{name}.out_proj.bias"])


def test_multihead_attention_of_torch_needs_no_word():
    """in_proj_weight beside out_proj is torch's, whose order is known: the parts compute the same, and go in again."""
    torch.manual_seed(0)
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 8, batch_first=True), 2).eval()
    whole = model.state_dict()
    apart_ = projected({key: torch.zeros_like(value) for key, value in whole.items()})
    split = fixed(whole, apart_)
    x = torch.rand(1, 5, 8)
    with torch.no_grad():
        for part in ("self_attn", "multihead_attn"):
            wanted, _ = getattr(model.layers[1], part)(x, x, x)
            assert torch.allclose(attended(split, f"layers.1.{part}", x), wanted, atol=1e-6)
    again = fixed(split, {key: torch.zeros_like(value) for key, value in whole.items()})
    assert list(again) == list(whole)
    assert all(torch.equal(again[key], whole[key]) for key in whole)


@pytest.mark.parametrize("unsafe", [(), ("--unsafe-fixes",)], ids=["plain", "unsafe"])
@pytest.mark.parametrize(
    "change", ["no out_proj", "another fused name", "names of no order", "rows of Meta", "another part", "two of them"]
)
def test_what_is_not_torchs_throughout_is_refused(change, unsafe):
    """Another module around the same name, or parts whose names say no order: the order is not known."""
    layer = nn.TransformerEncoderLayer(8, 2, 8)
    whole = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).state_dict()
    parts = projected(whole)
    if change == "no out_proj":
        whole, parts = ({k.replace("out_proj", "o"): v for k, v in each.items()} for each in (whole, parts))
    elif change == "another fused name":
        whole = {key.replace("in_proj_", "qkv."): value for key, value in whole.items()}
    elif change == "names of no order":
        parts = {
            k.replace("q_proj", "theta").replace("k_proj", "phi").replace("v_proj", "g"): v for k, v in parts.items()
        }
    elif change == "rows of Meta":
        parts = named(parts, "wq", "wk", "wv")
    elif change == "another part":
        parts = {key.replace("q_proj", "q_proj_ema"): value for key, value in parts.items()}
    else:
        parts = {**{key: value + 1 for key, value in named(parts, "query", "key", "value").items()}, **parts}
    torch.save(parts, "here.pt")
    torch.save(whole, "wanted.pt")
    assert run(["fix", "here.pt", "--auto", "--like", "wanted.pt", "-o", "out.pt", *unsafe]) == 1


@pytest.mark.parametrize("unsafe", [(), ("--unsafe-fixes",)], ids=["plain", "unsafe"])
def test_projections_that_two_attentions_could_have_are_given_to_neither(unsafe):
    """A decoder attends to itself and to an encoder: whose the one set of projections is, nobody knows."""
    whole = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 8), 2).state_dict()
    parts = {
        key.replace("self_attn", "attn"): value
        for key, value in projected(whole).items()
        if "multihead_attn" not in key
    }
    torch.save(parts, "here.pt")
    torch.save(whole, "wanted.pt")
    assert run(["fix", "here.pt", "--auto", "--like", "wanted.pt", "-o", "out.pt", *unsafe]) == 1


def test_projections_in_a_module_of_another_name_are_those_of_the_block():
    """Where a block has attention once on both sides, its name does not matter."""
    whole = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8), 2, enable_nested_tensor=False).state_dict()
    parts = {key.replace("self_attn", "attention"): value for key, value in projected(whole).items()}
    again = fixed(parts, {key: torch.zeros_like(value) for key, value in whole.items()})
    assert all(torch.equal(again[key], whole[key]) for key in whole)
