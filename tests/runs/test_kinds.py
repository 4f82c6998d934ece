"""What libraries name and write, case by case, through the door that ``ckptdoctor.latest`` is."""

from __future__ import annotations

import hashlib
import json
import os
import shutil

import pytest
import safetensors.torch
import torch

import ckptdoctor
from ckptdoctor.errors import MissingFileError, UsageError
from ckptdoctor.findings import Severity
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.runs.validity import FAULTS
from tests.commands import run_here
from tests.runs import generated
from tests.runs.generated import KINDS, Run, Saved, adam, cut, distributed_bytes, in_torch, saved, weights, write


def saves(tmp_path, kind, steps=(100, 200)):
    """A run of this kind."""
    run = Run(tmp_path, kind)
    for step in steps:
        run.saved.append(Saved(KINDS[kind](run, step, None), step))
    return run


def name(found):
    """The name of what was found, or None."""
    return None if found is None else os.path.basename(found)


def reasons(found):
    """Why what was passed over was, by name."""
    return {each.name: each.reason for each in found.passed_over}


def test_what_is_found_is_a_path(tmp_path):
    """It can be given to whatever takes one, and says what was proven."""
    run = saves(tmp_path, "trainer")
    found = ckptdoctor.latest(tmp_path, resumable=True)
    assert os.fspath(found) == str(found) == str(run.saved[1].path)
    assert (found.step, found.epoch, found.step_from) == (200, 2.0, "trainer_state.json")
    assert ([each.value for each in found.levels], found.level.meaning) == (["V0", "V3"], "resumable")


def test_before_the_first_save_there_is_none(tmp_path):
    """None for a folder without checkpoints; a folder that is not there is an error."""
    (tmp_path / "logs").mkdir()
    assert ckptdoctor.latest(tmp_path) is None
    with pytest.raises(MissingFileError):
        ckptdoctor.latest(tmp_path / "missing")


def test_a_checkpoint_is_its_own_run(tmp_path):
    """A folder or a file that is one checkpoint is the only candidate."""
    path = saves(tmp_path, "trainer").saved[0].path
    assert ckptdoctor.latest(path).path == str(path)
    file = saves(tmp_path / "other", "lightning").saved[0].path
    assert (ckptdoctor.latest(file).path, ckptdoctor.latest(file).step) == (str(file), 100)


def test_several_runs_are_not_one(tmp_path):
    """They are named, and none is chosen."""
    for each in ("a", "b"):
        saves(tmp_path / each, "trainer")
    with pytest.raises(UsageError, match=r"holds several runs, not one.*/a and .*/b\."):
        ckptdoctor.latest(tmp_path)


def test_versions_of_lightning_are_one_run(tmp_path):
    """The last fit comes first, also where it began again at step 0; the one before where it left nothing."""
    saves(tmp_path, "lightning", (300, 400))
    logs = tmp_path / "lightning_logs"
    shutil.move(logs / "version_0", logs / "old")
    saves(tmp_path, "lightning", (100,))
    shutil.move(logs / "version_0", logs / "version_10")
    shutil.move(logs / "old", logs / "version_2")
    assert ckptdoctor.latest(tmp_path).path.endswith("version_10/checkpoints/epoch=1-step=100.ckpt")
    cut(logs / "version_10" / "checkpoints" / "epoch=1-step=100.ckpt")
    assert name(ckptdoctor.latest(tmp_path)) == "epoch=4-step=400.ckpt"


def test_a_link_is_not_taken_for_what_it_leads_to(tmp_path):
    """``save_last="link"`` of Lightning: the file that it leads to is printed, whose name stays."""
    path = saves(tmp_path, "lightning").saved[1].path
    os.symlink(path.name, path.with_name("last.ckpt"))
    os.symlink("missing.ckpt", path.with_name("best.ckpt"))
    assert name(ckptdoctor.latest(tmp_path)) == path.name


