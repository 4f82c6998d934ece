"""The committed samples: written by their script, and diagnosed as EXPECTED.json says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from copy import deepcopy
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import check
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.networks import FooNet, ResNet
from ckptdoctor.trainer.run import start
from ckptdoctor.trainer.snapshot.training import saving_with_tag
from tests.commands import run
from tests.rounding import difference

SAMPLES = Path(__file__).parent.parent / "sample_ckpts"
EXPECTED = json.loads((SAMPLES / "EXPECTED.json").read_text(encoding="utf-8"))
TRUTHS = sorted(SAMPLES.glob("trained/*/truth.json"))


def files_below(folder):
    """The relative names of the samples in a folder and of what lies beside them."""
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name for name in names if name.startswith(("healthy/", "sick/", "trained/", "EXPECTED.json"))}


def codes_of(name, *options):
    """The codes that check reports of a sample, and the error where it cannot read it."""
    like = str(SAMPLES / options[options.index("--like") + 1]) if "--like" in options else None
    report = check(str(SAMPLES / name), Settings(deep="--deep" in options, like=like))
    return sorted({finding.code for finding in report.findings}), report.error


@pytest.mark.parametrize("name", EXPECTED)
def test_check_says_what_is_expected(name):
    """check reports exactly the codes that EXPECTED.json lists for a sample."""
    codes, error = codes_of(name, *EXPECTED[name]["options"])
    assert codes == sorted(EXPECTED[name]["codes"])
    assert error is None or codes


def test_sick_files_are_named_after_their_rule():
    """The name of a sick sample begins with a code that it must show."""
    sick = [name for name in EXPECTED if name.startswith("sick/")]
    assert all(Path(name).name.split("-")[0] in EXPECTED[name]["codes"] for name in sick)


def test_every_expected_code_exists():
    """EXPECTED.json names only rules that there are."""
    known = {rule.code for rule in all_rules()}
    assert {code for expected in EXPECTED.values() for code in expected["codes"]} <= known


def test_every_file_is_listed():
    """EXPECTED.json has every sample: a file, or a folder that is one checkpoint. The truth lies beside them."""
    files = {name for name in files_below(SAMPLES) if not name.endswith(("truth.json", "EXPECTED.json"))}
    listed = {file for file in files for name in EXPECTED if file == name or file.startswith(f"{name}/")}
    assert files == listed
    assert all((SAMPLES / name).exists() for name in EXPECTED)


def test_the_samples_are_small():
    """All samples together stay under 8 MB."""
    assert sum((SAMPLES / name).stat().st_size for name in files_below(SAMPLES)) < 8_000_000


# --- written anew ----------------------------------------------------------------------------------------------------


WITH_FORKED_RANKS = f"""
import runpy, sys
sys.path[0] = {str(SAMPLES.parent)!r}
from tests.trainer.forks import fork_ranks
fork_ranks()
sys.path[0] = {str(SAMPLES)!r}
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def make(folder, *how):
    """Let make.py write everything into a folder; it is run from another one, and has nothing to say."""
    hush = "ignore:Guards may run slower on Python 3.13.0:RuntimeWarning"  # what torch tells the users of that one
    command = [sys.executable, "-W", hush, *how, str(SAMPLES / "make.py"), str(folder)]
    done = subprocess.run(command, check=True, cwd=folder.parent, capture_output=True, text=True)
    assert done.stdout == done.stderr == ""


@pytest.fixture(scope="module")
def anew(tmp_path_factory):
    """A folder into which make.py wrote everything, without waiting for each rank to import torch."""
    folder = tmp_path_factory.mktemp("anew")
    make(folder, "-c", WITH_FORKED_RANKS)
    return folder


def different(one, other):
    """The files of two folders that have not the same bytes."""
    return {name for name in files_below(one) if (one / name).read_bytes() != (other / name).read_bytes()}


@pytest.mark.slow
def test_the_script_writes_the_committed_files(anew):
    """make.py writes every sample and EXPECTED.json anew, byte for byte where no training is in them."""
    assert files_below(anew) == files_below(SAMPLES)
    assert not {name for name in different(anew, SAMPLES) if not name.startswith("trained/")}


