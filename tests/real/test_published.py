"""Checkpoints in the layout of one code base, brought to another one's: both compute the same."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from tests.commands import run
from tests.libraries import real, transformers
from tests.real.published import MetaLlama, OpenAIClip

TOKENS = torch.tensor([1, 5, 2, 11, 7, 3])
IMAGES = torch.linspace(-1, 1, 2 * 3 * 8 * 8).view(2, 3, 8, 8)
TEXTS = torch.tensor([[1, 4, 9, 15, 0, 0, 0], [3, 8, 2, 6, 5, 15, 0]])

LLAMA = {
    "vocab_size": 16,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "architectures": ["LlamaForCausalLM"],
}


def llama():
    """The model of transformers, with numbers of its own."""
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)).eval()


def meta():
    """Meta's, with other numbers."""
    torch.manual_seed(2)
    return MetaLlama().eval()


def clips():
    """OpenAI's CLIP, and that of transformers."""
    torch.manual_seed(3)
    half = {"hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2, "num_hidden_layers": 2}
    text = {**half, "vocab_size": 16, "max_position_embeddings": 7, "eos_token_id": 2, "pad_token_id": 0}
    vision = {**half, "image_size": 8, "patch_size": 4}
    config = transformers.CLIPConfig(projection_dim=8, text_config=text, vision_config=vision)
    return OpenAIClip().eval(), transformers.CLIPModel(config).eval()


def fixed(folder, source, *words):
    """What the command writes, which must be proven and complete."""
    done = run("fix", source, *words, "-o", f"out{source[source.rindex('.') :]}", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    made = next(folder.glob("out.*"))
    return load_file(made) if made.suffix == ".safetensors" else torch.load(made, weights_only=True)


def refused(folder, source, *words):
    """Why nothing is written."""
    done = run("fix", source, *words, "-o", "out.pt", cwd=folder)
    assert (done.returncode, list(folder.glob("out.*"))) == (1, []), done.stdout
    return done.stdout.decode()


def logits(model):
    """What the model of transformers says to the tokens."""
    with torch.no_grad():
        return model(TOKENS[None]).logits[0]


@real
def test_metas_llama_computes_the_same_in_transformers(tmp_path):
    """Grouped queries and all: the number of heads is that of the target's config."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"model_type": "llama"}))
    torch.save(meta().state_dict() | {"rope.freqs": torch.rand(2)}, tmp_path / "m.pth")
    target = llama()
    target.load_state_dict(fixed(tmp_path, "m.pth", "--config", "config.json"))
    with torch.no_grad():
        assert torch.allclose(logits(target), meta()(TOKENS), atol=1e-5)


@real
def test_a_llama_of_transformers_computes_the_same_in_metas_code(tmp_path):
    """The other way, with the config beside the file."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"model_type": "llama"}))
    torch.save(llama().state_dict(), tmp_path / "pytorch_model.bin")
    torch.save(meta().state_dict(), tmp_path / "like.pt")
    target = meta()
    target.load_state_dict(fixed(tmp_path, "pytorch_model.bin", "--like", "like.pt"))
    with torch.no_grad():
        assert torch.allclose(target(TOKENS), logits(llama()), atol=1e-5)


@real
def test_heads_from_params_json_and_from_the_option_are_the_same(tmp_path):
    """Meta's file beside its params, and any file with --heads; without either nothing is written."""
    torch.save(llama().state_dict(), tmp_path / "like.pt")
    torch.save(meta().state_dict(), tmp_path / "consolidated.00.pth")
    said = refused(tmp_path, "consolidated.00.pth", "--like", "like.pt")
    assert "ckptdoctor fix consolidated.00.pth --heads 4 --auto --like like.pt -o out.pt" in said
    told = fixed(tmp_path, "consolidated.00.pth", "--like", "like.pt", "--heads", "4")
    (tmp_path / "out.pth").unlink()
    (tmp_path / "params.json").write_text(json.dumps({"dim": 16, "n_heads": 4, "n_kv_heads": 2, "n_layers": 2}))
    read = fixed(tmp_path, "consolidated.00.pth", "--like", "like.pt")
    assert all(torch.equal(value, read[key]) for key, value in told.items())


@real
def test_files_that_say_different_numbers_of_heads_decide_nothing(tmp_path):
    """Both are named."""
    (tmp_path / "like").mkdir()
    (tmp_path / "like/config.json").write_text(json.dumps(LLAMA | {"model_type": "llama"}))
    torch.save(llama().state_dict(), tmp_path / "like/pytorch_model.bin")
    torch.save(meta().state_dict(), tmp_path / "consolidated.00.pth")
    (tmp_path / "params.json").write_text(json.dumps({"n_heads": 2}))
    said = refused(tmp_path, "consolidated.00.pth", "--like", "like/pytorch_model.bin")
    assert "config.json has 4" in said
    assert "params.json has 2" in said


@real
@pytest.mark.parametrize("heads", ["0", "3", "16", "-4"])
def test_a_number_of_heads_that_cannot_be_is_refused(tmp_path, heads):
    """It does not divide the rows, or leaves a head of one."""
    torch.save(llama().state_dict(), tmp_path / "like.pt")
    torch.save(meta().state_dict(), tmp_path / "m.pt")
    assert f"{heads} heads" in refused(tmp_path, "m.pt", "--like", "like.pt", "--heads", heads)


@real
@pytest.mark.parametrize("back", [False, True], ids=["to transformers", "to OpenAI"])
def test_openais_clip_and_that_of_transformers_compute_the_same(tmp_path, back):
    """Projections split and fused, and square matrices transposed, as the names say."""
    openai, hugging = clips()
    source, target = (hugging, openai) if back else (openai, hugging)
    torch.save(source.state_dict(), tmp_path / "c.pt")
    torch.save(target.state_dict(), tmp_path / "like.pt")
    target.load_state_dict(fixed(tmp_path, "c.pt", "--like", "like.pt"))
    with torch.no_grad():
        images, texts = openai(IMAGES, TEXTS)
        assert torch.allclose(hugging.get_image_features(IMAGES).pooler_output, images, atol=1e-5)
        assert torch.allclose(hugging.get_text_features(TEXTS).pooler_output, texts, atol=1e-5)


@real
@pytest.mark.parametrize("change", ["one key less", "one key more", "another size", "codes"])
def test_a_layout_counts_only_as_a_whole(tmp_path, change):
    """Half of it is nothing: no key is renamed, and no row is permuted."""
    state = meta().state_dict()
    if change == "one key less":
        del state["layers.1.feed_forward.w2.weight"]
    elif change == "one key more":
        state["layers.1.attention.wg.weight"] = torch.rand(16, 16)
    elif change == "another size":
        state["output.weight"] = torch.rand(17, 16)
    else:
        state["layers.1.feed_forward.w2.weight"] = torch.ones(16, 24, dtype=torch.int8)
    torch.save(llama().state_dict(), tmp_path / "like.pt")
    torch.save(state, tmp_path / "m.pt")
    assert "another code base arranged these values" in refused(tmp_path, "m.pt", "--like", "like.pt", "--heads", "4")


def mixtures():
    """A mixture of transformers whose experts are stacked, and its state as files have it: each expert by itself."""
    config = {k: v for k, v in LLAMA.items() if k != "architectures"}
    torch.manual_seed(4)
    made = transformers.Qwen3MoeConfig(
        **config, num_experts=11, num_experts_per_tok=2, moe_intermediate_size=12, head_dim=4
    )
    return transformers.Qwen3MoeForCausalLM(made).eval()


@real
@pytest.mark.parametrize("back", [False, True], ids=["stacked", "apart"])
def test_experts_apart_and_stacked_are_those_of_from_pretrained(tmp_path, back):
    """What transformers itself saves, each expert by itself, becomes what its model holds; and back, bit for bit."""
    model = mixtures()
    model.save_pretrained(tmp_path / "hf")
    apart = load_file(tmp_path / "hf/model.safetensors")
    stacked = {key: value.clone() for key, value in model.state_dict().items()}
    assert "model.layers.0.mlp.experts.10.gate_proj.weight" in apart
    source, wanted = (stacked, apart) if back else (apart, stacked)
    torch.save(source, tmp_path / "m.pt")
    torch.save({key: torch.zeros_like(value) for key, value in wanted.items()}, tmp_path / "like.pt")
    made = fixed(tmp_path, "m.pt", "--like", "like.pt")
    assert made.keys() == wanted.keys()
    assert all(torch.equal(value, made[key]) for key, value in wanted.items())


@real
@pytest.mark.parametrize("back", [False, True], ids=["to Llama", "to Phi-3"])
def test_phi_3_and_its_llama_compute_the_same(tmp_path, back):
    """Fused projections split and joined: the first layers of both have one order, queries, keys, values; gate, up."""
    sizes = {key: value for key, value in LLAMA.items() if key not in ("architectures", "num_key_value_heads")}
    torch.manual_seed(6)
    phi = transformers.Phi3ForCausalLM(transformers.Phi3Config(**sizes)).eval()
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**sizes, rms_norm_eps=phi.config.rms_norm_eps)
    ).eval()
    source, target = (model, phi) if back else (phi, model)
    torch.save(source.state_dict(), tmp_path / "m.pt")
    torch.save(target.state_dict(), tmp_path / "like.pt")
    target.load_state_dict(fixed(tmp_path, "m.pt", "--like", "like.pt"))
    assert torch.allclose(logits(phi), logits(model), atol=1e-5)


