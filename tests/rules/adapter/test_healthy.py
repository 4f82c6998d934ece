"""What peft writes itself is in order, whatever the adapter."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from tests.libraries import peft, real
from tests.rules.adapter.nets import adapted, lora, saved

pytestmark = real

CONFIGS = {
    "lora": lora,
    "with layers to save and biases": lambda: lora(modules_to_save=["lm_head"], bias="lora_only"),
    "all biases": lambda: lora(bias="all"),
    "on embeddings and convolutions": lambda: lora(target_modules=["emb", "conv"]),
    "by a regular expression": lambda: lora(target_modules=r".*\.(q|v)_proj"),
    "dora with ranks of their own": lambda: lora(use_dora=True, rank_pattern={"layers.1.q_proj": 3, "v_proj": 5}),
    "some tokens": lambda: lora(trainable_token_indices={"emb": [1, 2]}),
    "loha": lambda: peft.LoHaConfig(r=2, target_modules=["q_proj"]),
    "lokr": lambda: peft.LoKrConfig(r=2, target_modules=["q_proj"]),
    "ia3": lambda: peft.IA3Config(target_modules=["q_proj"], feedforward_modules=[]),
    "vera": lambda: peft.VeraConfig(r=2, target_modules=["q_proj"]),
    "a parameter": lambda: lora(target_modules=[], target_parameters=["layers.0.q_proj.weight"]),
}


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("title", CONFIGS)
def test_what_peft_writes_has_no_warning(title: str, safe: bool, tmp_path: Path) -> None:
    """No rule finds more than a remark in it."""
    path = saved(adapted(CONFIGS[title]()), tmp_path, safe_serialization=safe)
    assert [each for each in check(str(path)).findings if each.severity is not Severity.INFO] == []


def test_several_adapters_are_files_of_their_own(tmp_path: Path) -> None:
    """Each lies in a folder of its name, and none holds the other."""
    model = adapted()
    model.add_adapter("other", lora(r=3))
    saved(model, tmp_path)
    for path in (tmp_path / "adapter_model.safetensors", tmp_path / "other" / "adapter_model.safetensors"):
        assert not check(str(path)).findings


def test_a_compiled_model_saves_plain_names(tmp_path: Path) -> None:
    """torch.compile around the model with the adapter leaves no trace."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(adapted())
    path = saved(compiled, tmp_path)
    assert not check(str(path)).findings


def test_a_merged_model_is_a_plain_one(tmp_path: Path) -> None:
    """After merge_and_unload there is nothing of peft in the state dict."""
    torch.save(adapted().merge_and_unload().state_dict(), tmp_path / "merged.pt")
    assert not check(str(tmp_path / "merged.pt")).findings
