"""What the installed libraries around torch say, explained."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn

from ckptdoctor.explaining.explanation import explain
from tests.libraries import accelerate, lightning, peft, real, transformers

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries warn of each other


def said(make, *arguments, **options):
    """What a call says in failing."""
    with pytest.raises(BaseException) as raised:  # torch.distributed.checkpoint raises one that is no Exception
        make(*arguments, **options)
    return f"{raised.typename}: {raised.value}"


def code(text):
    hits = explain(text).hits
    return hits[0].code if hits else None


def config(**options):
    return transformers.LlamaConfig(
        **{
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "vocab_size": 11,
        }
        | options
    )


@real
def test_accelerate(tmp_path):
    """A shape that is not the model's, and a name that the layer does not have."""
    set_tensor = accelerate.utils.set_module_tensor_to_device
    layer = nn.Linear(3, 4)
    assert code(said(set_tensor, layer, "weight", "cpu", value=torch.ones(4, 5))) == "R003"
    assert code(said(set_tensor, layer, "weight", "cpu", value=torch.ones(0))) == "S511"
    assert code(said(set_tensor, layer, "qweight", "cpu", value=torch.ones(4, 3))) == "R002"
    with torch.device("meta"):
        empty = nn.Linear(3, 4)
    assert code(said(set_tensor, empty, "weight", "cpu")) == "R001"


@real
def test_peft(tmp_path):
    """An adapter whose keys were renamed finds no layer, and is loaded all the same, with a warning."""
    model = transformers.LlamaForCausalLM(config())
    peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(tmp_path)
    from safetensors.torch import load_file, save_file

    path = tmp_path / "adapter_model.safetensors"
    save_file({key.replace("model.model.", "model."): value for key, value in load_file(path).items()}, path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        peft.PeftModel.from_pretrained(transformers.LlamaForCausalLM(config()), tmp_path)
    assert "L901" in [code(str(each.message)) for each in caught]
    other = transformers.LlamaForCausalLM(config())
    wanted = peft.LoraConfig(r=2, target_modules=["no_such_layer"])
    assert code(said(peft.get_peft_model, other, wanted)) == "L909"


@real
def test_transformers(tmp_path):
    """A folder without weights, of an unknown kind, and of another size."""
    load = transformers.LlamaForCausalLM.from_pretrained
    (tmp_path / "none").mkdir()
    config().save_pretrained(tmp_path / "none")
    assert code(said(load, tmp_path / "none")) == "X801"
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.json").write_text('{"model_type": "no such kind"}')
    assert code(said(transformers.AutoModel.from_pretrained, tmp_path / "odd")) == ""
    transformers.LlamaForCausalLM(config()).save_pretrained(tmp_path / "small")
    assert code(said(load, tmp_path / "small", config=config(hidden_size=32))) in ("M974", "R003", "S510")


@real
def test_lightning(tmp_path):
    """Weights alone are no checkpoint of Lightning's."""

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 2)

    torch.save(Lit().state_dict(), tmp_path / "weights.ckpt")
    assert code(said(Lit.load_from_checkpoint, tmp_path / "weights.ckpt", map_location="cpu")) in ("", "W301")


def test_distributed_checkpoints(tmp_path):
    """A key and a shape that the folder does not have, and a folder that is none."""
    dcp.save({"fc.weight": torch.ones(2, 3)}, checkpoint_id=tmp_path / "one", no_dist=True)
    assert code(said(dcp.load, {"fc.bias": torch.ones(2)}, checkpoint_id=tmp_path / "one", no_dist=True)) == "R001"
    assert code(said(dcp.load, {"fc.weight": torch.ones(5)}, checkpoint_id=tmp_path / "one", no_dist=True)) == "R003"
    (tmp_path / "none").mkdir()
    assert code(said(dcp.load, {"fc.weight": torch.ones(5)}, checkpoint_id=tmp_path / "none", no_dist=True)) == "X809"


def test_parameters_that_cannot_be_copied(tmp_path):
    """A tensor without data, and a DTensor met by a plain one: shapes agree, so nothing is said of shapes."""
    with torch.device("meta"):
        empty = nn.Linear(2, 2)
    assert code(said(nn.Linear(2, 2).load_state_dict, empty.state_dict())) == "D606"
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        from torch.distributed.tensor import DeviceMesh, distribute_module

        sharded = distribute_module(nn.Linear(2, 2), DeviceMesh("cpu", [0]))
        text = said(sharded.load_state_dict, nn.Linear(2, 2).state_dict())
    finally:
        torch.distributed.destroy_process_group()
    assert "an exception occurred" in text
    assert code(text) == "X810"


def test_a_scaler_that_was_off():
    """Its state is empty."""
    assert code(said(torch.amp.GradScaler("cpu").load_state_dict, {})) == "O760"


def test_weights_taken_for_a_model():
    """They have no methods of a model, and cannot be called."""
    weights = nn.Linear(2, 2).state_dict()
    assert code(said(lambda: weights.eval())) == ""
    assert code(said(lambda: weights(1))) == ""
