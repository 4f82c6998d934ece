"""Models of transformers with and without their heads, with adapters of peft, and under older names."""

from __future__ import annotations

import pytest
import torch

from tests.libraries import peft, real, transformers
from tests.real.bench import equal, under

pytestmark = [real, pytest.mark.filterwarnings("ignore")]

SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
WORDS = {"vocab_size": 50, "max_position_embeddings": 20, **SIZES}
GPT2 = {"vocab_size": 50, "n_positions": 20, "n_embd": 16, "n_layer": 2, "n_head": 2}
SETTINGS = {
    "bert": WORDS,
    "roberta": WORDS,
    "vit": {"image_size": 16, "patch_size": 8, **SIZES},
    "gpt2": {**GPT2, "bos_token_id": 0, "eos_token_id": 0},
    "llama": {"vocab_size": 50, **SIZES},
}
TOKENS = torch.tensor([[3, 1, 4, 1, 5]])


def built(name, **options):
    """A small model by the name of its class."""
    kind = getattr(transformers, name)
    config = kind.config_class(**SETTINGS[kind.config_class.model_type])
    return kind(config, **options)


def headed():
    """Models with a head, the attribute that holds the base model, and the same base model alone."""
    plain = {"add_pooling_layer": False}
    return {
        "bert": (built("BertForSequenceClassification"), "bert", built("BertModel")),
        "bert, tied": (built("BertForMaskedLM"), "bert", built("BertModel", **plain)),
        "roberta": (built("RobertaForMaskedLM"), "roberta", built("RobertaModel", **plain)),
        "vit": (built("ViTForImageClassification"), "vit", built("ViTModel", **plain)),
    }


HEADED = ("bert", "bert, tied", "roberta", "vit")


@pytest.mark.parametrize("name", HEADED)
def test_the_head_is_left_over_until_somebody_drops_it(name, bench):
    """A base model loads the file of a model with a head once the head is dropped, which is asked for by name."""
    model, attribute, base = headed()[name]
    said = bench.refuse(model.state_dict(), base)
    assert "every key of target.pt fits, but " in said
    assert "left over: " in said
    assert "[fix:" not in bench.findings()["R002"], "the file has the only copy of the head"
    assert "--write-map" in said and "--drop" not in said
    assert bench.repair(model.state_dict(), base, "--unsafe-fixes")[0] in ("N409", "N410")
    assert equal(base.state_dict(), getattr(model, attribute).state_dict())


@pytest.mark.parametrize("name", HEADED)
def test_a_head_is_never_made_up(name, bench):
    """A model with a head does not load the base model's file: the refusal names the head as missing."""
    model, attribute, base = headed()[name]
    own = [key for key in model.state_dict() if not key.startswith(f"{attribute}.")]
    for options in ((), ("--unsafe-fixes",)):
        said = bench.refuse(base.state_dict(), model, *options)
        fit = len(base.state_dict()) + sum(key.endswith("decoder.weight") for key in own)  # that is the embedding
        assert f"{fit} of {len(model.state_dict())} keys would fit" in said
        assert f"missing: {own[0]}" in said


def test_one_head_is_never_taken_for_another(bench):
    """Of the same shape as what the target wants in its place, but of another task: that is a guess, and said so."""
    said = bench.refuse(built("BertForNextSentencePrediction").state_dict(), built("BertForSequenceClassification"))
    assert "missing: classifier.weight" in said
    assert "left over: cls.seq_relationship.weight" in said
    said = bench.refuse(built("BertForTokenClassification").state_dict(), built("BertForQuestionAnswering"))
    assert "missing: qa_outputs.weight" in said


def test_a_part_of_the_head_is_never_taken_for_the_pooler(bench):
    """The pooler is missing, and a layer of its shape left over: not even --unsafe-fixes puts it there."""
    model, base = built("BertForMaskedLM"), built("BertModel")
    for options in ((), ("--unsafe-fixes",)):
        said = bench.refuse(model.state_dict(), base, *options)
        assert "missing: pooler.dense.weight, pooler.dense.bias" in said


def test_a_tied_head_is_dropped(bench):
    """The language model's head is the embedding a second time: the base model does without it, losing nothing."""
    model, base = built("GPT2LMHeadModel").eval(), built("GPT2Model").eval()
    assert bench.repair(model.state_dict(), base)[0] in ("N409", "N410")
    assert torch.equal(base(TOKENS).last_hidden_state, model.transformer(TOKENS).last_hidden_state)


def test_a_tied_head_is_the_embedding(bench):
    """The other way round the head gets its name as well: the target says that both are one tensor."""
    base, target = built("GPT2Model").eval(), built("GPT2LMHeadModel").eval()
    assert bench.repair(base.state_dict(), target) == ["N410", "R005"]
    assert torch.equal(target.lm_head.weight, base.wte.weight)
    assert torch.equal(target.transformer(TOKENS).last_hidden_state, base(TOKENS).last_hidden_state)


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "in DataParallel"])
def test_gamma_and_beta_of_tensorflow(wrapped, bench):
    """The names that norms had in the first BERT files, in one wrapper as well."""
    model, target = (built("BertForSequenceClassification").eval() for _ in range(2))
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    saved = model.state_dict()
    for new, old in names.items():
        saved = {key.replace(new, old): value for key, value in saved.items()}
    assert bench.repair(under("module.", saved) if wrapped else saved, target)[-1] == "N414"
    assert torch.equal(target(TOKENS).logits, model(TOKENS).logits)