def test_folders_of_sharded_states(tmp_path):
    """The Trainer with FSDP has folders of torch.distributed.checkpoint in its own: each has to be intact."""
    run = saves(tmp_path, "trainer", (100, 200))
    for each in run.saved:
        for gone in ("model.safetensors", "optimizer.pt"):
            (each.path / gone).unlink()
        for inner in ("pytorch_model_fsdp_0", "optimizer_0"):
            for file, data in distributed_bytes().items():
                write(each.path / inner / file, data)
    assert name(ckptdoctor.latest(tmp_path, resumable=True)) == "checkpoint-200"
    (run.saved[1].path / "optimizer_0" / ".metadata").unlink()
    assert name(ckptdoctor.latest(tmp_path, resumable=True)) == "checkpoint-100"


def test_deepspeed_in_the_folder_of_a_trainer(tmp_path):
    """Its ranks belong to the checkpoint; a missing one makes it invalid."""
    run = saves(tmp_path, "trainer")
    for each in run.saved:
        (each.path / "optimizer.pt").unlink()
        generated.deepspeed(Run(each.path, "deepspeed"), each.step, None)
    assert name(ckptdoctor.latest(tmp_path, resumable=True)) == "checkpoint-200"
    (run.saved[1].path / "global_step200" / "zero_pp_rank_0_mp_rank_00_optim_states.pt").unlink()
    found = ckptdoctor.latest(tmp_path)
    assert name(found) == "checkpoint-100" and "missing" in reasons(found)["checkpoint-200"]


def test_megatron_knows_how_many_ranks_there_are(tmp_path):
    """A rank that is missing at the end is seen by the arguments in the others."""
    run = saves(tmp_path, "megatron")
    shutil.rmtree(run.saved[1].path / "mp_rank_01")
    found = ckptdoctor.latest(tmp_path)
    assert reasons(found) == {"iter_0000200": "the files of 1 of 2 ranks are missing"}


def test_what_the_library_did_not_announce_is_not_complete(tmp_path):
    """Megatron names an iteration in a file when all its ranks are written."""
    saves(tmp_path, "megatron")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("100\n")
    found = ckptdoctor.latest(tmp_path)
    why = "Megatron did not finish it: latest_checkpointed_iteration.txt still names 100"
    assert (name(found), reasons(found)) == ("iter_0000100", {"iter_0000200": why})


@pytest.mark.parametrize("kept", [("model.safetensors", "config.json"), ("model.safetensors", "optimizer.pt")])
def test_a_trainer_that_was_killed_early_left_no_checkpoint(tmp_path, kept):
    """Of its own it has written nothing yet; the checkpoints before show whose run it is. Later ones do not count."""
    run = saves(tmp_path, "trainer", (50, 100, 150))
    write(run.saved[1].path / "config.json", {})
    for each in run.saved[1].path.iterdir():
        if each.name not in kept:
            each.unlink()
    shutil.rmtree(run.saved[2].path)
    found = ckptdoctor.latest(tmp_path)
    why = "trainer_state.json is missing, which the Trainer writes last"
    assert (name(found), reasons(found)) == ("checkpoint-50", {"checkpoint-100": why})
    *_, line = ckptdoctor.watch(tmp_path, once=True, interval=0)
    assert (line.name, line.trouble) == ("checkpoint-100", why)
    assert ckptdoctor.latest(run.saved[1].path) is None
    import fsspec

    fsspec.filesystem("memory").put(f"{tmp_path}/", f"/killed/{len(kept[1])}/", recursive=True)
    found = ckptdoctor.latest(f"memory://killed/{len(kept[1])}")
    assert (name(found), reasons(found)) == ("checkpoint-50", {"checkpoint-100": why})


def test_folders_of_save_pretrained_are_complete(tmp_path):
    """They are called as those of the Trainer, and no other one in their run is its."""
    for step in (50, 100):
        write(tmp_path / f"checkpoint-{step}" / "model.safetensors", generated.in_safetensors())
        write(tmp_path / f"checkpoint-{step}" / "config.json", {})
    found = ckptdoctor.latest(tmp_path)
    assert (name(found), found.passed_over) == ("checkpoint-100", ())
    assert [each.valid for each in ckptdoctor.watch(tmp_path, once=True, interval=0)] == [True, True]


