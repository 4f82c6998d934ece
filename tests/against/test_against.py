"""Every tensor of a source is accounted for in an export by its values, or named."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import ckptdoctor
from ckptdoctor.errors import RefusedError, UsageError
from tests.against.exports import HEADS, SHARED, exported, llama, permuted, saved
from tests.commands import run_here

MODEL = llama()
UP, DOWN = "model.layers.{}.mlp.up_proj.weight", "model.layers.{}.mlp.down_proj.weight"
QUERIES, KEYS, VALUES = (f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv")


def stored(arrays, path, dtype=None):
    """A safetensors file of arrays."""
    tensors = {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in arrays.items()}
    save_file({name: each if dtype is None else each.to(dtype) for name, each in tensors.items()}, path)
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return stored(MODEL, tmp_path_factory.mktemp("source") / "model.safetensors")


def failures(report):
    """What is not accounted for: (name, verdict), and the names that come from nowhere."""
    fates = {each.name: each.verdict.value for each in report.fates if not each.verdict.accounted}
    return fates | {each.name: "new" for each in report.new if not each.accounted}


def verdicts(report):
    return {each.verdict.value for each in report.fates}


# ---- exports that are right


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("F32", {"same"}),
        ("F16", {"same", "cast"}),
        ("BF16", {"same", "cast"}),
        ("Q8_0", {"same", "quantised"}),
        ("Q4_0", {"same", "quantised"}),
    ],
)
def test_an_export_to_gguf_is_accounted_for(kind, expected, source, tmp_path):
    """Under llama.cpp's names, with its order of rows, and in each of its formats; the errors are measured."""
    report = ckptdoctor.verify(saved(exported(MODEL), tmp_path / "m.gguf", kind), against=source)
    assert report.accounted and not report.new and verdicts(report) == expected
    (place,) = next(each.places for each in report.fates if each.name == QUERIES)
    assert (place.link.export, place.link.order, place.link.head) == ("blk.0.attn_q.weight", "rotary pairs", 16)
    if kind == "F16":
        rounded = MODEL[QUERIES].astype(np.float16).astype(np.float32)
        assert place.outcome.largest == pytest.approx(float(np.abs(rounded - MODEL[QUERIES]).max()))
        assert place.outcome.mean == pytest.approx(float(np.abs(rounded - MODEL[QUERIES]).mean()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn])
def test_a_cast_is_proven_bit_by_bit(dtype, source, tmp_path):
    """Each number of the export is that of the source, rounded."""
    report = ckptdoctor.verify(stored(MODEL, tmp_path / "cast.safetensors", dtype), against=source)
    assert report.accounted and verdicts(report) == {"cast"}
    by_way_of = stored({name: _rounded(each) for name, each in MODEL.items()}, tmp_path / "wide.safetensors")
    places = [place for each in ckptdoctor.verify(by_way_of, against=source).fates for place in each.places]
    assert {place.outcome.through for place in places} == {"bfloat16"}


def _rounded(values):
    return torch.from_numpy(values).bfloat16().float().numpy()


def test_a_folder_of_shards_and_a_file_of_torch_are_accounted_for(source, tmp_path):
    """Whatever holds the tensors, and whatever is before their names."""
    whole = {f"module.{name}": torch.from_numpy(each) for name, each in MODEL.items()}
    torch.save({"state_dict": whole, "epoch": 3}, tmp_path / "m.pt")
    ckptdoctor.convert(source, f"{tmp_path}/shards/", shard_size="100KB")
    for one, other in ((tmp_path / "m.pt", source), (tmp_path / "shards", tmp_path / "m.pt")):
        report = ckptdoctor.verify(one, against=other)
        assert report.accounted and verdicts(report) == {"same"}


