"""ckptdoctor.load_state_dict against the model's own load_state_dict, with strict=True."""

from __future__ import annotations

import copy
from collections import OrderedDict

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ckptdoctor.errors import DamagedError, RefusedError, UnreadableError, UsageError
from ckptdoctor.fit.state_dict import load_state_dict
from tests import broken_shards
from tests.builders import saving_tags, tagged

# torch.compile and quantized modules set off warnings of torch's own
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


class Net(nn.Module):
    """A small network with everything: convolutions, norms, a buffer, tied weights."""

    def __init__(self, classes=10):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6))
        self.fc = nn.Linear(6, classes)
        self.tied = nn.Linear(6, classes)
        self.tied.weight = self.fc.weight
        self.register_buffer("mean", torch.randn(3))

    def forward(self, image):
        return self.fc(self.body(image).mean((2, 3)))


class Module(nn.Module):
    """What a Lightning module is as far as its keys go."""

    def __init__(self):
        super().__init__()
        self.model = Net()


@pytest.fixture(scope="module")
def net():
    """A network whose norms have seen a batch."""
    torch.manual_seed(0)
    net = Net()
    net(torch.randn(2, 3, 8, 8))
    return net


def assert_loads(made, net, target=None):
    """``target`` takes it with strict=True and is then what ``net`` is."""
    target = Net() if target is None else target
    target.load_state_dict(made, strict=True)
    inside = target
    while not isinstance(inside, Net):
        inside = getattr(inside, "_orig_mod", None) or getattr(inside, "module", None) or inside.model
    for key, value in net.state_dict().items():
        assert torch.equal(inside.state_dict()[key], value)


def averaged(net):
    """An EMA of the network."""
    model = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=True)
    model.update_parameters(net)
    return model


def lightning(net):
    """A Lightning checkpoint of the network."""
    module = Module()
    module.model = net
    return {"epoch": 3, "pytorch-lightning_version": "2.6.0", "state_dict": module.state_dict()}


SAVED = {
    "plain": lambda net: net.state_dict(),
    "DataParallel": lambda net: nn.DataParallel(net).state_dict(),
    "compiled": lambda net: torch.compile(net, backend="eager").state_dict(),
    "compiled DataParallel": lambda net: torch.compile(nn.DataParallel(net), backend="eager").state_dict(),
    "DataParallel of compiled": lambda net: nn.DataParallel(torch.compile(net, backend="eager")).state_dict(),
    "nested": lambda net: {"epoch": 1, "model": net.state_dict(), "best": torch.tensor(0.5)},
    "nested DataParallel": lambda net: {"model": nn.DataParallel(net).state_dict()},
    "Lightning": lightning,
    "EMA": lambda net: averaged(net).state_dict(),
    "EMA beside nothing": lambda net: {"ema": averaged(net).state_dict()},
    "Parameters": lambda net: OrderedDict({**dict(net.named_parameters(remove_duplicate=False)), **buffers(net)}),
    "whole module": lambda net: net,
    "whole module inside": lambda net: {"epoch": 1, "model": net},
    "whole DataParallel": lambda net: nn.DataParallel(net),
    "profiled": lambda net: profiled(net).state_dict(),
}


def buffers(net):
    """The buffers of a network by name."""
    return dict(net.named_buffers())


