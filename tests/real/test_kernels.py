"""Layers of Keras and Flax, whose kernels have their outputs last, brought to the same layers of torch."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.real.test_published import fixed, refused

KERAS = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
FLAX = {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"}


class Net(nn.Module):
    """Convolutions of which one tells nothing by its sizes, a depthwise one, a norm and linear layers."""

    def __init__(self, width=3, multiplier=1):
        super().__init__()
        self.conv_in = nn.Conv2d(3, width, 3)
        self.depth = nn.Conv2d(width, width * multiplier, (3, 2), groups=width, bias=False)
        self.conv_out = nn.Conv2d(width * multiplier, width, 3)
        self.norm = nn.BatchNorm2d(width)
        self.fc1 = nn.Linear(width, 7)
        self.fc2 = nn.Linear(7, 7)

    def forward(self, images):
        x = self.norm(self.conv_out(self.depth(self.conv_in(images)))).mean((2, 3))
        return self.fc2(self.fc1(x).relu())


def saved(net, norm, separator=".", end="", depthwise="kernel"):
    """The state dict with the names of the other code base, its kernels with the outputs last."""
    found = {}
    for name, layer in net.named_modules():
        for leaf, value in layer.state_dict().items() if not list(layer.children()) else ():
            if leaf == "num_batches_tracked":
                continue
            if isinstance(layer, nn.BatchNorm2d):
                leaf = norm[leaf]
            elif leaf == "weight" and getattr(layer, "groups", 1) > 1 and depthwise is not None:
                of, _, height, width = value.shape
                leaf = depthwise
                value = value.view(layer.groups, of // layer.groups, height, width).permute(2, 3, 0, 1)
            elif leaf == "weight":
                leaf, value = "kernel", torch.movedim(value, (0, 1), (-1, -2))
            found[f"{name.replace('.', separator)}{separator}{leaf}{end}"] = value.contiguous()
    return found


def nets(**sizes):
    """Two of them with other numbers, norms that have seen something among them."""
    torch.manual_seed(0)
    made = [Net(**sizes).eval() for _ in range(2)]
    for net in made:
        net.norm.running_mean.uniform_()
        net.norm.running_var.uniform_(1, 2)
    return made


WAYS = {
    "keras 3": {"norm": KERAS},
    "keras 2": {"norm": KERAS, "separator": "/", "end": ":0", "depthwise": "depthwise_kernel"},
    "flax": {"norm": FLAX, "depthwise": None},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_kernels_become_weights_that_compute_the_same(tmp_path, way, multiplier, kind):
    """3 × 3 × 3 × 3, where only the leaf's name says how values lie, depthwise ones, and norms."""
    net, target = nets(multiplier=multiplier)
    state = saved(net, **WAYS[way])
    if kind == "pt":
        torch.save(state, tmp_path / "k.pt")
    else:
        save_file(state, tmp_path / "k.safetensors")
    torch.save(target.state_dict(), tmp_path / "like.pt")
    made = fixed(tmp_path, f"k.{kind}", "--like", "like.pt")
    target.load_state_dict(made | {"norm.num_batches_tracked": torch.tensor(0)})
    images = torch.rand(2, 3, 9, 9)
    with torch.no_grad():
        assert torch.equal(target(images), net(images))


@pytest.mark.parametrize("trap", ["weight", "flattened", "transposed", "turned by Flax", "half", "reshaped"])
def test_what_no_name_tells_is_refused(tmp_path, trap):
    """A leaf called weight, an image that was flattened, a transposed convolution, a key too many, another size."""
    net, target = nets()
    state = saved(net, KERAS)
    like = target.state_dict()
    if trap == "weight":
        state = {key.replace("kernel", "weight"): value for key, value in state.items()}
    elif trap == "flattened":
        state["fc1.kernel"], like["fc1.weight"] = torch.rand(12, 7), torch.rand(7, 12)
    elif trap == "transposed":
        state["deconv.kernel"], like["deconv.weight"] = torch.rand(3, 3, 4, 4), torch.rand(4, 4, 3, 3)
    elif trap == "turned by Flax":
        state = saved(net, FLAX) | {"up.kernel": torch.rand(3, 3, 3, 3)}
        like["up.weight"] = torch.rand(3, 3, 3, 3)
    elif trap == "half":
        state["iterations"] = torch.rand(())
    else:
        state["conv_out.kernel"] = state["conv_out.kernel"].reshape(9, 3, 1, 3)
    torch.save(state, tmp_path / "k.pt")
    torch.save(like, tmp_path / "like.pt")
    refused(tmp_path, "k.pt", "--like", "like.pt")


class Features(nn.Module):
    """Convolutions in a list, called as torchvision's are; of all but the first the sizes tell nothing."""

    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(4, 2)

    def forward(self, images):
        return self.classifier(self.features(images).mean((2, 3)))


def test_the_list_in_front_of_a_classifier_holds_no_transposed_convolution(tmp_path):
    """Of Flax, too, where one of its kernels shows which of its sides are the outputs."""
    net, target = Features().eval(), Features().eval()
    torch.save(saved(net, FLAX), tmp_path / "k.pt")
    torch.save(target.state_dict(), tmp_path / "like.pt")
    target.load_state_dict(fixed(tmp_path, "k.pt", "--like", "like.pt"))
    images = torch.rand(2, 3, 9, 9)
    assert torch.equal(target(images), net(images))


@pytest.mark.parametrize("trap", ["all square", "another list", "transposed"])
def test_a_list_that_does_not_show_it_is_refused(tmp_path, trap):
    """Kernels of which all have as many inputs as outputs, or that are in a list of another name, or turned."""
    state, like = saved(Features().eval(), FLAX), Features().state_dict()
    if trap == "another list":
        state, like = ({key.replace("features", "up"): value for key, value in each.items()} for each in (state, like))
    else:
        shape = (4, 4) if trap == "all square" else (3, 4)  # inputs × outputs, as ConvTranspose2d has them
        state["features.0.kernel"], like["features.0.weight"] = torch.rand(3, 3, *shape), torch.rand(*shape, 3, 3)
    torch.save(state, tmp_path / "k.pt")
    torch.save(like, tmp_path / "like.pt")
    refused(tmp_path, "k.pt", "--like", "like.pt")