def test_fused_and_split_tensors_are_accounted_for(source, tmp_path):
    """Queries, keys and values in one, as Phi has them, and under names that nothing is known of; and back."""
    fused = {name: each for name, each in MODEL.items() if not any(part in name for part in ("q_", "k_", "v_"))}
    for layer in range(2):
        parts = [MODEL[f"model.layers.{layer}.self_attn.{part}_proj.weight"] for part in "qkv"]
        fused[f"model.layers.{layer}.self_attn.everything.weight"] = np.concatenate(parts)
    fused = {name.replace("gate_proj", "gate_up_proj"): each for name, each in fused.items() if "up_proj" not in name}
    for layer in range(2):
        pair = [MODEL[f"model.layers.{layer}.mlp.{part}_proj.weight"] for part in ("gate", "up")]
        fused[f"model.layers.{layer}.mlp.gate_up_proj.weight"] = np.concatenate(pair)
    path = stored(fused, tmp_path / "fused.safetensors")
    report = ckptdoctor.verify(path, against=source)
    assert report.accounted and verdicts(report) == {"same"}
    place = next(each for each in report.fates if each.name == KEYS).places[0]
    assert place.fused and place.link.export_at == (64 * 64, 0)
    back = ckptdoctor.verify(source, against=path)
    assert back.accounted and any(place.split for each in back.fates for place in each.places)


