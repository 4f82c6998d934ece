"""L902 and L909: an adapter held against the model that it is to be put on."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import torch
from torch import nn

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.edits import Safety
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Finding
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from tests.libraries import real
from tests.rules.adapter.nets import Framed, Net, adapted, loaded, lora, saved

pytestmark = real

L902, L909 = "L902", "L909"


def _found(path: Path, model: nn.Module, code: str) -> list[Finding]:
    like = path.parent / "base.pt"
    torch.save(model.state_dict(), like)
    return list(check(str(path), Settings(selection=Selection((code,)), like=str(like))).findings)


CONFIGS = {
    "lora": lora,
    "everything": lambda: lora(target_modules=["q_proj", "v_proj", "emb", "conv"], modules_to_save=["lm_head"]),
    "biases": lambda: lora(bias="all"),
    "tokens": lambda: lora(trainable_token_indices={"emb": [1]}),
}


@pytest.mark.parametrize("title", CONFIGS)
def test_its_own_model_is_no_trouble(title: str, tmp_path: Path) -> None:
    """Names and sizes fit, whatever the adapter sits on."""
    path = saved(adapted(CONFIGS[title]()), tmp_path)
    assert _found(path, Net(), L902) == _found(path, Net(), L909) == []


def test_peft_reads_it_once_it_has_the_names_of_the_frame(tmp_path: Path) -> None:
    """Trained on the decoder, read into the model around it: nothing is found before, and all of it after the fix."""
    model = adapted()
    path = saved(model, tmp_path)
    again, warned = loaded(tmp_path, Framed())
    assert any("missing adapter keys" in each for each in warned)
    (finding,) = _found(path, Framed(), L902)
    assert finding.fix is not None
    assert finding.fix.safety is Safety.CONFIRMED
    assert shlex.split(finding.fix.option) == [
        "--strip-prefix", "base_model.model.", "--add-prefix", "base_model.model.model.",
    ]  # fmt: skip
    fixed = tmp_path / "fixed"
    fixed.mkdir()
    (fixed / "adapter_config.json").write_bytes((tmp_path / "adapter_config.json").read_bytes())
    request = FixRequest(
        str(path),
        str(fixed / path.name),
        strip_prefixes=("base_model.model.",),
        add_prefix="base_model.model.model.",
    )
    repair(plan(request))
    again, warned = loaded(fixed, Framed())
    assert not [each for each in warned if "missing adapter keys" in each]
    key = "layers.0.q_proj.lora_B.default.weight"
    wanted = model.state_dict()[f"base_model.model.{key}"]
    assert torch.equal(again.state_dict()[f"base_model.model.model.{key}"], wanted)
    assert not _found(fixed / path.name, Framed(), L902)


def test_the_frame_goes_as_well_as_it_comes(tmp_path: Path) -> None:
    """Trained on the whole model, read into the decoder alone."""
    path = saved(adapted(net=Framed()), tmp_path)
    (finding,) = _found(path, Net(), L902)
    assert finding.fix is not None
    assert finding.fix.option == "--strip-prefix base_model.model.model. --add-prefix base_model.model."


def test_another_width_and_another_vocabulary_are_told(tmp_path: Path) -> None:
    """Each tensor that does not fit is named, with both shapes, and the model that the config names."""
    model = adapted(lora(modules_to_save=["lm_head"]))
    path = saved(model, tmp_path)
    config = tmp_path / "adapter_config.json"
    config.write_text(
        config.read_text().replace('"base_model_name_or_path": null', '"base_model_name_or_path": "some/where"')
    )
    other = Net()
    other.lm_head = nn.Linear(4, 10)
    (finding,) = _found(path, other, L909)
    assert "lm_head.bias is [9], and lm_head.bias there is [10]" in finding.message
    assert "some/where" in finding.advice
    wide = Net()
    wide.layers[0]["q_proj"] = nn.Linear(7, 5)
    (finding,) = _found(path, wide, L909)
    assert finding.message.startswith("2 tensors")
    assert [path[-1] for path in finding.keys] == [
        "base_model.model.layers.0.q_proj.lora_A.weight",
        "base_model.model.layers.0.q_proj.lora_B.weight",
    ]


def test_another_architecture_is_told(tmp_path: Path) -> None:
    """None of the layers is there."""
    path = saved(adapted(), tmp_path)
    (finding,) = _found(path, nn.Sequential(nn.Linear(4, 4)), L909)
    assert finding.message.startswith("2 of 2 layers of the adapter are not in ")
    assert _found(path, nn.Sequential(nn.Linear(4, 4)), L902) == []