@pytest.mark.slow
def test_what_is_trained_anew_differs_in_rounding_at_most(anew):
    """Trained samples are the committed ones bit for bit, or, on another kind of processor, but for rounding."""
    found = {name: difference(SAMPLES / name, anew / name) for name in files_below(anew)}
    assert not {name: what for name, what in found.items() if what is not None}


@pytest.mark.slow
def test_the_script_writes_the_same_bytes_every_time(anew, tmp_path):
    """Two runs of make.py on one machine agree."""
    again = tmp_path / "again"
    again.mkdir()
    make(again)
    assert files_below(again) == files_below(anew)
    assert not different(anew, again)


def nudged(state, by):
    """The same tensors, the first weights a little larger."""
    return {**state, "conv1.weight": state["conv1.weight"] + by}


CHANGES = {
    "nothing": (lambda state: state, None),
    "rounding": (lambda state: nudged(state, 1e-6), None),
    "a value": (lambda state: nudged(state, 0.1), "values"),
    "a key": (lambda state: {key.replace("fc.", "fd."): value for key, value in state.items()}, "structure"),
    "a dtype": (lambda state: {**state, "fc.weight": state["fc.weight"].int()}, "structure"),
    "a shape": (lambda state: {**state, "fc.weight": state["fc.weight"].t().contiguous()}, "structure"),
    "a tensor": (lambda state: {**state, "fc.scale": torch.ones(10)}, "size"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_only_rounding_passes_for_rounding(change, tmp_path):
    """The comparison of trained files lets rounding pass and nothing else."""
    state = dict(torch.load(SAMPLES / "trained/single/model.pt", weights_only=True))
    changed, what = CHANGES[change]
    assert difference(saved(state, tmp_path / "one"), saved(changed(state), tmp_path / "other")) == what


def test_a_device_tag_does_not_pass_for_rounding(tmp_path):
    """Nor does a file that says cuda:0 where the other says cuda:1."""
    state = torch.load(SAMPLES / "trained/single/model.pt", weights_only=True)
    with saving_with_tag("cuda:0"):
        one = saved(state, tmp_path / "one")
    with saving_with_tag("cuda:1"):
        other = saved(state, tmp_path / "other")
    assert difference(one, other) == "structure"


def saved(state, folder):
    """The path of a file with these contents in a new folder."""
    folder.mkdir()
    torch.save(state, folder / "model.pt")
    return folder / "model.pt"


# --- what is true of them --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", TRUTHS, ids=lambda path: path.parent.name)
def test_the_truth_agrees_with_what_is_expected(path):
    """What the trainer says of a file is what check reports without a reference, and what EXPECTED.json lists."""
    for file, truth in json.loads(path.read_text(encoding="utf-8"))["files"].items():
        name = (path.parent / file).relative_to(SAMPLES).as_posix()
        assert codes_of(name)[0] == sorted(truth["check"])
        # a reference adds what does not fit to it
        beyond = set(EXPECTED[name]["codes"]) - set(truth["check"])
        explained = all(code[0] in "RS" or code == "N418" for code in beyond)
        assert not beyond or ("--like" in EXPECTED[name]["options"] and explained)


def test_almost_every_training_run_has_its_truth():
    """Only the model laid out over two GPUs was saved by hand."""
    runs = {path.name for path in SAMPLES.glob("trained/*")}
    assert runs - {path.parent.name for path in TRUTHS} == {"cuda-split"}


def nets():
    """The module of the samples' own networks."""
    spec = spec_from_file_location("nets_of_the_samples", SAMPLES / "nets.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_running_stats_fail_as_torch_says():
    """The default InstanceNorm2d refuses running stats that come without the versions of the modules."""
    state = torch.load(SAMPLES / "trained/instance-norm/stripped.pt", weights_only=True)
    with pytest.raises(RuntimeError) as error:
        nets().Normed().load_state_dict(state)
    refused = (
        '\tUnexpected running stats buffer(s) "norm{0}.running_mean" and "norm{0}.running_var" for InstanceNorm2d with '
        "track_running_stats=False. If state_dict is a checkpoint saved before 0.4.0, this may be expected because "
        "InstanceNorm2d does not track running stats by default since 0.4.0. Please remove these keys from state_dict. "
        "If the running stats are actually needed, instead set track_running_stats=True in InstanceNorm2d to enable "
        "them. See the documentation of InstanceNorm2d for details."
    )
    assert str(error.value) == "\n".join(
        [
            "Error(s) in loading state_dict for Normed:",
            '\tUnexpected key(s) in state_dict: "norm1.num_batches_tracked", "norm2.num_batches_tracked". ',
            refused.format(1),
            refused.format(2),
        ]
    )


def test_running_stats_load_where_they_are_tracked():
    """The same file is well for the network that it was saved from."""
    state = torch.load(SAMPLES / "trained/instance-norm/stripped.pt", weights_only=True)
    nets().Normed(track=True).load_state_dict(state)


def test_a_head_of_another_size_fails_as_torch_says():
    """Five classes do not go into a model for ten."""
    state = torch.load(SAMPLES / "trained/head/model.pt", weights_only=True)
    with pytest.raises(RuntimeError, match=re.escape("size mismatch for fc.weight: copying a param with shape")):
        ResNet(1, 10, width=2).load_state_dict(state)


@pytest.fixture(scope="module")
def other_order():
    """The checkpoint whose optimizer had the parameters in the opposite order."""
    return torch.load(SAMPLES / "trained/optimizer-order/training.pt", weights_only=True)


def stepped(saved, order):
    """The weights after one more step, by an optimizer that was given the parameters in ``order``."""
    model = FooNet()
    model.load_state_dict(saved["state_dict"])
    optimizer = torch.optim.AdamW(order(list(model.parameters())), lr=0.001)
    optimizer.load_state_dict(deepcopy(saved["optimizer"]))  # the step writes into the tensors that it is given
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.001)
    optimizer.step()
    return model.state_dict()


def test_the_optimizer_of_another_order_loads_and_steps_wrongly(other_order):
    """An optimizer over model.parameters() takes the state without a word, and steps the outer layers elsewhere."""
    right, wrong = stepped(other_order, lambda parameters: parameters[::-1]), stepped(other_order, list)
    assert {key for key in right if not torch.allclose(right[key], wrong[key], rtol=0, atol=1e-5)} == {
        "linears.0.weight",
        "linears.2.weight",
    }


def test_the_optimizer_of_another_order_has_the_moments_of_other_parameters(other_order, tmp_path):
    """The same run with parameters in the usual order has the same weights, and the moments the other way round."""
    told = {key: value for key, value in other_order["config"].items() if key != "save"}
    start(RunConfig(**told, out=str(tmp_path / "run")), {})
    usual = torch.load(tmp_path / "run/epoch-0001/training.pt", weights_only=True)
    torch.testing.assert_close(dict(usual["state_dict"]), dict(other_order["state_dict"]), rtol=1e-3, atol=1e-5)
    moments, reversed_moments = (
        [saved["optimizer"]["state"][index]["exp_avg"] for index in range(3)] for saved in (usual, other_order)
    )
    torch.testing.assert_close(moments, reversed_moments[::-1], rtol=1e-3, atol=1e-5)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(moments, reversed_moments, rtol=1e-3, atol=1e-5)


def test_the_run_that_was_stopped_is_the_one_that_was_resumed():
    """The resumed checkpoint has gone on from the first step of the stopped one to its second epoch."""
    saved = {
        name: torch.load(SAMPLES / f"trained/{name}/training.pt", weights_only=True) for name in ("stopped", "resumed")
    }
    assert {name: (each["epoch"], each["step"]) for name, each in saved.items()} == {
        "stopped": (0, 1),
        "resumed": (2, 0),
    }
    counted = {name: int(each["state_dict"]["bn1.num_batches_tracked"]) for name, each in saved.items()}
    assert counted == {"stopped": 1, "resumed": 8}


def test_the_sample_of_the_readme_is_repaired_with_one_command(tmp_path):
    """fix --strip-module writes the same tensors under bare keys, and check finds nothing in the result."""
    sample, output = SAMPLES / "sick/N401-module-prefix.pt", tmp_path / "repaired.pt"
    assert run("fix", sample, "--strip-module", "-o", output, cwd=tmp_path).returncode == 0
    before, after = torch.load(sample, weights_only=True), torch.load(output, weights_only=True)
    assert list(after) == [key.removeprefix("module.") for key in before]
    assert all(torch.equal(after[key.removeprefix("module.")], value) for key, value in before.items())
    assert run("check", "--fail-on", "info", output, cwd=tmp_path).returncode == 0