@pytest.mark.parametrize("ahead", [True, False], ids=["whole rows", "parts of rows"])
@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0"])
@pytest.mark.parametrize("shape", [(320, 704), (6016, 64), (64, 6016), (32, 32), (2, 64)], ids=str)
def test_transposed_matrices_of_any_size_are_read_in_parts(shape, kind, ahead, tmp_path, monkeypatch):
    """Every number of them: one that is another is found, and where it is."""
    if not ahead:
        monkeypatch.setattr("ckptdoctor.against.elements._BOX", 100)
        monkeypatch.setattr("ckptdoctor.against.elements._GAP", 0)
    turned = shape[::-1] if kind == "Q8_0" and shape[0] % 32 else shape
    name = "transformer.h.0.attn.c_proj.weight"
    model = {name: np.random.default_rng(7).standard_normal(turned, np.float32)}
    source = stored(model, tmp_path / "gpt2.safetensors")
    made = {"blk.0.attn_output.weight": model[name].T.copy()}
    report = ckptdoctor.verify(saved(made, tmp_path / "gpt2.gguf", kind, "gpt2"), against=source)
    assert not failures(report)
    at = 71 * made["blk.0.attn_output.weight"].size // 100
    made["blk.0.attn_output.weight"].reshape(-1)[at] += 40
    report = ckptdoctor.verify(saved(made, tmp_path / "gpt2.gguf", kind, "gpt2"), against=source)
    assert failures(report) == {name: "wrong"}
    outcome = report.fates[0].places[0].outcome
    if kind == "Q8_0":
        assert (outcome.first, outcome.differing) == (at // 32 * 32, 32)
    else:
        assert (outcome.first, outcome.differing) == (at, 1)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_gpt2_is_transposed(kind, tmp_path):
    """Its Conv1D have their inputs first; llama.cpp turns them, and so do those who split queries, keys and values."""
    rng = np.random.default_rng(1)
    shapes = {"attn.c_attn": (64, 192), "attn.c_proj": (64, 64), "mlp.c_fc": (64, 256), "mlp.c_proj": (256, 64)}
    model = {f"transformer.h.0.{name}.weight": rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    model["transformer.h.0.attn.c_attn.bias"] = rng.standard_normal(192, np.float32)
    model["transformer.h.0.attn.bias"] = np.tril(np.ones((8, 8), np.uint8)).reshape(1, 1, 8, 8)
    source = stored(model, tmp_path / "gpt2.safetensors")
    names = dict(zip(shapes, ("attn_qkv", "attn_output", "ffn_up", "ffn_down"), strict=True))
    made = {f"blk.0.{names[name]}.weight": model[f"transformer.h.0.{name}.weight"].T for name in shapes}
    made["blk.0.attn_qkv.bias"] = model["transformer.h.0.attn.c_attn.bias"]
    report = ckptdoctor.verify(saved(made, tmp_path / "gpt2.gguf", kind, "gpt2"), against=source)
    assert not failures(report) and "dropped" in verdicts(report)
    if kind == "F32":
        apart = {name: each for name, each in model.items() if "c_attn" not in name and name[-9:] != "attn.bias"}
        for number, part in enumerate(("q_proj", "k_proj", "v_proj")):
            rows = slice(64 * number, 64 * number + 64)
            apart[f"transformer.h.0.attn.{part}.weight"] = model["transformer.h.0.attn.c_attn.weight"].T[rows]
            apart[f"transformer.h.0.attn.{part}.bias"] = model["transformer.h.0.attn.c_attn.bias"][rows]
        split = stored(apart, tmp_path / "split.safetensors")
        assert not failures(ckptdoctor.verify(split, against=source))
        assert not failures(ckptdoctor.verify(source, against=split))


def test_experts_are_stacked(tmp_path):
    """Each expert of the source is a part of one tensor."""
    rng = np.random.default_rng(2)
    parts = {"w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps"}
    model = {
        f"model.layers.0.block_sparse_moe.experts.{expert}.{part}.weight": rng.standard_normal((64, 64), np.float32)
        for expert in range(3)
        for part in parts
    }
    made = {
        f"blk.0.{name}.weight": np.stack(
            [model[f"model.layers.0.block_sparse_moe.experts.{expert}.{part}.weight"] for expert in range(3)]
        )
        for part, name in parts.items()
    }
    source = stored(model, tmp_path / "moe.safetensors")
    assert ckptdoctor.verify(saved(made, tmp_path / "moe.gguf", "Q8_0"), against=source).accounted
    made["blk.0.ffn_up_exps.weight"] = made["blk.0.ffn_up_exps.weight"][[1, 0, 2]]
    wrong = failures(ckptdoctor.verify(saved(made, tmp_path / "moe.gguf", "Q8_0"), against=source))
    assert set(wrong) == {name for name in model if ".w3." in name}


@pytest.mark.parametrize(("architecture", "right"), [("gemma", 1), ("qwen2", 0), ("mystery", 1), ("mystery", 0)])
def test_norms_and_rows_are_as_the_architecture_has_them(architecture, right, source, tmp_path):
    """Gemma's norms have one added, and only llama's rows are permuted; of an unknown one either is right."""

    def shifted(by):
        return {name: each + np.float32(by) if each.ndim == 1 else each for name, each in made.items()}

    made = exported(MODEL, architecture)
    report = ckptdoctor.verify(saved(shifted(right), tmp_path / "m.gguf", "F32", architecture), against=source)
    assert report.accounted
    if architecture != "mystery":
        wrong = ckptdoctor.verify(saved(shifted(1 - right), tmp_path / "m.gguf", "F32", architecture), against=source)
        assert set(failures(wrong).values()) == {"wrong"} and len(failures(wrong)) == 5
        turned = exported(MODEL) if architecture == "qwen2" else made
        wrong = ckptdoctor.verify(saved(turned, tmp_path / "m.gguf", "F32", architecture), against=source)
        assert architecture == "gemma" or len(failures(wrong)) == 4


def test_what_is_one_memory_or_written_twice_is_accounted_for(tmp_path):
    """A head that is tied to the embeddings may be there once or twice."""
    model = {name: torch.from_numpy(each) for name, each in MODEL.items()}
    model["lm_head.weight"] = model["model.embed_tokens.weight"]
    torch.save(model, tmp_path / "tied.pt")
    arrays = {name: each.numpy() for name, each in model.items()}
    twice = ckptdoctor.verify(saved(exported(arrays), tmp_path / "m.gguf"), against=tmp_path / "tied.pt")
    once = {name: each for name, each in exported(arrays).items() if name != "output.weight"}
    report = ckptdoctor.verify(saved(once, tmp_path / "m.gguf"), against=tmp_path / "tied.pt")
    assert twice.accounted and report.accounted
    del arrays["lm_head.weight"]
    source = stored(arrays, tmp_path / "one.safetensors")
    both = saved(exported(MODEL | {"lm_head.weight": arrays["model.embed_tokens.weight"]}), tmp_path / "m.gguf")
    assert ckptdoctor.verify(both, against=source).accounted


# ---- traps: each is named


def _swapped(one, other):
    def change(made):
        made[one], made[other] = made[other], made[one]

    return change


def _put(name, change):
    return lambda made: made.__setitem__(name, change(made[name]))


def _row_zeroed(values):
    values = values.copy()
    values[40, 32:64] = 0
    return values


TRAPS = {
    "two layers swapped": (
        _swapped("blk.0.ffn_up.weight", "blk.1.ffn_up.weight"),
        {UP.format(0): "elsewhere", UP.format(1): "elsewhere"},
    ),
    "keys and values swapped": (
        _swapped("blk.0.attn_k.weight", "blk.0.attn_v.weight"),
        {KEYS: "elsewhere", VALUES: "elsewhere"},
    ),
    "one missing": (lambda made: made.pop("blk.1.ffn_up.weight"), {UP.format(1): "missing"}),
    "one extra": (
        lambda made: made.update({"blk.1.extra.weight": made["blk.1.ffn_up.weight"] * 3}),
        {"blk.1.extra.weight": "new"},
    ),
    "one zeroed": (_put("blk.1.ffn_down.weight", np.zeros_like), {DOWN.format(1): "wrong"}),
    "a block zeroed": (_put("blk.1.ffn_down.weight", _row_zeroed), {DOWN.format(1): "wrong"}),
    "a wrong scale": (_put("blk.1.ffn_down.weight", lambda each: each * np.float32(1.05)), {DOWN.format(1): "wrong"}),
    "rows reversed": (_put("blk.1.ffn_down.weight", lambda each: each[::-1]), {DOWN.format(1): "wrong"}),
    "transposed": (_put("blk.0.attn_output.weight", np.transpose), {QUERIES.replace("q_", "o_"): "wrong"}),
    "not permuted": (_put("blk.0.attn_q.weight", lambda _: MODEL[QUERIES]), {QUERIES: "wrong"}),
    "permuted for other heads": (
        _put("blk.0.attn_q.weight", lambda _: permuted(MODEL[QUERIES], 2 * HEADS)),
        {QUERIES: "wrong"},
    ),
    "permuted twice": (_put("blk.0.attn_k.weight", lambda each: permuted(each, SHARED)), {KEYS: "wrong"}),
    "negated": (_put("blk.0.ffn_gate.weight", np.negative), {UP.format(0).replace("up_", "gate_"): "wrong"}),
}


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("trap", TRAPS)
def test_what_is_wrong_in_an_export_is_named(trap, kind, source, tmp_path):
    """And nothing else is."""
    change, expected = TRAPS[trap]
    made = exported(MODEL)
    change(made)
    assert failures(ckptdoctor.verify(saved(made, tmp_path / "m.gguf", kind), against=source)) == expected


def test_swaps_under_the_same_and_under_unknown_names_are_named(source, tmp_path):
    """Layers, queries and keys, in an export whose names no table knows."""
    renamed = {name.replace("model.layers", "net.stage").replace("_proj", ""): each for name, each in MODEL.items()}
    assert ckptdoctor.verify(stored(renamed, tmp_path / "r.safetensors"), against=source).accounted
    up, down = "net.stage.0.mlp.up.weight", "net.stage.1.mlp.up.weight"
    queries, out = "net.stage.0.self_attn.q.weight", "net.stage.0.self_attn.o.weight"
    pairs = {(up, down): (UP.format(0), UP.format(1)), (queries, out): (QUERIES, QUERIES.replace("q_", "o_"))}
    for (one, other), expected in pairs.items():
        made = dict(renamed)
        _swapped(one, other)(made)
        found = failures(ckptdoctor.verify(stored(made, tmp_path / "r.safetensors"), against=source))
        assert found == dict.fromkeys(expected, "elsewhere")


def test_a_bit_is_enough(source, tmp_path):
    """One flipped bit in the middle of a tensor: the tensor, the number of elements and the first one are named."""
    made = {name: each.copy() for name, each in MODEL.items()}
    made[UP.format(0)].view(np.uint32)[50, 3] ^= 1
    report = ckptdoctor.verify(stored(made, tmp_path / "m.safetensors"), against=source)
    assert failures(report) == {UP.format(0): "wrong"}
    outcome = next(each for each in report.fates if each.name == UP.format(0)).places[0].outcome
    assert (outcome.differing, outcome.first) == (1, 50 * 64 + 3)


def test_a_format_that_is_not_known_is_never_accounted_for(source, tmp_path):
    """It is said that it cannot be compared."""
    from tests.formats.gguf.forge import gguf_bytes

    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({"output_norm.weight": (18, (1, 256), bytes(98))}))
    report = ckptdoctor.verify(path, against=stored({"model.norm.weight": MODEL["lm_head.weight"][:4]}, tmp_path / "s"))
    assert failures(report)["output_norm.weight"] == "new"
    assert "IQ3_XXS, which ckptdoctor cannot unpack" in report.new[0].told


def test_several_sets_of_weights_have_to_be_named(source, tmp_path):
    """An average next to the weights: nobody guesses which is meant."""
    weights = {name: torch.from_numpy(each) for name, each in MODEL.items()}
    torch.save({"state_dict": weights, "ema": {name: each + 1 for name, each in weights.items()}}, tmp_path / "m.pt")
    with pytest.raises(RefusedError, match="2 sets of weights: state_dict, ema"):
        ckptdoctor.verify(source, against=tmp_path / "m.pt")
    assert ckptdoctor.verify(source, against=tmp_path / "m.pt", source_root="state_dict").accounted
    assert failures(ckptdoctor.verify(source, against=tmp_path / "m.pt", source_root="ema"))


# ---- the command


def test_the_command_names_what_is_wrong_and_ends_with_1(source, tmp_path):
    """And with 0 where all is accounted for, or was said to be dropped or added."""
    made = exported(MODEL)
    made["rope_freqs.weight"] = np.arange(8, dtype=np.float32)
    del made["blk.1.ffn_up.weight"]
    path = saved(made, tmp_path / "m.gguf", "Q8_0")
    done = run_here("verify", path, "--against", source, cwd=tmp_path)
    assert done.returncode == 1
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith(f"{path} · not accounted for · 21 tensors of {source}")
    assert lines[1] == f"  missing    {UP.format(1)}"
    assert lines[2] == "  new        rope_freqs.weight   it does not come from the source"
    assert lines[4].startswith("  quantised  11 tensors   as Q8_0; largest error 0.00")
    said = ("--dropped", UP.format(1), "--added", "rope_*")
    done = run_here("verify", path, "--against", source, *said, "--all", cwd=tmp_path)
    assert done.returncode == 0 and "added      1 tensor   rope_freqs.weight" in done.stdout.decode()
    assert "model.norm.weight   output_norm.weight (float32)" in done.stdout.decode()


def test_the_json_has_every_tensor_with_its_places(source, tmp_path):
    """As docs/verify-exports.md lists it."""
    path = saved(exported(MODEL), tmp_path / "m.gguf", "F16")
    done = run_here("verify", path, "--against", source, "--format", "json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["accounted_for"] and len(told["tensors"]) == len(MODEL) and told["new"] == []
    (place,) = next(each["places"] for each in told["tensors"] if each["name"] == KEYS)
    assert (place["tensor"], place["stored_as"], place["order"]) == ("blk.0.attn_k.weight", "float16", "rotary pairs")
    assert 0 < place["mean_error"] < place["largest_error"] < 1e-3


def test_another_shape_is_told_although_every_element_is_there(tmp_path):
    """A row that became a column has the same bytes, and a model does not load it: both are said."""
    tensors = {"conv.weight": torch.randn(6, 4, 1, 1), "row.weight": torch.randn(1, 5), "bias": torch.randn(3)}
    save_file(tensors, tmp_path / "before.safetensors")
    changed = {"conv.weight": tensors["conv.weight"].reshape(6, 4), "row.weight": tensors["row.weight"].reshape(5, 1)}
    save_file(tensors | changed, tmp_path / "after.safetensors")
    report = ckptdoctor.verify(tmp_path / "after.safetensors", against=tmp_path / "before.safetensors")
    assert report.accounted
    shapes = {each.name: each.places[0].reshaped for each in report.fates}
    assert shapes == {"conv.weight": (6, 4), "row.weight": (5, 1), "bias": None}
    line = ["verify", "after.safetensors", "--against", "before.safetensors"]
    told = run_here(*line, cwd=tmp_path).stdout.decode()
    assert "  same       2 tensors   in another shape; conv.weight and row.weight\n" in told
    assert "  same       1 tensor\n" in told
    entries = json.loads(run_here(*line, "--format", "json", cwd=tmp_path).stdout)["tensors"]
    places = {each["name"]: each["places"] for each in entries}
    assert (places["conv.weight"][0]["reshaped"], places["bias"][0]["reshaped"]) == ([6, 4], None)


def test_what_makes_no_sense_is_refused(source, tmp_path):
    """A seal next to a source, options without one, and patterns that match nothing."""
    assert run_here("verify", source, "--all", cwd=tmp_path).returncode == 2
    assert run_here("verify", source, "--against", source, "--tensor", "x", cwd=tmp_path).returncode == 2
    with pytest.raises(UsageError, match="matches no tensor"):
        ckptdoctor.verify(source, against=source, dropped="nothing.*")
    with pytest.raises(UsageError, match="choose one"):
        ckptdoctor.verify(source, "a.seal.json", against=source)


# ---- queries, keys and values group by group


def in_groups(queries, keys, values, groups):
    """As Megatron's ``tools/checkpoint/loader_llama_mistral.py`` fuses them: each group's queries, key and value."""
    parts = [each.reshape(groups, each.shape[0] // groups, *each.shape[1:]) for each in (queries, keys, values)]
    return np.concatenate(parts, axis=1).reshape(-1, *queries.shape[1:])


def attention(groups, heads=8, size=16, width=64):
    """Queries, keys and values apart and fused: (q, k, v) by leaf, and the fused one by leaf."""
    rng = np.random.default_rng(5)
    apart = {
        leaf: [rng.standard_normal((count * size, *tail)).astype(np.float32) for count in (heads, groups, groups)]
        for leaf, tail in (("weight", (width,)), ("bias", ()))
    }
    return apart, {leaf: in_groups(*each, groups) for leaf, each in apart.items()}


@pytest.mark.parametrize(("groups", "name"), [(2, "linear_qkv"), (4, "linear_qkv"), (8, "query_key_value")])
def test_projections_that_are_fused_group_by_group_are_accounted_for(groups, name, tmp_path):
    """In both directions, as they are and rounded: in Megatron, and where each head has its own key and value."""
    apart, fused = attention(groups)
    one = {f"decoder.layers.0.self_attention.{name}.{leaf}": each for leaf, each in fused.items()}
    three = {
        f"model.layers.0.self_attn.{part}_proj.{leaf}": each
        for leaf, every in apart.items()
        for part, each in zip("qkv", every, strict=True)
    }
    whole, parts = stored(one, tmp_path / "one.safetensors"), stored(three, tmp_path / "three.safetensors")
    for export, given in ((whole, parts), (parts, whole)):
        assert verdicts(ckptdoctor.verify(export, against=given)) == {"same"}
        assert ckptdoctor.verify(export, against=given).accounted
    half = stored(one, tmp_path / "half.safetensors", torch.bfloat16)
    report = ckptdoctor.verify(half, against=parts)
    assert report.accounted and verdicts(report) == {"cast"}
    shown = run_here("verify", half, "--against", parts, "--all", cwd=tmp_path).stdout.decode()
    assert "as groups of rows of a fused tensor" in shown
    swapped = fused["weight"].copy()
    swapped[:16], swapped[16:32] = fused["weight"][16:32], fused["weight"][:16]
    wrong = stored({**one, next(iter(one)): swapped}, tmp_path / "swapped.safetensors")
    assert not ckptdoctor.verify(wrong, against=parts).accounted


def test_megatron_takes_its_rows_in_no_other_order(tmp_path):
    """All queries, all keys and all values, one after another, are not what it reads, and not accounted for."""
    apart, _ = attention(2)
    three = {
        f"model.layers.0.self_attn.{part}_proj.weight": each for part, each in zip("qkv", apart["weight"], strict=True)
    }
    given = stored(three, tmp_path / "three.safetensors")
    for name, accounted in (("linear_qkv", False), ("qkv_proj", True)):
        made = {f"decoder.layers.0.self_attention.{name}.weight": np.concatenate(apart["weight"])}
        report = ckptdoctor.verify(stored(made, tmp_path / f"{name}.safetensors"), against=given)
        assert report.accounted is accounted


# ---- vocabularies with rows of padding


EMBEDDINGS, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def padded(model, names, how, rows=32):
    """The same with more rows behind those of some tensors."""
    made = dict(model)
    for name in names:
        last = model[name][-1:]
        some = np.random.default_rng(6).standard_normal((rows, last.shape[1])).astype(np.float32)
        more = {"zeros": np.zeros_like(some), "copies": np.repeat(last, rows, 0), "random": some}[how]
        made[name] = np.concatenate([model[name], more])
    return made


@pytest.mark.parametrize("how", ["zeros", "copies"])
def test_rows_of_padding_are_accounted_for(how, source, tmp_path):
    """Added and left out, as they are and packed; and told."""
    more = stored(padded(MODEL, (EMBEDDINGS, HEAD), how), tmp_path / "more.safetensors")
    packed = saved(exported(padded(MODEL, (EMBEDDINGS, HEAD), how)), tmp_path / "more.gguf", "Q8_0")
    for export, given, rows in ((more, source, 32), (source, more, -32), (packed, source, 32)):
        report = ckptdoctor.verify(export, against=given)
        assert report.accounted
        paddings = {each.name: place.padding for each in report.fates for place in each.places if place.padding}
        assert paddings == {EMBEDDINGS: rows, HEAD: rows}
    shown = run_here("verify", source, "--against", more, cwd=tmp_path).stdout.decode()
    assert "2 tensors    32 rows of padding left out" in shown


def test_other_rows_at_the_end_of_a_vocabulary_are_named(source, tmp_path):
    """They come from nowhere, or are lost, unless that was said to be so; what is no vocabulary is not padded."""
    more = stored(padded(MODEL, (EMBEDDINGS,), "random"), tmp_path / "more.safetensors")
    report = ckptdoctor.verify(more, against=source)
    assert [(each.name, each.accounted) for each in report.new] == [(EMBEDDINGS, False)]
    assert "its last 32 rows" in report.new[0].told
    assert ckptdoctor.verify(more, against=source, added=[EMBEDDINGS]).accounted
    assert failures(ckptdoctor.verify(source, against=more)) == {EMBEDDINGS: "wrong"}
    assert ckptdoctor.verify(source, against=more, dropped=[EMBEDDINGS]).accounted
    other = stored(padded(MODEL, (UP.format(0),), "zeros"), tmp_path / "other.safetensors")
    assert not ckptdoctor.verify(other, against=source).accounted
    damaged = padded(MODEL, (EMBEDDINGS,), "zeros")
    damaged[EMBEDDINGS][3, 3] += 1
    report = ckptdoctor.verify(stored(damaged, tmp_path / "damaged.safetensors"), against=source)
    assert failures(report)[EMBEDDINGS] == "wrong"


# ---- exports and sources in several files


def shards(model, folder, count=3, first_is_small=False, **changes):
    """The same model in so many GGUF files, named and numbered as llama.cpp does."""
    folder.mkdir()
    names = list(model)
    parts = [names[at :: count - first_is_small] for at in range(count - first_is_small)]
    for at, part in enumerate([[], *parts] if first_is_small else parts):
        told = {"split.no": at, "split.count": count, "split.tensors.count": len(names)}
        saved(
            {name: model[name] for name in part},
            folder / f"m-{at + 1:05}-of-{count:05}.gguf",
            **{key: changes.get(f"{key}@{at}", each) for key, each in told.items()},
        )
    return folder


@pytest.mark.parametrize("first_is_small", [False, True])
def test_the_shards_of_a_gguf_file_are_one_export(first_is_small, source, tmp_path):
    """They are named as a folder or by any of them; the first one may have nothing but the metadata."""
    folder = shards(exported(MODEL), tmp_path / "export", first_is_small=first_is_small)
    for path in (folder, folder / "m-00001-of-00003.gguf", folder / "m-00003-of-00003.gguf"):
        report = ckptdoctor.verify(path, against=source)
        assert report.accounted and len(report.fates) == len(MODEL) and verdicts(report) == {"same"}


def test_shards_that_do_not_belong_together_are_refused(source, tmp_path):
    """One is missing, numbers itself otherwise, counts other tensors, has those of another, or is of another file."""
    made = exported(MODEL)
    folder = shards(made, tmp_path / "missing")
    (folder / "m-00002-of-00003.gguf").unlink()
    with pytest.raises(RefusedError, match=r"m-00002-of-00003\.gguf is missing"):
        ckptdoctor.verify(folder, against=source)
    for key, value in (("split.no", 5), ("split.count", 4), ("split.tensors.count", 7)):
        wrong = shards(made, tmp_path / key, **{f"{key}@1": value})
        with pytest.raises(RefusedError, match=rf"m-00002-of-00003\.gguf does not belong .*{key} = {value}"):
            ckptdoctor.verify(wrong, against=source)
    twice = shards(made, tmp_path / "twice", count=1)
    (twice / "m-00001-of-00001.gguf").rename(twice / "m-00001-of-00002.gguf")
    for at in range(2):
        told = {"split.no": at, "split.count": 2, "split.tensors.count": 2 * len(made)}
        saved(made, twice / f"m-{at + 1:05}-of-00002.gguf", **told)
    with pytest.raises(RefusedError, match="have the same tensor"):
        ckptdoctor.verify(twice, against=source)
    both = shards(made, tmp_path / "both")
    saved(made, both / "other-00001-of-00001.gguf")
    with pytest.raises(RefusedError, match=r"2 GGUF files: name the first one .*m-00001-of-00003\.gguf"):
        ckptdoctor.verify(both, against=source)
    renamed = (both / "m-00002-of-00003.gguf").rename(both / "renamed.gguf")
    with pytest.raises(RefusedError, match=r"one of 3 shards, .* such as renamed-00001-of-00003\.gguf"):
        ckptdoctor.verify(renamed, against=source)


@pytest.mark.parametrize("indexed", [False, True])
def test_nothing_is_accounted_for_where_a_shard_is_missing(indexed, tmp_path):
    """Neither of a source nor of an export: what would be in the shard is not known, and nobody would miss it."""
    names = list(MODEL)
    halves = [dict.fromkeys(each) for each in (names[:5], names[5:])]
    (tmp_path / "folder").mkdir()
    first, second = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
    half = {name: MODEL[name] for name in halves[0]}
    stored(half, tmp_path / "folder" / first)
    if indexed:
        table = {**dict.fromkeys(halves[0], first), **dict.fromkeys(halves[1], second)}
        (tmp_path / "folder" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    alone = stored(half, tmp_path / "half.safetensors")
    for export, given in ((alone, tmp_path / "folder"), (tmp_path / "folder", alone)):
        with pytest.raises(RefusedError, match=rf"is incomplete.*{second}"):
            ckptdoctor.verify(export, against=given)
