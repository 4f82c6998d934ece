"""``--clone-shared`` and ``--tie``: storages of their own for tensors that share one, and one for equal ones."""

from __future__ import annotations

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

from ckptdoctor.edits import Clone, Drop, Safety, Tie
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats import open_checkpoint
from ckptdoctor.repair.draft import Draft
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.repair.steps_from_options import option_steps
from tests.libraries import real, transformers
from tests.rules.examined import found, loads

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
LEGACY = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])


def fixed(path, **asked):
    """The file after a repair, and the outcome of it."""
    outcome = repair(plan(FixRequest(str(path), output=str(path.with_name(f"fixed{path.suffix}")), **asked)))
    return outcome, path.with_name(f"fixed{path.suffix}")


def places(tensors):
    """Which tensors lie in one storage."""
    return {key: value.untyped_storage().data_ptr() for key, value in tensors.items()}


def tied_llama():
    """A small model of Llama's kind whose head is its embedding, as transformers ties them."""
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, vocab_size=120, tie_word_embeddings=True))
    model.tie_weights()
    return model


@real
@LEGACY
def test_tied_weights_of_transformers_get_bytes_of_their_own(tmp_path, zipped):
    """safetensors refuses the state dict before, and takes it afterwards; no value changes."""
    model = tied_llama()
    path = tmp_path / "model.pt"
    torch.save(model.state_dict(), path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(RuntimeError, match="share memory"):
        save_file(loads(path), tmp_path / "x.safetensors")
    outcome, out = fixed(path, clone_shared=True)
    assert outcome.proof.remade == 1
    after = loads(out)
    assert len(set(places(after).values())) == len(after)
    assert all(torch.equal(after[key], value) for key, value in model.state_dict().items())
    save_file(after, tmp_path / "x.safetensors")
    assert found(out, "A701") == []


@LEGACY
def test_every_view_of_one_buffer_is_cloned(tmp_path, zipped):
    """Tied, overlapping, transposed and the very same tensor: each gets its elements, in order."""
    base = torch.arange(24.0).reshape(6, 4)
    same = torch.randn(3, 3)
    value = {
        "all": base,
        "top": base[:3],
        "turned": base.t(),
        "a": same,
        "b": same,
        "c": same.detach(),
        "bias": same[0],
    }
    path = tmp_path / "model.pt"
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    _, out = fixed(path, clone_shared=True)
    after = loads(out)
    assert all(torch.equal(after[key], each) for key, each in value.items())
    assert len(set(places(after).values())) == len(value)
    assert after["turned"].is_contiguous()
    assert plan(FixRequest(str(out), clone_shared=True)).recipe is None


def test_parameters_stay_parameters(tmp_path):
    """A clone of a Parameter is one, and requires its gradient as before."""
    weight = nn.Parameter(torch.randn(4, 4))
    path = tmp_path / "model.pt"
    torch.save({"a": weight, "b": weight, "c": nn.Parameter(weight.data, requires_grad=False)}, path)
    _, out = fixed(path, clone_shared=True)
    after = torch.load(out)
    assert [type(each) for each in after.values()] == [nn.Parameter] * 3
    assert [each.requires_grad for each in after.values()] == [True, True, False]
    assert len(set(places(after).values())) == 3


def test_what_is_no_plain_tensor_is_not_cloned(tmp_path):
    """Sparse tensors that share their parts are refused by name."""
    sparse = torch.eye(4).to_sparse()
    torch.save({"a.weight": sparse, "b.weight": sparse}, tmp_path / "model.pt")
    with pytest.raises(RefusedError, match=r"b\.weight"):
        plan(FixRequest(str(tmp_path / "model.pt"), clone_shared=True))


def test_a_format_without_storages_has_nothing_to_clone(tmp_path):
    """In safetensors no tensors share bytes, so nothing is to do."""
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors", {"format": "pt"})
    assert plan(FixRequest(str(tmp_path / "model.safetensors"), clone_shared=True)).recipe is None


@real
@LEGACY
def test_untied_weights_are_tied_again(tmp_path, zipped):
    """The head becomes a view of the embedding; layers that only begin alike, zeros and ones stay as they are."""
    model = tied_llama()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    state["zeros.weight"], state["ones.weight"] = torch.zeros(120, 16), torch.ones(120, 16)
    state["more_zeros.weight"] = torch.zeros(120, 16)
    state["almost.weight"] = state[HEAD].clone()
    state["almost.weight"][60, 3] += 1
    path = tmp_path / "pytorch_model.bin"
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    _, out = fixed(path, tie=True)
    after = loads(out)
    assert all(torch.equal(after[key], value) for key, value in state.items())
    where = places(after)
    assert where[HEAD] == where[EMBEDDING]
    assert len(set(where.values())) == len(state) - 1
    assert out.stat().st_size < path.stat().st_size
    back, _ = fixed(out, clone_shared=True, force=True)
    assert back.proof.remade == 1


@real
def test_in_safetensors_the_embedding_stays(tmp_path):
    """The head goes, the metadata says so, and load_model of safetensors fills the tied model from it."""
    model = tied_llama()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    path = tmp_path / "model.safetensors"
    save_file(state, path, {"format": "pt"})
    _, out = fixed(path, tie=True)
    assert set(load_file(out)) == set(state) - {HEAD}
    with safe_open(out, "pt") as file:
        assert file.metadata() == {"format": "pt", HEAD: EMBEDDING}
    other = tied_llama()
    load_model(other, str(out))
    assert all(torch.equal(value, state[key]) for key, value in other.state_dict().items())


@real
def test_what_save_model_wrote_needs_no_tying(tmp_path):
    """There is one of the two already."""
    save_model(tied_llama(), str(tmp_path / "model.safetensors"), {"format": "pt"})
    assert plan(FixRequest(str(tmp_path / "model.safetensors"), tie=True)).recipe is None


def test_only_the_same_kinds_are_tied(tmp_path):
    """A parameter and a buffer, or two dtypes, are never one; nor are those of two networks in one file."""
    weight = torch.randn(8, 8)
    path = tmp_path / "model.pt"
    torch.save({"a": nn.Parameter(weight.clone()), "b": weight.clone(), "c": weight.double()}, path)
    assert plan(FixRequest(str(path), tie=True)).recipe is None
    torch.save({"model": {"a.weight": weight.clone()}, "model_ema": {"a.weight": weight.clone()}}, path)
    assert plan(FixRequest(str(path), tie=True)).recipe is None


def test_a_name_comes_back_only_for_the_same_bytes(tmp_path):
    """Whoever drops a tensor and ties its name to another one is refused where a single bit differs."""
    weight = torch.randn(32, 8)
    other = weight.clone()
    path = tmp_path / "model.pt"
    edits = (Drop((("head",),)), Tie(("embed",), "head"))
    torch.save({"embed": weight, "head": other}, path)
    Draft(open_checkpoint(str(path))).add("", "", "", Safety.UNSAFE, edits)
    other[31, 7] += 1e-3
    torch.save({"embed": weight, "head": other}, path)
    with pytest.raises(RefusedError, match="have different bytes"):
        Draft(open_checkpoint(str(path))).add("", "", "", Safety.UNSAFE, edits)


def test_the_options_say_what_they_do(tmp_path):
    """Both apply after the names have changed, in this order."""
    torch.save({"a.w": torch.ones(2)}, tmp_path / "model.pt")
    request = FixRequest(str(tmp_path / "model.pt"), to_cpu=True, clone_shared=True, tie=True)
    assert [each.label for each in option_steps(request)] == ["--to-cpu", "--clone-shared", "--tie"]
    assert request.named


@pytest.mark.slow
def test_many_equal_keys_are_tied_in_no_time(tmp_path):
    """Experts that begin as copies of one layer: one pass over the bytes, and few over the keys."""
    torch.manual_seed(0)
    layers = [torch.randn(4, 4) for _ in range(500)]
    state = {f"{number}.experts.{copy}.weight": w.clone() for number, w in enumerate(layers) for copy in range(8)}
    torch.save(state, tmp_path / "model.pt")
    outcome, out = fixed(tmp_path / "model.pt", tie=True)
    after = loads(out)
    assert len(set(places(after).values())) == 500
    assert all(torch.equal(after[key], value) for key, value in state.items())
    assert isinstance(outcome.plan.edits[0], Drop)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_hundreds_of_names_for_one_matrix_are_refused(tmp_path, suffix):
    """Nobody ties so many, and each costs another look at all keys."""
    state = {f"{number}.weight": torch.arange(16.0).reshape(4, 4) for number in range(300)}
    path = tmp_path / f"model{suffix}"
    torch.save(state, path) if suffix == ".pt" else save_file(state, path, {"format": "pt"})
    with pytest.raises(RefusedError, match="256"):
        plan(FixRequest(str(path), tie=True))


def test_a_clone_is_refused_where_there_is_no_tensor(tmp_path):
    """The edit names the place."""
    torch.save({"a": torch.ones(2), "n": 3}, tmp_path / "model.pt")
    with pytest.raises(RefusedError, match="no tensor at n"):
        Draft(open_checkpoint(str(tmp_path / "model.pt"))).add("", "", "", Safety.UNSAFE, (Clone((("n",),)),))


@real
def test_what_is_tied_is_not_called_dropped(tmp_path):
    """It goes and comes back in one step; people are told of the tie alone."""
    torch.save({key: value.clone() for key, value in tied_llama().state_dict().items()}, tmp_path / "m.pt")
    (step,) = plan(FixRequest(str(tmp_path / "m.pt"), tie=True)).steps
    assert [change.kind for change in step.changes] == ["tie"]