def _trained(tmp_path, epoch, step=0):
    folder = tmp_path / (f"epoch-{epoch:04}" + (f"-step-{step:04}" if step else ""))
    contents = {
        "epoch": epoch,
        "step": step,
        "state_dict": weights(),
        "optimizer": adam(),
        "rng": torch.get_rng_state(),
    }
    data = saved(contents)
    write(folder / "training.pt", data)
    write(folder / "truth.json", {"made": {}, "files": {"training.pt": {"sha256": hashlib.sha256(data).hexdigest()}}})
    return folder


def test_our_own_trainer(tmp_path):
    """A step counts within its epoch there, and truth.json has the hash of what was written."""
    _trained(tmp_path, 3)
    newest = _trained(tmp_path, 3, 57)
    shutil.copytree(newest, tmp_path / "epoch-0004.partial")
    _trained(tmp_path, 2, 80)
    assert name(ckptdoctor.latest(tmp_path, resumable=True)) == newest.name
    data = bytearray((newest / "training.pt").read_bytes())
    data[data.find(weights()["layers.0.weight"].numpy().tobytes()[:64])] ^= 1
    (newest / "training.pt").write_bytes(data)
    found = ckptdoctor.latest(tmp_path, verified=True)
    assert (name(found), [each.value for each in found.levels]) == ("epoch-0003", ["V0", "V1", "V2"])
    assert "truth.json" in reasons(found)[newest.name]


def test_an_optimizer_in_a_file_of_its_own(tmp_path):
    """nanochat writes model_000200.pt next to meta_000200.json and optim_000200_rank0.pt."""
    for step in (100, 200):
        write(tmp_path / f"model_{step:06}.pt", in_torch("weights"))
        write(tmp_path / f"meta_{step:06}.json", {"step": step})
        write(tmp_path / f"optim_{step:06}_rank0.pt", in_torch("adam"))
    assert name(ckptdoctor.latest(tmp_path, resumable=True)) == "model_000200.pt"
    cut(tmp_path / "optim_000200_rank0.pt")
    assert name(ckptdoctor.latest(tmp_path, resumable=True)) == "model_000100.pt"
    assert name(ckptdoctor.latest(tmp_path)) == "model_000200.pt"


def test_steps_and_epochs_are_not_mixed_up(tmp_path):
    """Numbers that do not say what they count are compared as they are, and losses in names are not."""
    for at, loss in ((9, 0.5), (10, 0.25), (2, 0.125)):
        write(tmp_path / f"epoch_{at}-loss_{loss}.pt", saved({"epoch": at, "model": weights(), "optimizer": adam()}))
    found = ckptdoctor.latest(tmp_path)
    assert (name(found), found.epoch, found.disagreements) == ("epoch_10-loss_0.25.pt", 10.0, ())


def test_a_name_that_contradicts_its_contents_is_told(tmp_path):
    """The contents are believed, and all of that series are asked."""
    for label, step in ((100, 300), (200, 100), (300, 200)):
        write(tmp_path / f"step_{label}.pt", saved({"global_step": step, "model": weights(), "optimizer": adam()}))
    found = ckptdoctor.latest(tmp_path)
    assert (name(found), found.step, found.opened) == ("step_100.pt", 300, 3)
    assert "step_100.pt: global_step says step 300, unlike its name" in found.disagreements


def test_few_checkpoints_are_opened(tmp_path):
    """Of many that are called alike, one, and one more for each that is passed over."""
    data = saved({"model": weights(), "optimizer": adam()})
    for step in range(1_000):
        write(tmp_path / f"step_{step}.pt", data)
    os.utime(tmp_path / "step_999.pt")
    assert ckptdoctor.latest(tmp_path).opened == 1
    cut(tmp_path / "step_999.pt")
    found = ckptdoctor.latest(tmp_path)
    assert (name(found), found.opened) == ("step_998.pt", 2)


