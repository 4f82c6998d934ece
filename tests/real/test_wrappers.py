"""What torch's own wrappers make of keys: each comes off, in whatever order they were put on."""

from __future__ import annotations

import sys
import types

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from tests.real.bench import equal, under
from tests.real.networks import ConvNet, TokenNet

pytestmark = pytest.mark.filterwarnings("ignore")

IMAGES = torch.rand(2, 3, 8, 8)


@pytest.fixture(scope="module", autouse=True)
def one_process(tmp_path_factory):
    """A process group of this process alone."""
    store = dist.FileStore(str(tmp_path_factory.mktemp("group") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def with_a_compiled_block(model):
    """One block compiled, and the whole in place, which leaves no trace."""
    model.blocks[0] = torch.compile(model.blocks[0])
    model.compile()
    return model


def with_a_recomputed_block(model):
    """One block that is computed again in the backward pass."""
    model.blocks[1] = checkpoint_wrapper(model.blocks[1])
    return model


WRAPPERS = {
    "DataParallel": nn.DataParallel,
    "DDP": DistributedDataParallel,
    "DDP in compile": lambda model: torch.compile(DistributedDataParallel(model)),
    "compile in DDP": lambda model: DistributedDataParallel(torch.compile(model)),
    "compile in DDP in compile": lambda model: torch.compile(DistributedDataParallel(torch.compile(model))),
    "a compiled block in DataParallel": lambda model: nn.DataParallel(with_a_compiled_block(model)),
    "a recomputed block in compile": lambda model: torch.compile(with_a_recomputed_block(model)),
    "AveragedModel": AveragedModel,
    "AveragedModel of DDP": lambda model: AveragedModel(DistributedDataParallel(model)),
}


@pytest.mark.parametrize("nested", [False, True], ids=["bare", "in a trainer's file"])
@pytest.mark.parametrize("name", WRAPPERS)
def test_the_bare_model_loads_what_a_wrapped_one_saved(name, nested, bench):
    """Whatever wrapped the model, the bare one loads the result and computes the same."""
    model, target = ConvNet().eval(), ConvNet().eval()
    expected = model(IMAGES)
    saved = WRAPPERS[name](model).state_dict()
    bench.repair({"state_dict": saved, "epoch": 3} if nested else saved, target)
    assert torch.equal(target(IMAGES), expected)


@pytest.mark.parametrize("name", ["DataParallel", "compile in DDP", "DDP in compile"])
def test_a_wrapped_model_loads_what_a_bare_one_saved(name, bench):
    """The other way round: the names of wrappers are put on."""
    model, target = ConvNet(), WRAPPERS[name](ConvNet())
    bench.repair(model.state_dict(), target)
    assert equal(dict(zip(model.state_dict(), target.state_dict().values(), strict=True)), model.state_dict())


def test_one_wrapper_for_another(bench):
    """A compiled model's weights go into one in DataParallel."""
    model, target = ConvNet(), nn.DataParallel(ConvNet())
    bench.repair(torch.compile(model).state_dict(), target)
    assert equal(target.module.state_dict(), model.state_dict())


def test_parameters_saved_around_the_hooks_of_fsdp(bench):
    """FSDP's token is taken out wherever a wrapped module stands."""
    model = TokenNet()
    blocks = ModuleWrapPolicy({nn.TransformerEncoderLayer})
    cpu = torch.device("cpu")
    wrapped = FullyShardedDataParallel(TokenNet(), auto_wrap_policy=blocks, device_id=cpu, use_orig_params=True)
    with FullyShardedDataParallel.summon_full_params(wrapped):
        saved = {key: value.detach().clone() for key, value in nn.Module.named_parameters(wrapped)}
    assert any(key.count("_fsdp_wrapped_module.") == 2 for key in saved)
    assert bench.repair(saved, model) == ["N405"]
    assert equal(model.state_dict(), dict(zip(model.state_dict(), saved.values(), strict=True)))


def test_flat_parameters_cannot_be_taken_apart(bench):
    """A flat parameter holds no shapes: it is refused, and the report says how to save again."""
    wrapped = FullyShardedDataParallel(TokenNet(), device_id=torch.device("cpu"))
    saved = {key: value.detach().clone() for key, value in wrapped.named_parameters()}
    assert "0 of 27 keys would fit" in bench.refuse(saved, TokenNet())
    assert {"N405", "N406"} <= set(bench.findings())


def test_raw_and_averaged_weights_are_a_choice(bench):
    """Both fit: --auto asks which, and --root says."""
    model, target = ConvNet(), ConvNet()
    averaged = AveragedModel(model)
    averaged.update_parameters(ConvNet())
    saved = {"model": model.state_dict(), "ema": averaged.state_dict()}
    said = bench.refuse(saved, target)
    assert "choose one" in said
    assert "--root model" in said
    assert "--root ema" in said
    bench.repair(saved, target, "--root", "ema")
    assert equal(target.state_dict(), averaged.module.state_dict())


class LitEma(nn.Module):
    """Averaged weights in buffers, whose names may not hold dots, as latent diffusion keeps them."""

    def __init__(self, model):
        super().__init__()
        self.register_buffer("decay", torch.tensor(0.999))
        self.register_buffer("num_updates", torch.tensor(0, dtype=torch.int))
        for name, parameter in model.named_parameters():
            self.register_buffer(name.replace(".", ""), parameter.clone().detach())


def test_averages_in_buffers_get_their_dots_back(bench):
    """All names are found again; the two numbers of the average itself are dropped when asked."""
    model, target = TokenNet(), TokenNet()
    saved = LitEma(model).state_dict()
    steps = bench.repair(saved, target, "--drop", "decay", "--drop", "num_updates")
    assert steps[-1] == "W308"
    assert equal(target.state_dict(), model.state_dict())


def test_averages_of_parameters_alone_lack_the_running_stats(bench):
    """A model with batch norm cannot be put together from averaged parameters: the refusal names what is missing."""
    said = bench.refuse(LitEma(ConvNet()).state_dict(), ConvNet())
    assert "missing: stem.1.running_mean, stem.1.running_var" in said
    assert {"W308", "R001"} <= set(bench.findings())


def test_averages_beside_the_model_are_left_over(bench):
    """A training module that holds both: the model is found, and what is left over is named."""
    whole = nn.ModuleDict({"model": ConvNet(), "model_ema": LitEma(ConvNet())})
    said = bench.refuse({"state_dict": whole.state_dict()}, ConvNet())
    assert "every key of target.pt fits, but 18 keys are left over" in said
    assert "left over: model_ema.decay, model_ema.num_updates, model_ema.stem0weight" in said


SOURCE = """
from torch import nn
class Gone(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4, 2)
        self.names = ["cat", "dog"]
"""


@pytest.mark.parametrize("wrap", [lambda model: model, nn.DataParallel, lambda model: {"model": model, "epoch": 2}])
def test_a_whole_model_without_its_code(wrap, bench, monkeypatch):
    """A pickled model whose code is gone still gives its weights."""
    module = types.ModuleType("code_that_is_gone")
    monkeypatch.setitem(sys.modules, "code_that_is_gone", module)
    exec(SOURCE, module.__dict__)
    model, target = module.Gone(), module.Gone()
    torch.save(target.state_dict(), "target.pt")
    torch.save(wrap(model), "sick.pt")
    monkeypatch.delitem(sys.modules, "code_that_is_gone")
    assert bench.fix("sick.pt", "target.pt")[0] == 0
    target.load_state_dict(bench.result(), strict=True)
    assert equal(target.state_dict(), model.state_dict())


def test_a_student_and_its_teacher_are_never_mixed_up(bench):
    """Two networks of one kind in one state dict: neither is taken without being asked for."""
    student, teacher, target = ConvNet(), ConvNet(), ConvNet()
    saved = {**under("student.", student.state_dict()), **under("teacher.", teacher.state_dict())}
    assert "more than one part fits target.pt: choose one." in bench.refuse(saved, target)
    bench.repair(saved, target, "--drop", "student.*")
    assert equal(target.state_dict(), teacher.state_dict())
