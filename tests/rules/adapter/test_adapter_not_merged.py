"""L906: a whole model with an adapter in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.targets import read_reference
from ckptdoctor.facts.adapters import AdapterPart, part_of
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest, substitution
from tests.libraries import peft, real
from tests.rules.adapter.nets import Net, adapted, lora
from tests.rules.examined import found

pytestmark = real

CODE = "L906"
MERGED = {"lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "ia3_l"}
CONFIGS = {
    "lora": lora,
    "embeddings and convolutions": lambda: lora(target_modules=["emb", "conv", "q_proj"]),
    "some tokens": lambda: lora(trainable_token_indices={"emb": [1, 2]}),
    "dora": lambda: lora(use_dora=True),
    "loha": lambda: peft.LoHaConfig(r=2, target_modules=["q_proj"]),
    "lokr": lambda: peft.LoKrConfig(r=2, target_modules=["q_proj"]),
    "ia3": lambda: peft.IA3Config(target_modules=["q_proj"], feedforward_modules=[]),
    "vera": lambda: peft.VeraConfig(r=2, target_modules=["q_proj"]),
    "boft": lambda: peft.BOFTConfig(boft_block_size=2, target_modules=["q_proj"]),
    "oft": lambda: peft.OFTConfig(oft_block_size=2, r=0, target_modules=["q_proj"]),
}


def _whole(config: Any, folder: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    """The state dict of the wrapped model in a file, and that of the model before it was wrapped."""
    torch.manual_seed(0)
    net = Net()
    base = {key: value.clone() for key, value in net.state_dict().items()}
    torch.save(adapted(config, net).state_dict(), folder / "whole.pt")
    return folder / "whole.pt", base


def parts_of(path: Path) -> list[AdapterPart]:
    """The parts of the adapter in a file."""
    return [part for key in torch.load(path, weights_only=True) if (part := part_of(key)) is not None]


@pytest.mark.parametrize("title", CONFIGS)
def test_the_base_model_comes_out(title: str, tmp_path: Path) -> None:
    """The fix gives the state dict of the model that was wrapped, bit for bit, and it loads strictly."""
    path, base = _whole(CONFIGS[title](), tmp_path)
    (finding,) = found(path, CODE)
    assert finding.fix is None, "what leaves out the adapter can be asked for, and is never advice"
    known = {part.parameter for part in parts_of(path)} <= MERGED
    assert bool(finding.commands) is known, "only LoRA and IA3 are merged"
    assert ("--merge-adapter" in "".join(finding.commands)) is known
    assert ("merge_and_unload" in finding.advice) is not known
    out = tmp_path / "base.pt"
    repair(plan(FixRequest(str(path), str(out), selection=Selection((CODE,)), unsafe=True)))
    given = torch.load(out, weights_only=True)
    Net().load_state_dict(given, strict=True)
    assert all(torch.equal(given[key], value) for key, value in base.items())
    assert not found(out, CODE)


@pytest.mark.parametrize("title", ["lora", "embeddings and convolutions", "some tokens"])
def test_a_target_gets_the_base_model(title: str, tmp_path: Path) -> None:
    """``fix --auto --unsafe-fixes`` gives the same, with the model as the target."""
    path, base = _whole(CONFIGS[title](), tmp_path)
    torch.save(base, tmp_path / "like.pt")
    reference = read_reference(Settings(like=str(tmp_path / "like.pt")))
    out = tmp_path / "out.pt"
    repair(plan(FixRequest(str(path), str(out), auto=True, reference=reference, unsafe=True)))
    given = torch.load(out, weights_only=True)
    Net().load_state_dict(given, strict=True)
    assert all(torch.equal(given[key], value) for key, value in base.items())


def test_a_merged_but_wrapped_model_is_found_too(tmp_path: Path) -> None:
    """merge_adapter() changes the base layers and no name: the fix gives what was merged."""
    model = adapted()
    model.merge_adapter()
    torch.save(model.state_dict(), tmp_path / "merged.pt")
    out = tmp_path / "out.pt"
    repair(plan(FixRequest(str(tmp_path / "merged.pt"), str(out), selection=Selection((CODE,)), unsafe=True)))
    merged, plain = Net(), adapted().merge_and_unload()
    merged.load_state_dict(torch.load(out, weights_only=True), strict=True)
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.allclose(merged(tokens), plain(tokens), atol=1e-5)


def test_several_adapters_go_together(tmp_path: Path) -> None:
    """All of them are left out."""
    model = adapted()
    model.add_adapter("other", lora(r=3))
    torch.save({"epoch": 1, "model": model.state_dict()}, tmp_path / "two.pt")
    (finding,) = found(tmp_path / "two.pt", CODE)
    assert finding.message.startswith("8 of 21 keys of model")
    repair(
        plan(FixRequest(str(tmp_path / "two.pt"), str(tmp_path / "o.pt"), selection=Selection((CODE,)), unsafe=True))
    )
    Net().load_state_dict(torch.load(tmp_path / "o.pt", weights_only=True)["model"], strict=True)


@pytest.mark.parametrize(
    ("command", "kept", "other"),
    [
        (0, "modules_to_save.default", "lm_head.untrained.weight"),
        (1, "original_module", "lm_head.trained_default.weight"),
    ],
    ids=["trained", "as it was"],
)
def test_of_a_layer_that_is_there_twice_one_is_chosen(command: int, kept: str, other: str, tmp_path: Path) -> None:
    """Nothing is guessed or lost: the finding gives a command for each, after which the base model can be had."""
    path, base = _whole(lora(modules_to_save=["lm_head"]), tmp_path)
    state = torch.load(path, weights_only=True)
    state["base_model.model.lm_head.modules_to_save.default.weight"] += 1
    torch.save(state, path)
    (finding,) = found(path, CODE)
    assert finding.fix is None
    renames = tuple(map(substitution, re.findall("--rename '([^']+)'", finding.commands[command])))
    one, out = tmp_path / "one.pt", tmp_path / "out.pt"
    repair(plan(FixRequest(str(path), str(one), renames=renames)))
    repair(plan(FixRequest(str(one), str(out), selection=Selection((CODE,)), unsafe=True)))
    given = torch.load(out, weights_only=True)
    assert (given.pop(other) != given["lm_head.weight"]).all()
    given.pop(other.replace("weight", "bias"))
    Net().load_state_dict(given, strict=True)
    assert torch.equal(given["lm_head.weight"], state[f"base_model.model.lm_head.{kept}.weight"])
    assert torch.equal(given["layers.0.q_proj.weight"], base["layers.0.q_proj.weight"])