@pytest.mark.parametrize("pattern", ["checkpoint-{}/model.safetensors", "model-{}.safetensors"])
def test_the_seal_of_a_run_proves_the_bytes_of_what_is_in_it(tmp_path, pattern):
    """Files without checksums reach V1 by it, whether each is in a folder of its own or not; a flipped one is named."""
    for step in (1, 2):
        path = tmp_path / "run" / pattern.format(step)
        path.parent.mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file({"w": torch.full((4,), float(step))}, path, metadata={"format": "pt"})
    unproven = run_here("latest", "run", "--verified", cwd=tmp_path)
    assert b"V1 not proven" in unproven.stdout + unproven.stderr
    ckptdoctor.seal(tmp_path / "run")
    proven = run_here("latest", "run", "--verified", cwd=tmp_path)
    assert b"V1 bytes" in proven.stdout + proven.stderr
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    passed = run_here("latest", "run", "--verified", cwd=tmp_path)
    assert b"it is not as it was sealed: ckptdoctor verify run/" in passed.stdout + passed.stderr


def test_a_seal_is_compared(tmp_path):
    """What is not as it was sealed is not verified."""
    run = saves(tmp_path, "trainer")
    ckptdoctor.seal(run.saved[1].path)
    assert [each.value for each in ckptdoctor.latest(tmp_path, verified=True).levels] == ["V0", "V1", "V2"]
    write(run.saved[1].path / "notes.txt", b"new")
    found = ckptdoctor.latest(tmp_path, verified=True)
    assert name(found) == "checkpoint-100" and "sealed" in reasons(found)["checkpoint-200"]
    assert found.unproven == "model.safetensors has no checksums"


def test_plain_sgd_has_no_state(tmp_path):
    """An optimizer that keeps nothing has lost nothing; one that keeps moments has."""
    network = torch.nn.Linear(2, 2)
    for step, kind in ((100, torch.optim.SGD), (200, torch.optim.Adam)):
        optimizer = kind(network.parameters(), lr=0.1)
        contents = {"step": step, "model": network.state_dict(), "optimizer": optimizer.state_dict()}
        write(tmp_path / f"step_{step}.pt", saved(contents))
    found = ckptdoctor.latest(tmp_path, resumable=True)
    assert (name(found), reasons(found)) == ("step_100.pt", {"step_200.pt": "the optimizer's state is empty"})
    assert found.without == ("a scheduler", "a random state")


def test_only_the_path_is_on_stdout(tmp_path):
    """The rest is on stderr, and with -q nothing is."""
    run = saves(tmp_path, "trainer")
    cut(run.saved[1].path / "model.safetensors")
    done = run_here("latest", "--resumable", ".", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"./checkpoint-100\n")
    first, second, *rest = done.stderr.decode().splitlines()
    assert first == "checkpoint-100 · step 100, epoch 1 (from trainer_state.json) · V0 headers, V3 resumable"
    assert second.startswith("  passed over checkpoint-200: model.safetensors: the file ends after") and not rest
    assert run_here("latest", "-q", ".", cwd=tmp_path).stderr == b""


