"""L903, L905, L907 and L910: what is in an adapter file, and who wrote it."""

from __future__ import annotations

import types
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.edits import Safety
from ckptdoctor.findings import Severity
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from tests.libraries import peft, real
from tests.rules.adapter.nets import adapted, loaded, lora, saved
from tests.rules.examined import found

pytestmark = real

KOHYA = {
    "lora_unet_mid_block_attentions_0_proj_in.lora_down.weight": (2, 4),
    "lora_unet_mid_block_attentions_0_proj_in.lora_up.weight": (4, 2),
    "lora_unet_mid_block_attentions_0_proj_in.alpha": (),
}


def _tensors(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    return {key: torch.ones(shape) for key, shape in shapes.items()}


def test_a_state_dict_that_was_replaced_saves_nothing(tmp_path: Path) -> None:
    """As old training scripts did: the adapter of an adapter is empty, and peft says nothing but a warning."""
    model = adapted()
    model.state_dict = types.MethodType(lambda self, *_, **__: {}, model)
    path = saved(model, tmp_path, safe_serialization=False)
    (finding,) = found(path, "L903")
    assert finding.severity is Severity.ERROR
    assert "checkpoint-*" in finding.advice
    _, warned = loaded(tmp_path)
    assert any("missing adapter keys" in each for each in warned)


def test_empty_safetensors_are_found(tmp_path: Path) -> None:
    """Forty bytes of metadata and no tensor."""
    save_file({}, tmp_path / "adapter_model.safetensors", metadata={"format": "pt"})
    assert len(found(tmp_path / "adapter_model.safetensors", "L903")) == 1


@pytest.mark.parametrize("shape", [(0,), (0, 4), (8,)])
def test_sharded_matrices_are_found(shape: tuple[int, ...], tmp_path: Path) -> None:
    """What ZeRO-3 leaves of a parameter has no elements, or is flat; peft itself warns when it saves that."""
    state = {key: value for key, value in adapted().state_dict().items() if "lora_" in key}
    state = {key: torch.ones(shape) if "lora_A" in key else value for key, value in state.items()}
    torch.save(state, tmp_path / "lora.pt")
    (finding,) = found(tmp_path / "lora.pt", "L903")
    assert finding.message.startswith("2 of 4 keys")


def test_peft_reads_nothing_of_another_layout(tmp_path: Path) -> None:
    """kohya's keys under peft's name: peft warns, and the rule names who reads them."""
    path = saved(adapted(), tmp_path)
    save_file(_tensors(KOHYA), path)
    _, warned = loaded(tmp_path)
    assert any("missing adapter keys" in each for each in warned)
    (finding,) = found(path, "L905")
    assert "kohya" in finding.message
    assert "ComfyUI" in finding.cause


def test_kohya_s_own_file_is_in_order(tmp_path: Path) -> None:
    """Under a name of its own it is what it should be."""
    save_file(_tensors(KOHYA), tmp_path / "style.safetensors")
    for code in ("L901", "L903", "L905", "L906", "L907", "L910"):
        assert not found(tmp_path / "style.safetensors", code)


def test_embeddings_in_full_are_a_remark(tmp_path: Path) -> None:
    """An output layer that was saved with the adapter is most of it."""
    model = adapted(lora(r=1, modules_to_save=["lm_head"]))
    (finding,) = found(saved(model, tmp_path), "L907")
    assert finding.severity is Severity.INFO
    assert "base_model.model.lm_head.weight" in finding.message
    assert "save_embedding_layers=False" in finding.advice
    assert not finding.commands, "whether they were trained the file does not tell: nothing drops them"


def test_a_compiled_word_goes_and_comes_no_more(tmp_path: Path) -> None:
    """The names become those that a plain model gives; values stay."""
    sick = {key.replace("lora_unet_", "lora_unet__orig_mod_"): value for key, value in _tensors(KOHYA).items()}
    path = tmp_path / "style.safetensors"
    save_file(sick, path)
    (finding,) = found(path, "L910")
    assert finding.fix is not None
    assert finding.fix.safety is Safety.SAFE
    out = tmp_path / "out.safetensors"
    repair(plan(FixRequest(str(path), str(out))))
    assert not found(out, "L910")
    save_file(_tensors(KOHYA), tmp_path / "plain.safetensors")
    assert out.read_bytes()[-40:] == path.read_bytes()[-40:]


def test_a_model_that_was_compiled_inside_is_the_affair_of_another_rule(tmp_path: Path) -> None:
    """The token between dots is N404's, which drops it."""
    path = saved(adapted(), tmp_path)
    state = {key.replace("model.layers", "model._orig_mod.layers"): value for key, value in _state(path).items()}
    save_file(state, path, metadata={"format": "pt"})
    assert found(path, "N404")
    assert not found(path, "L910")
    out = tmp_path / "out.safetensors"
    repair(plan(FixRequest(str(path), str(out))))
    assert peft.utils.save_and_load.load_peft_weights(str(tmp_path)) is not None
    assert set(_state(out)) == {key.replace("_orig_mod.", "") for key in state}


def _state(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(path)
