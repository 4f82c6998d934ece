"""Values in another order: what a draft map proposes where no name or size tells it, and what a map may say."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import torch
from torch import nn

from ckptdoctor.cli.main import run
from ckptdoctor.errors import RefusedError, UsageError
from ckptdoctor.repair import map_file


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where the files are."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def last_first(value):
    """A kernel as Keras and Flax have it: spatial sizes, inputs, outputs."""
    return torch.movedim(value, (0, 1), (-1, -2)).contiguous()


def drafted(said):
    """The draft that the refusal speaks of, and the command that applies it."""
    write, apply = [shlex.split(line)[1:] for line in said.splitlines() if line.startswith("    ckptdoctor fix ")]
    run(write)
    path = Path(write[write.index("--write-map") + 1])
    return path, json.loads(path.read_text()), [*apply, "-o", "well.pt", "--force"]


def refusal(capsys, source, target, *options):
    """What fix says when it refuses."""
    torch.save(source, "sick.pt")
    torch.save(target, "target.pt")
    assert run(["fix", "sick.pt", "--like", "target.pt", *options]) == 1
    return capsys.readouterr().out


class Net(nn.Module):
    """Convolutions, a flattened image of 4 × 4, and two linear layers of one size."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3, padding=1)
        self.fc1 = nn.Linear(32, 32)
        self.fc2 = nn.Linear(32, 32)

    def forward(self, image):
        """The channels come first in torch."""
        return self.fc2(self.fc1(self.conv(image).flatten(1)))


def keras(net):
    """The same network as Keras would save it: kernels with their outputs last, and the channels of images last."""
    found = {f"{name}.bias": getattr(net, name).bias.detach() for name in ("conv", "fc1", "fc2")}
    found["conv.kernel"] = last_first(net.conv.weight.detach())
    inputs = net.fc1.weight.detach().view(32, 2, 4, 4).permute(0, 2, 3, 1).flatten(1)
    found["fc1.kernel"], found["fc2.kernel"] = inputs.T.contiguous(), net.fc2.weight.detach().T.contiguous()
    return found


def test_a_linear_layer_behind_a_flattened_image_is_one_of_the_ways_that_a_draft_lists(capsys):
    """What a person who knows the network chooses computes what it did, and the draft alone is never applied."""
    net = Net()
    path, draft, apply = drafted(refusal(capsys, keras(net), Net().state_dict()))
    assert run(apply) == 1
    names = draft["names"]
    assert names["conv.kernel"]["axes"] == [3, 2, 0, 1]
    (image,) = [each for each in names["fc1.kernel"]["or"] if each["view"] == [4, 4, 2, 32]]
    names["fc1.kernel"], names["fc2.kernel"] = image, {"to": "fc2.weight", "transposed": True}
    names["conv.kernel"] = {"to": "conv.weight", "axes": names["conv.kernel"]["axes"]}
    path.write_text(json.dumps(draft))
    assert run(apply) == 0
    well, image = Net(), torch.rand(1, 3, 4, 4)
    well.load_state_dict(torch.load("well.pt"), strict=True)
    assert torch.equal(well(image), net(image))


def test_where_one_kernel_has_its_outputs_last_so_may_those_of_which_all_sizes_are_equal(capsys):
    """Of square ones both orders are listed, and either comes out as it was chosen."""
    truth = {"a.weight": torch.rand(3, 3, 3, 3), "b.weight": torch.rand(5, 3, 1, 1), "c.weight": torch.rand(4, 3, 2, 2)}
    path, draft, apply = drafted(refusal(capsys, {key: last_first(each) for key, each in truth.items()}, truth))
    for key, mark in draft["names"].items():
        assert (mark["to"], mark["axes"]) == (key, [3, 2, 0, 1])
        draft["names"][key] = {"to": key, "axes": mark["axes"]}
    assert draft["names"].keys() == truth.keys()
    path.write_text(json.dumps(draft))
    assert run(apply) == 0
    assert all(torch.equal(value, truth[key]) for key, value in torch.load("well.pt").items())