def test_where_there_is_none_it_says_so(tmp_path):
    """Nothing on stdout, one sentence, and status 1."""
    done = run_here("latest", ".", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"error: . holds no checkpoint.\n")
    run = saves(tmp_path, "trainer", (100,))
    cut(run.saved[0].path / "model.safetensors")
    done = run_here("latest", "--quiet", ".", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"error: The only checkpoint in . is not intact.\n"


def test_all_of_it_as_json(tmp_path):
    """One document, also where there is none."""
    saves(tmp_path, "trainer")
    said = json.loads(run_here("latest", ".", "--json", "--resumable", cwd=tmp_path).stdout)
    assert (said["path"], said["step"], said["levels"]) == ("./checkpoint-200", 200, ["V0", "V3"])
    (tmp_path / "empty").mkdir()
    done = run_here("latest", "empty", "--format", "json", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["path"]) == (1, None)


def test_weights_that_are_missing_are_missed(tmp_path):
    """Whatever else is in the folder of a Trainer or of accelerate."""
    for kind in ("trainer", "accelerate"):
        run = saves(tmp_path / kind, kind)
        (run.saved[1].path / "model.safetensors").unlink()
        found = ckptdoctor.latest(tmp_path / kind)
        assert found.path == str(run.saved[0].path)
        assert list(reasons(found).values()) == ["its weights are missing"]


def test_networks_in_folders_of_their_own(tmp_path):
    """Scripts of diffusers save a folder for each network next to what accelerate saves."""
    for step in (500, 1000):
        folder = tmp_path / f"checkpoint-{step}"
        for network in ("unet", "unet_ema"):
            write(folder / network / "diffusion_pytorch_model.safetensors", generated.in_safetensors())
            write(folder / network / "config.json", {})
        write(folder / "optimizer.bin", in_torch("adam"))
        write(folder / "random_states_0.pkl", in_torch("states of accelerate"))
    assert name(ckptdoctor.latest(tmp_path, resumable=True)) == "checkpoint-1000"
    cut(tmp_path / "checkpoint-1000" / "unet_ema" / "diffusion_pytorch_model.safetensors")
    assert name(ckptdoctor.latest(tmp_path, resumable=True)) == "checkpoint-500"


def test_folders_that_only_hold_checkpoints(tmp_path):
    """They are looked into, whatever else is next to them."""
    run = saves(tmp_path, "accelerate")
    write(tmp_path / "final.pt", in_torch("weights"))
    write(tmp_path / "epoch_9_samples" / "image.png", b"")
    found = ckptdoctor.latest(tmp_path, resumable=True)
    assert found.path == str(run.saved[1].path)


def test_steps_in_the_header_of_safetensors(tmp_path):
    """Scripts write them into its metadata."""
    for file, step in (("a.safetensors", "300"), ("b.safetensors", "200")):
        write(tmp_path / file, safetensors.torch.save(weights(), {"format": "pt", "ss_steps": step}))
    found = ckptdoctor.latest(tmp_path)
    assert (name(found), found.step, found.step_from) == ("a.safetensors", 300, "ss_steps")


def test_what_breaks_us_is_passed_over(tmp_path, monkeypatch):
    """A bug that one checkpoint brings out does not keep a training from the one before."""
    run = saves(tmp_path, "lightning")

    def check(path, settings):
        if path == str(run.saved[1].path):
            raise RecursionError("too deep")
        return ckptdoctor.check(path)

    monkeypatch.setattr("ckptdoctor.runs.validity.check", check)
    found = ckptdoctor.latest(tmp_path)
    assert found.path == str(run.saved[0].path) and "RecursionError" in found.passed_over[0].reason


# rules of damage and missing parts that say ERROR and leave a checkpoint valid all the same, with the reason
ACCEPTED = {
    "X802": "slices of tensor parallelism are what such a run resumes from",
    "X810": "sharded tensors are what such a run resumes from",
    "X811": "sharded tensors are what such a run resumes from",
}


def test_the_rules_that_make_a_checkpoint_invalid_are_listed():
    """Every error of the families of damage, shards and values is either listed or accepted with a reason."""
    listed = {fault.code for fault in FAULTS}
    errors = {each.code for each in all_rules() if each.severity is Severity.ERROR and each.code[0] in "FXV"}
    assert errors - listed == set(ACCEPTED)
    assert listed <= {each.code for each in all_rules()}


def test_the_verdict_is_that_of_check(tmp_path):
    """What is passed over for a rule is passed over for a finding that check reports of the same path."""
    run = saves(tmp_path, "trainer")
    cut(run.saved[1].path / "optimizer.pt")
    reason = reasons(ckptdoctor.latest(tmp_path))["checkpoint-200"]
    said = [f"{each.message} ({each.code} {each.name})" for each in ckptdoctor.check(run.saved[1].path).findings]
    assert reason in said