def profiled(net):
    """The network with the counters of thop."""
    net = copy.deepcopy(net)
    for module in list(net.modules()):
        for name in ("total_ops", "total_params"):
            module.register_buffer(name, torch.zeros(1, dtype=torch.float64))
    return net


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("kind", SAVED)
def test_what_wrappers_saved_loads_into_the_bare_network(tmp_path, net, kind, legacy):
    """Whatever was around the network when it was saved, the network takes the result, values and all."""
    torch.save(SAVED[kind](net), tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    made = load_state_dict(tmp_path / "a.pt", Net())
    assert type(made) is OrderedDict
    assert all(type(value) is torch.Tensor and not value.requires_grad for value in made.values())
    assert_loads(made, net)


WRAPPED = {
    "DataParallel": lambda: nn.DataParallel(Net()),
    "compiled": lambda: torch.compile(Net(), backend="eager"),
    "Lightning": Module,
}


@pytest.mark.parametrize("kind", ["plain", "DataParallel", "compiled", "nested", "Lightning", "whole module"])
@pytest.mark.parametrize("target", WRAPPED)
def test_wrapped_networks_get_their_own_names(tmp_path, net, target, kind):
    """The reference may be a wrapper itself: it gets the keys that it asks for."""
    torch.save(SAVED[kind](net), tmp_path / "a.pt")
    wrapped = WRAPPED[target]()
    assert_loads(load_state_dict(tmp_path / "a.pt", wrapped), net, wrapped)


def test_safetensors_and_mappings(tmp_path, net):
    """A safetensors file loads as well, and a mapping of shapes or a model on the meta device is reference enough."""
    save_file({f"module.{key}": value.clone() for key, value in net.state_dict().items()}, tmp_path / "a.safetensors")
    with torch.device("meta"):
        empty = Net()
    for reference in (empty, empty.state_dict(), {key: value.shape for key, value in empty.state_dict().items()}):
        assert_loads(load_state_dict(tmp_path / "a.safetensors", reference), net)


def test_device_tags_do_not_matter(tmp_path, net):
    """What was saved on a GPU is on the CPU, and ties are still ties."""
    saved = copy.deepcopy(net).state_dict()
    with saving_tags():
        torch.save({f"module.{key}": tagged(value, "cuda:3") for key, value in saved.items()}, tmp_path / "a.pt")
    made = load_state_dict(tmp_path / "a.pt", net)
    assert {value.device.type for value in made.values()} == {"cpu"}
    assert made["fc.weight"].data_ptr() == made["tied.weight"].data_ptr()


def test_versions_come_along(tmp_path, net):
    """_metadata has the names of the model, so that torch knows the versions of its modules."""
    torch.save({"state_dict": nn.DataParallel(net).state_dict()}, tmp_path / "a.pt")
    made = load_state_dict(tmp_path / "a.pt", net)
    assert made._metadata["body.1"] == {"version": 2}
    assert set(made._metadata) == set(net.state_dict()._metadata)


def test_files_from_before_batches_were_counted(tmp_path, net):
    """A BatchNorm of torch 0.4 has no counter, and torch does not ask for it."""
    old = {key: value for key, value in net.state_dict().items() if not key.endswith("num_batches_tracked")}
    torch.save(old, tmp_path / "old.pt")
    made = load_state_dict(tmp_path / "old.pt", net)
    assert "body.1.num_batches_tracked" not in made
    Net().load_state_dict(made, strict=True)
    late = net.state_dict()
    del late["body.1.num_batches_tracked"]
    torch.save(late, tmp_path / "late.pt")
    with pytest.raises(RuntimeError, match="Missing key"):
        Net().load_state_dict(late, strict=True)
    with pytest.raises(RefusedError, match=r"missing: body\.1\.num_batches_tracked"):
        load_state_dict(tmp_path / "late.pt", net)


def test_writing_to_the_result_leaves_the_file(tmp_path, net):
    """The tensors are the caller's own."""
    torch.save(net.state_dict(), tmp_path / "a.pt")
    before = (tmp_path / "a.pt").read_bytes()
    load_state_dict(tmp_path / "a.pt", net)["fc.bias"].fill_(7)
    assert (tmp_path / "a.pt").read_bytes() == before


# ---- refusals


def test_a_head_that_differs_is_refused_with_the_diagnosis(tmp_path, net):
    """The error says how much fits, which keys do not and why, and what to do; strict=False gives the rest."""
    torch.save({"model": nn.DataParallel(net).state_dict()}, tmp_path / "a.pt")
    with pytest.raises(RefusedError) as caught:
        load_state_dict(tmp_path / "a.pt", Net(classes=3))
    message = caught.value.message
    total = len(net.state_dict())
    assert message.startswith(f"{tmp_path / 'a.pt'} does not fit Net: {total - 4} of {total} keys do (")
    assert "shape mismatch: fc.weight [10, 6] for [3, 6], fc.bias [10] for [3]" in message
    assert "strict=False" in message
    assert "N401" not in message  # that is repaired
    made = load_state_dict(tmp_path / "a.pt", Net(classes=3), strict=False)
    assert len(made) == total - 4 and "fc.weight" not in made
    assert set(Net(classes=3).load_state_dict(made, strict=False).missing_keys) == {
        "fc.weight", "fc.bias", "tied.weight", "tied.bias",
    }  # fmt: skip


def test_what_is_left_over_is_not_dropped(tmp_path, net):
    """A loss that the model does not have is named, not left out in silence."""
    torch.save({**net.state_dict(), "extra.weight": torch.zeros(5)}, tmp_path / "a.pt")
    with pytest.raises(RefusedError, match=r"left over: extra\.weight"):
        load_state_dict(tmp_path / "a.pt", net)
    assert_loads(load_state_dict(tmp_path / "a.pt", net, strict=False), net)


def test_other_models_do_not_fit(tmp_path, net):
    """Nothing of another model is taken, however much of it is there."""
    torch.save(nn.Transformer(8, 2, 1, 1, 16).state_dict(), tmp_path / "a.pt")
    with pytest.raises(RefusedError, match=rf"does not fit Net: 0 of {len(net.state_dict())} keys do"):
        load_state_dict(tmp_path / "a.pt", net)
    assert load_state_dict(tmp_path / "a.pt", net, strict=False) == OrderedDict()


def test_two_that_fit_ask_for_a_choice(tmp_path, net):
    """Two networks of one kind are both named, and root chooses."""
    other = Net()
    torch.save({"first": net.state_dict(), "second": other.state_dict()}, tmp_path / "a.pt")
    for strict in (True, False):
        with pytest.raises(RefusedError, match=r"first, second\): choose one with root='first' or another"):
            load_state_dict(tmp_path / "a.pt", net, strict=strict)
    assert_loads(load_state_dict(tmp_path / "a.pt", net, root="second"), other)
    with pytest.raises(UsageError, match='The checkpoint has no "third"'):
        load_state_dict(tmp_path / "a.pt", net, root="third")


def test_a_module_that_does_not_tell_its_state_names_the_rule(tmp_path):
    """A whole module with a state dict of its own making is refused, and P204 says why."""
    quantized = torch.ao.nn.quantized.Linear(2, 3)
    torch.save(nn.Sequential(quantized), tmp_path / "a.pt")
    with pytest.raises(RefusedError, match=r"P204 whole-module-pickle: .*"):
        load_state_dict(tmp_path / "a.pt", nn.Sequential(nn.Linear(2, 3)))


def test_tensors_without_values_are_refused(tmp_path, net):
    """A checkpoint of a model on the meta device holds nothing to load."""
    with torch.device("meta"):
        torch.save(Net().state_dict(), tmp_path / "a.pt")
    with pytest.raises(RefusedError, match="was saved without values"):
        load_state_dict(tmp_path / "a.pt", net)


def test_files_that_cannot_be_read(tmp_path, net):
    """Missing and cut files are the errors that load raises."""
    with pytest.raises(UnreadableError):
        load_state_dict(tmp_path / "missing.pt", net)
    save_file({key: value.clone() for key, value in net.state_dict().items()}, tmp_path / "a.safetensors")
    data = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "a.safetensors").write_bytes(data[:-10])
    with pytest.raises(DamagedError):
        load_state_dict(tmp_path / "a.safetensors", net)
    with pytest.raises(UsageError, match="like="):
        load_state_dict(tmp_path / "a.safetensors", "other.pt")


@pytest.mark.parametrize("suffix", ["bin", "safetensors"])
def test_a_folder_without_a_shard_names_it(tmp_path, suffix):
    """Strictly it is refused with the file that is missing; what fits comes with a warning that names it."""
    broken_shards.folder(tmp_path / "m", suffix, "missing")
    said = f"{broken_shards.name(2, suffix)} is missing, with 8 tensors of the index."
    with pytest.raises(RefusedError, match=f"16 of 24 keys do.*\n  {said}"):
        load_state_dict(tmp_path / "m", broken_shards.tensors())
    with pytest.warns(UserWarning, match=said):
        found = load_state_dict(tmp_path / "m", broken_shards.tensors(), strict=False)
    assert found.keys() == broken_shards.tensors().keys() - broken_shards.SECOND


def test_what_is_asked_for_is_loaded_of_a_folder_without_a_shard(tmp_path, recwarn):
    """A reference that asks for nothing of the missing file is satisfied, without a warning."""
    broken_shards.folder(tmp_path / "m", damage="missing")
    wanted = {key: value for key, value in broken_shards.tensors().items() if key not in broken_shards.SECOND}
    assert load_state_dict(tmp_path / "m", wanted).keys() == wanted.keys()
    assert not recwarn.list