def permuted(state_dict):
    """Under the names that Meta gave to the parts of Llama; there the rows of wq and wk stand in another order."""
    words = {
        "model.embed_tokens": "tok_embeddings",
        "model.norm": "norm",
        "lm_head": "output",
        "model.layers": "layers",
        "self_attn": "attention",
        "q_proj": "wq",
        "k_proj": "wk",
        "v_proj": "wv",
        "o_proj": "wo",
        "mlp": "feed_forward",
        "gate_proj": "w1",
        "down_proj": "w2",
        "up_proj": "w3",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    for new, old in words.items():
        state_dict = {key.replace(new, old): value for key, value in state_dict.items()}
    return state_dict


def test_names_of_another_code_are_not_enough(bench):
    """Llama in Meta's own names: the order of rows depends on the heads, of which nobody says how many there are."""
    model = built("LlamaForCausalLM")
    said = bench.refuse(permuted(model.state_dict()), model)
    assert "ckptdoctor fix sick.pt --heads 4 --auto --like target.pt -o well.pt" in said


def adapted(model, **config):
    """The model with adapters, of which the second half is not zero any more."""
    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=2, **config))
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            torch.nn.init.ones_(parameter)
    return wrapped


def test_a_whole_model_with_adapters(bench):
    """Saved by itself instead of through peft: the base is found, and the adapters are left over, not dropped."""
    target, model = (built("LlamaForCausalLM").eval() for _ in range(2))
    expected = model(TOKENS).logits
    saved = adapted(model, target_modules=["q_proj", "v_proj"]).state_dict()
    said = bench.refuse(saved, target)
    assert "every key of target.pt fits, but 12 keys are left over: " in said
    assert "left over: model.layers.0.self_attn.q_proj.lora_A.default.weight" in said
    bench.repair(saved, target, "--unsafe-fixes")
    assert torch.equal(target(TOKENS).logits, expected)


def test_merged_adapters_need_no_repair(bench):
    """After merging, the file is the model's own, and computes what the adapted model did."""
    target, model = (built("LlamaForCausalLM").eval() for _ in range(2))
    wrapped = adapted(model, target_modules=["q_proj", "v_proj"]).eval()
    expected = wrapped(TOKENS).logits
    assert bench.repair(wrapped.merge_and_unload().state_dict(), target) == []
    assert torch.allclose(target(TOKENS).logits, expected, atol=1e-5)


def test_a_trained_head_is_never_exchanged_for_its_original(bench):
    """peft keeps a head twice, as it was and as it was trained: neither is put into the model by guess."""
    model, target = (built("BertForSequenceClassification") for _ in range(2))
    saved = adapted(model, target_modules=["query", "value"], task_type="SEQ_CLS").state_dict()
    for options in ((), ("--unsafe-fixes",)):
        assert "missing: classifier.weight, classifier.bias" in bench.refuse(saved, target, *options)


def test_query_and_key_are_told_by_their_names(bench):
    """Other words for query, key and value, in another order: each finds its own."""
    model, target = (built("BertModel").eval() for _ in range(2))
    words = {"self.query": "self.q_lin", "self.key": "self.k_lin", "self.value": "self.v_lin"}
    saved = dict(sorted(model.state_dict().items()))
    for new, old in words.items():
        saved = {key.replace(new, old): value for key, value in saved.items()}
    bench.repair(dict(sorted(saved.items())), target)
    assert torch.equal(target(TOKENS).last_hidden_state, model(TOKENS).last_hidden_state)


@pytest.mark.parametrize("words", [("first", "second"), ("alpha", "beta_"), ("w1", "w2"), ("0", "1")])
def test_query_and_key_are_never_told_by_their_order(words, bench):
    """Names that do not say which is which: all shapes fit both ways, and nothing is picked in silence."""
    model, target = (built("BertModel") for _ in range(2))
    saved = model.state_dict()
    for new, old in zip(("self.query", "self.key"), words, strict=True):
        saved = {key.replace(new, f"self.{old}"): value for key, value in saved.items()}
    assert "of 55 keys would fit" in bench.refuse(saved, target)


def test_two_norms_are_never_told_by_their_order(bench):
    """The two norms of a block under names that say nothing."""
    model, target = (built("LlamaForCausalLM") for _ in range(2))
    saved = model.state_dict()
    for new, old in {"input_layernorm": "norm_x", "post_attention_layernorm": "norm_y"}.items():
        saved = {key.replace(new, old): value for key, value in saved.items()}
    assert "guessed from their order" in bench.refuse(saved, target)
