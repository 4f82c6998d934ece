"""A702, A703 and A704: heads of language models that are, were, or should be their embedding."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file, save_model

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.errors import RefusedError
from ckptdoctor.findings import Severity
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from tests.libraries import real, transformers
from tests.rules.examined import found, loads

SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
pytestmark = real

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture
def llama():
    """Makes a small model of Llama's kind."""
    sizes = {**SMALL, "vocab_size": 120}
    return lambda tied: transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, tie_word_embeddings=tied))


def fixed(path, output, code, *, unsafe=False):
    """The file after the repair of one rule."""
    request = FixRequest(str(path), output=str(output), selection=Selection(select=(code,)), unsafe=unsafe)
    return repair(plan(request)).plan.output


def test_what_save_model_keeps_of_a_tied_model(tmp_path, llama):
    """safetensors keeps the head's name; the repair adds the embedding, and transformers loads both."""
    model = llama(True)
    save_model(model, str(tmp_path / "model.safetensors"), metadata={"format": "pt"})
    (finding,) = found(tmp_path / "model.safetensors", "A702")
    assert finding.severity is Severity.WARNING
    assert "metadata" in finding.cause
    output = fixed(tmp_path / "model.safetensors", tmp_path / "fixed.safetensors", "A702")
    tensors = load_file(output)
    assert torch.equal(tensors[EMBEDDING], model.lm_head.weight)
    assert model.load_state_dict(tensors).missing_keys == []
    assert found(output, "A702") == []


def test_the_name_is_a_view_in_a_file_of_torch(tmp_path, llama):
    """A pytorch_model.bin with the head only, under a config that ties it."""
    model = llama(True)
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    state = {key: value for key, value in model.state_dict().items() if key != EMBEDDING}
    torch.save(state, tmp_path / "pytorch_model.bin")
    output = fixed(tmp_path / "pytorch_model.bin", tmp_path / "fixed.bin", "A702")
    tensors = loads(output)
    assert tensors[EMBEDDING].data_ptr() == tensors[HEAD].data_ptr()


def test_what_save_pretrained_writes_is_healthy(tmp_path, llama):
    """The embedding without the head, and both of them untied: neither A702, A703 nor A704."""
    for tied in (True, False):
        folder = tmp_path / str(tied)
        llama(tied).save_pretrained(folder)
        torch.save(llama(tied).state_dict(), folder / "pytorch_model.bin")
        for name in ("model.safetensors", "pytorch_model.bin"):
            assert [found(folder / name, code) for code in ("A702", "A703", "A704")] == [[], [], []]


def test_a_recogniser_of_speech_has_no_embedding(tmp_path):
    """Its head is called lm_head as well."""
    sizes = {"conv_dim": (8, 8), "conv_kernel": (3, 3), "conv_stride": (2, 2), "num_feat_extract_layers": 2}
    groups = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    config = transformers.Wav2Vec2Config(**SMALL, vocab_size=32, **sizes, **groups)
    torch.save(transformers.Wav2Vec2ForCTC(config).state_dict(), tmp_path / "a.pt")
    assert found(tmp_path / "a.pt", "A702") == []


def test_one_matrix_twice_becomes_one(tmp_path, llama):
    """Equal checksums; the repair ties them, and every value is what it was."""
    model = llama(True)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    torch.save(state, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "A703")
    assert finding.severity is Severity.INFO
    output = fixed(tmp_path / "a.pt", tmp_path / "b.pt", "A703", unsafe=True)
    tensors = loads(output)
    assert tensors[EMBEDDING].data_ptr() == tensors[HEAD].data_ptr()
    assert set(tensors) == set(state)
    assert all(torch.equal(tensors[key], value) for key, value in state.items())
    assert (tmp_path / "b.pt").stat().st_size < (tmp_path / "a.pt").stat().st_size


def test_two_matrices_under_a_config_that_ties_them(tmp_path, llama):
    """A warning that names the line to change; with it changed there is none."""
    torch.save(llama(False).state_dict(), tmp_path / "pytorch_model.bin")
    for tied, number in ((True, 1), (False, 0)):
        (tmp_path / "config.json").write_text(json.dumps({"tie_word_embeddings": tied}), encoding="utf-8")
        assert len(found(tmp_path / "pytorch_model.bin", "A704")) == number


def test_without_checksums_nothing_is_said(tmp_path, llama):
    """safetensors keeps none: equal or not, A703 and A704 are silent."""
    state = {key: value.clone() for key, value in llama(True).state_dict().items()}
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text('{"tie_word_embeddings": true}', encoding="utf-8")
    assert [found(tmp_path / "model.safetensors", code) for code in ("A703", "A704")] == [[], []]


def test_bytes_are_compared_where_there_are_no_checksums(tmp_path, llama):
    """safetensors keeps none: a deep examination finds the head that is the embedding, and one that has left it."""
    model = llama(False)
    model.lm_head.weight.data.copy_(model.model.embed_tokens.weight.data)
    path = tmp_path / "model.safetensors"
    save_file({key: value.clone() for key, value in model.state_dict().items()}, path, {"format": "pt"})
    assert found(path, "A703") == []
    (finding,) = found(path, "A703", deep=True)
    assert "have the same bytes" in finding.message
    assert "--tie" in finding.advice
    (tmp_path / "config.json").write_text(json.dumps({"tie_word_embeddings": True}))
    assert found(path, "A704", deep=True) == []
    model.lm_head.weight.data[-1, -1] += 1
    save_file(model.state_dict(), path, {"format": "pt"})
    assert found(path, "A703", deep=True) == []
    assert found(path, "A704") == []
    assert len(found(path, "A704", deep=True)) == 1


def test_a_legacy_file_is_compared_as_well(tmp_path, llama):
    """It has no checksums, either."""
    model = llama(False)
    state = {**model.state_dict(), HEAD: model.model.embed_tokens.weight.data.clone()}
    torch.save(state, tmp_path / "model.pt", _use_new_zipfile_serialization=False)
    assert len(found(tmp_path / "model.pt", "A703", deep=True)) == 1


def test_a_head_that_only_has_the_checksum_is_not_tied(tmp_path, llama):
    """Before the repair all bytes are compared: the checksums in the archive may lie."""
    model = llama(False)
    state = {**model.state_dict(), HEAD: model.model.embed_tokens.weight.data.clone()}
    path = tmp_path / "model.pt"
    torch.save(state, path)
    data = bytearray(path.read_bytes())
    at = data.index(bytes(state[HEAD].numpy().tobytes()))
    data[data.index(bytes(state[HEAD].numpy().tobytes()), at + 1)] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(RefusedError, match="different bytes"):
        fixed(path, tmp_path / "fixed.pt", "A703", unsafe=True)