@real
@pytest.mark.parametrize("unsafe", [(), ("--unsafe-fixes",)], ids=["plain", "unsafe"])
def test_a_qwen2_without_the_biases_of_its_first_layer_is_not_taken_for_a_llama(tmp_path, unsafe):
    """With them nothing is permuted; without them nobody knows what it is."""
    sizes = {key: value for key, value in LLAMA.items() if key != "architectures"}
    state = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes)).state_dict()
    words = (("model.", ""), ("embed_tokens", "tok_embeddings"), ("self_attn", "attn"), ("o_proj", "output_proj"),
             ("mlp.gate_proj", "mlp.w1"), ("mlp.down_proj", "mlp.w2"), ("mlp.up_proj", "mlp.w3"),
             ("post_attention_layernorm.weight", "mlp_norm.scale"), ("input_layernorm.weight", "sa_norm.scale"),
             ("lm_head", "output"))  # fmt: skip
    tune = {}
    for key, value in state.items():
        for old, new in words:
            key = key.replace(old, new)
        tune["norm.scale" if key == "norm.weight" else key] = value.clone()
    torch.save(state, tmp_path / "like.pt")
    torch.save(tune, tmp_path / "whole.pt")
    made = fixed(tmp_path, "whole.pt", "--like", "like.pt", *unsafe)
    assert all(torch.equal(value, made[key]) for key, value in state.items())
    (tmp_path / "out.pt").unlink()
    torch.save({key: value for key, value in tune.items() if key != "layers.0.attn.q_proj.bias"}, tmp_path / "less.pt")
    refused(tmp_path, "less.pt", "--like", "like.pt", "--heads", "4", *unsafe)