def test_a_kernel_that_flax_may_have_turned_is_not_proposed(capsys):
    """Transposed convolutions are turned by 180° there, which no map undoes: the refusal says so."""
    source = {"up.0.kernel": torch.rand(4, 4, 8, 8), "up.1.scale": torch.rand(8), "up.1.bias": torch.rand(8)}
    target = {"up.0.weight": torch.rand(8, 8, 4, 4), "up.1.weight": torch.rand(8), "up.1.bias": torch.rand(8)}
    said = refusal(capsys, source, target)
    assert "up.0.kernel may belong to a transposed convolution" in said
    assert "no command can finish" in said and "--write-map" not in said


def test_a_vector_of_all_parameters_is_called_one(capsys):
    """No command cuts it up: the order in it is that of a model which only its owner has."""
    net = Net()
    vector = nn.utils.parameters_to_vector(net.parameters()).detach()
    said = refusal(capsys, {"vector": vector, "step": torch.tensor(3)}, net.state_dict())
    assert "torch.nn.utils.vector_to_parameters(vector, model.parameters())" in said
    assert "no command can finish" in said


@pytest.mark.parametrize("turned", [False, True], ids=["as torch.nn.Linear", "transposed"])
@pytest.mark.parametrize("apart", [False, True], ids=["stacked here", "apart here"])
def test_square_experts_lie_as_somebody_says(turned, apart, capsys):
    """The refusal has a command for each way, and each does what it says."""
    each = {f"experts.{n}.w1.weight": torch.rand(4, 4) for n in range(3)}
    stack = torch.stack(list(each.values()))
    one = {"experts.w1": stack.mT.contiguous() if turned else stack}
    rest = {"gate.weight": torch.rand(3, 4)}
    source, truth = ({**rest, **each}, {**rest, **one}) if apart else ({**rest, **one}, {**rest, **each})
    said = refusal(capsys, source, {key: torch.zeros_like(value) for key, value in truth.items()})
    lines = [shlex.split(line)[1:] for line in said.splitlines() if "--expert-layout" in line]
    (command,) = [line for line in lines if ("in-out" in line) is turned]
    assert run([*command, "-o", "well.pt"]) == 0
    well = torch.load("well.pt")
    assert well.keys() == truth.keys()
    assert all(torch.equal(well[key], value) for key, value in truth.items())


@pytest.mark.parametrize(
    "form",
    [{"axes": "last"}, {"axes": [0, -1]}, {"axes": [True, 0]}, {"view": [2, 2]}, {"axes": [1, 0], "shape": [1.5]}],
)
def test_a_map_with_no_order_of_dimensions_is_none(form):
    """The sentence names the key."""
    draft = {"format": map_file.FORMAT, "root": "", "names": {"a": {"to": "b", **form}}, "dropped": []}
    Path("map.json").write_text(json.dumps(draft))
    with pytest.raises(UsageError, match="a"):
        map_file.read("map.json")


@pytest.mark.parametrize("form", [{"axes": [0, 2]}, {"axes": [2, 1, 0]}, {"axes": [1, 0], "view": [3, 3]}])
def test_an_order_that_a_tensor_cannot_have_is_refused(form, capsys):
    """Nothing is written."""
    torch.save({"a": torch.rand(2, 3)}, "sick.pt")
    draft = {"format": map_file.FORMAT, "root": "", "names": {"a": {"to": "b", **form}}, "dropped": []}
    Path("map.json").write_text(json.dumps(draft))
    assert run(["fix", "sick.pt", "--map", "map.json", "-o", "well.pt"]) == 1
    assert "an impossible order" in capsys.readouterr().out
    assert not Path("well.pt").exists()


def test_a_map_that_gives_values_another_order_has_no_way_back():
    """It would need the sizes that the tensor had before."""
    draft = {"format": map_file.FORMAT, "root": "", "names": {"a": {"to": "b", "axes": [1, 2, 0]}}, "dropped": []}
    Path("map.json").write_text(json.dumps(draft))
    with pytest.raises(RefusedError, match="that cannot be reversed"):
        map_file.read("map.json").reversed()
