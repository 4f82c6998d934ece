"""Prune on real files: what a run can be resumed from is never worse afterwards, and all of it comes back."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shlex
import zipfile
from pathlib import Path
from unittest import mock

import pytest
import torch

import ckptdoctor
from tests.commands import run_anew, run_here
from tests.runs.generated import KINDS, Run, make

FLAGS = (
    {"resumable": False, "verified": False},
    {"resumable": True, "verified": False},
    {"resumable": True, "verified": True},
)


def audit(folder, *stores):
    """The inventory of the stores."""
    done = run_here("audit", *stores, "-o", "store.db", "--jobs", "1", "-q", cwd=folder)
    assert done.returncode in (0, 1), done.stderr.decode()
    return "store.db"


def prune(folder, *options):
    """What prune says, as it is asked for in JSON."""
    done = run_here("prune", "store.db", *options, "--format", "json", cwd=folder)
    assert done.returncode in (0, 1), done.stderr.decode()
    return json.loads(done.stdout)


def contents(folder):
    """The hash of every file and the target of every link, by name; without the trash."""
    return {
        str(each.relative_to(folder)): os.readlink(each)
        if each.is_symlink()
        else hashlib.sha256(each.read_bytes()).digest()
        for each in sorted(folder.rglob("*"))
        if (each.is_symlink() or each.is_file()) and ".ckptdoctor-trash" not in each.parts
    }


def newest(run):
    """What latest answers with each set of options."""
    return [None if (found := ckptdoctor.latest(run, **flags)) is None else found.path for flags in FLAGS]


def trashes(store):
    """The trash folders of a store."""
    return sorted((store / ".ckptdoctor-trash").glob("*"))


def wrong(numbers, folder, *options):
    """The runs of which latest says something else after a prune of their store; and whether all of it came back."""
    store = folder / "store"
    runs = {}
    for number in numbers:
        (store / str(number)).mkdir(parents=True)
        runs[number] = make(number, store / str(number)).folder
    before, said = contents(store), {number: newest(run) for number, run in runs.items()}
    audit(folder, "store")
    gone = [each["path"] for each in prune(folder, *options, "--apply")["checkpoints"] if each["moved_to"]]
    assert gone and not any(map(os.path.lexists, gone))
    found = [(number, said[number], newest(run)) for number, run in runs.items() if newest(run) != said[number]]
    for trash in trashes(store):
        assert run_here("prune", "--restore", trash, cwd=folder).returncode == 0
    return found, contents(store) == before


def test_latest_says_the_same_of_generated_runs(tmp_path):
    """Whatever was planted in them; and they come back byte for byte."""
    assert wrong(range(len(KINDS)), tmp_path, "--keep-last=1", "--broken") == ([], True)


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--keep-last=1",), ("--keep-last=2", "--broken"), ("--keep-every=200",)])
def test_latest_says_the_same_of_hundreds(tmp_path, options):
    """The same at scale."""
    assert wrong(range(2_000, 2_150), tmp_path, *options) == ([], True)


@pytest.fixture
def run(tmp_path):
    """A run of six small files by torch."""
    (tmp_path / "run").mkdir()
    for step in range(100, 700, 100):
        save(tmp_path / "run" / f"model_step{step}.pt", step)
    return tmp_path / "run"


def save(path, step):
    """A checkpoint that says its step."""
    torch.save({"model": {"weight": torch.rand(40, 40) + 0.1}, "global_step": step}, path)


def test_nothing_is_moved_without_apply(run, tmp_path):
    """The plan names what may go, and why the rest stays."""
    audit(tmp_path, "run")
    before = contents(tmp_path)
    done = run_here("prune", "store.db", "--keep-last", "2", cwd=tmp_path)
    said = done.stdout.decode()
    assert done.returncode == 0 and b"--apply" in done.stderr
    assert "stays  model_step600.pt" in said and "the newest valid one" in said
    assert "goes   model_step400.pt" in said and "4 of 6 checkpoints may go" in said
    assert contents(tmp_path) == before


def test_what_changed_since_the_audit_stays(run, tmp_path):
    """A file that was written anew is another one."""
    audit(tmp_path, "run")
    save(run / "model_step100.pt", 100)
    (run / "model_step200.pt").unlink()
    made = prune(tmp_path, "--keep-last", "1", "--apply")
    troubles = {Path(each["path"]).name: each["trouble"] for each in made["checkpoints"] if each["trouble"]}
    assert "has changed since" in troubles.pop("model_step100.pt")
    assert "no longer there" in troubles.pop("model_step200.pt")
    assert troubles == {} and (run / "model_step100.pt").exists() and not (run / "model_step300.pt").exists()


def test_what_belongs_to_a_file_goes_and_comes_with_it(run, tmp_path):
    """Its seal, its parity, and the journal that undoes a change in place."""
    old = run / "model_step100.pt"
    beside = [run / f"{old.name}{suffix}" for suffix in (".seal.json", ".parity")] + [
        run / f".{old.name}.ckptdoctor-undo-0001"
    ]
    for each in beside:
        each.write_bytes(b"of the file")
    audit(tmp_path, "run")
    before = contents(run)
    prune(tmp_path, "--keep-last", "1", "--apply")
    assert not any(each.exists() for each in (old, *beside))
    (trash,) = trashes(run)
    assert run_here("prune", "--restore", trash, cwd=tmp_path).returncode == 0
    assert contents(run) == before


def test_nothing_goes_if_what_would_stay_was_damaged_meanwhile(run, tmp_path):
    """The newest is read whole right before: a flipped bit in it is found, although it has the same size and time."""
    audit(tmp_path, "run")
    newest_one = run / "model_step600.pt"
    data, status = bytearray(newest_one.read_bytes()), newest_one.stat()
    data[len(data) // 2] ^= 4
    newest_one.write_bytes(data)
    os.utime(newest_one, ns=(status.st_atime_ns, status.st_mtime_ns))
    made = prune(tmp_path, "--keep-last", "1", "--apply")
    assert all(each["moved_to"] is None for each in made["checkpoints"])
    assert "F009" in next(each["trouble"] for each in made["checkpoints"] if each["trouble"])


def adam(value):
    """The state of Adam for one weight, with moments of this value."""
    moments = {"exp_avg": torch.full((40, 40), value), "exp_avg_sq": torch.full((40, 40), value)}
    group = {"lr": 1e-3, "betas": (0.9, 0.999), "params": [0]}
    return {"state": {0: {"step": torch.tensor(5.0), **moments}}, "param_groups": [group]}


def flip(path):
    """Change a bit of the last large tensor of a file by torch, of which size and times stay the same."""
    data, status = bytearray(path.read_bytes()), path.stat()
    with zipfile.ZipFile(path) as records:
        last = [each for each in records.infolist() if each.file_size > 1_000][-1]
    data[last.header_offset + last.file_size // 2] ^= 4
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("way", ["in the file", "next to it", "Trainer"])
def test_the_newest_to_resume_from_is_read_whole(tmp_path, way):
    """The newest valid one cannot be resumed from, and the newest that says it can is damaged: nothing goes."""
    run = tmp_path / "run"
    run.mkdir()
    if way == "Trainer":
        for step in (100, 200, 300, 400):
            KINDS["trainer"](Run(run, "trainer"), step, None)
        (run / "checkpoint-400" / "scheduler.pt").unlink()
        damaged = run / "checkpoint-300" / "optimizer.pt"
    else:
        for step in (100, 200, 300, 400):
            model = {"weight": torch.rand(40, 40) + 0.1}
            optimizer = adam(0.0 if step == 400 else 1.0)
            inside = {"optimizer": optimizer} if way == "in the file" else {}
            torch.save({"model": model, "global_step": step, **inside}, run / f"model_{step}.pt")
            if not inside:
                torch.save(optimizer, run / f"optimizer_{step}.pt")
        damaged = run / ("model_300.pt" if way == "in the file" else "optimizer_300.pt")
    audit(tmp_path, "run")
    flip(damaged)
    sound = newest(run)[-1]
    assert "200" in sound
    made = prune(tmp_path, "--keep-last", "1", "--apply")
    assert newest(run)[-1] == sound
    assert [each["moved_to"] for each in made["checkpoints"]] == [None] * 4
    assert "F009" in next(each["trouble"] for each in made["checkpoints"] if each["trouble"])


def test_a_link_that_was_made_since_keeps_its_target(run, tmp_path):
    """Nobody is left with a link to nothing."""
    audit(tmp_path, "run")
    (run / "latest.pt").symlink_to("model_step300.pt")
    made = prune(tmp_path, "--keep-last", "1", "--apply")
    assert [Path(each["path"]).name for each in made["checkpoints"] if each["trouble"]] == ["model_step300.pt"]
    assert (run / "latest.pt").exists()


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("store/last.pt", "x/checkpoints/model_step100.pt"),
        ("store/x/.last", "checkpoints/model_step100.pt"),
        ("store/x/other/step_9/weights.bin", "../../checkpoints/model_step100.pt"),
    ],
)
def test_a_link_anywhere_in_the_store_keeps_its_target(tmp_path, link, target):
    """In the folder of the run or of the store, with a hidden name, or inside another checkpoint."""
    checkpoints = tmp_path / "store" / "x" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    for step in (100, 200, 300):
        save(checkpoints / f"model_step{step}.pt", step)
    audit(tmp_path, "store")
    (tmp_path / link).symlink_to(target)
    made = prune(tmp_path, "--keep-last", "1", "--apply")
    troubles = {Path(each["path"]).name: each["trouble"] for each in made["checkpoints"] if each["trouble"]}
    assert troubles == {"model_step100.pt": f"{tmp_path / link} names it"}
    assert (tmp_path / link).exists() and not (checkpoints / "model_step200.pt").exists()


def test_what_a_library_names_since_the_audit_stays(tmp_path):
    """The file of DeepSpeed names an older checkpoint, after which those that follow do not count as complete."""
    run = tmp_path / "run"
    run.mkdir()
    for step in (100, 200, 300):
        KINDS["deepspeed"](Run(run, "deepspeed"), step, None)
    (run / "latest").write_text("global_step300")
    audit(tmp_path, "run")
    (run / "latest").write_text("global_step100")
    before = newest(run)
    assert before[0] == str(run / "global_step100")
    made = prune(tmp_path, "--keep-last", "1", "--apply")
    assert newest(run) == before
    troubles = {Path(each["path"]).name: each["trouble"] for each in made["checkpoints"] if each["trouble"]}
    assert troubles.pop("global_step100") == f"{run / 'latest'} names it"
    assert "still names global_step100" in troubles.pop("global_step200") and not troubles


def test_what_a_new_checkpoint_calls_the_best_stays(tmp_path):
    """A training that goes on saves one after the audit, and loads the best one at its end."""
    run = tmp_path / "run"
    run.mkdir()
    for step in (100, 200, 300):
        KINDS["trainer"](Run(run, "trainer"), step, None)
    audit(tmp_path, "run")
    state = KINDS["trainer"](Run(run, "trainer"), 400, None) / "trainer_state.json"
    best = {"best_model_checkpoint": str(run / "checkpoint-100")}
    state.write_text(json.dumps(json.loads(state.read_text()) | best))
    prune(tmp_path, "--keep-last", "1", "--apply")
    assert sorted(each.name for each in run.glob("checkpoint-*")) == [f"checkpoint-{step}" for step in (100, 300, 400)]


def test_nothing_goes_where_the_store_has_a_folder_by_now_that_is_not_listed(run, tmp_path):
    """What is in it might need what would go."""
    audit(tmp_path, "run")
    (tmp_path / "elsewhere").mkdir()
    (run / "more").symlink_to(tmp_path / "elsewhere")
    before = contents(run)
    made = prune(tmp_path, "--keep-last", "1", "--apply")
    (trouble,) = {each["trouble"] for each in made["checkpoints"] if not each["stays"]}
    assert f"{run / 'more'} might have something that needs it" in trouble and contents(run) == before


def test_a_store_that_is_reached_through_a_link_is_audited_by_its_own_path(run, tmp_path):
    """It may be in the inventory a second time, where something else may stay."""
    (tmp_path / "link").symlink_to(run)
    audit(tmp_path, "link")
    made = prune(tmp_path, "--keep-last", "1", "--apply")
    troubles = {each["trouble"] for each in made["checkpoints"] if not each["stays"]}
    assert troubles == {f"its path leads through a link, so it may be here twice: audit {run} instead"}


def pasted(said, cwd):
    """Carry out the audit that a sentence ends in, as a shell would."""
    words = shlex.split(said[said.index("ckptdoctor audit ") :])[1:]
    return run_here(*words, "--jobs", "1", "-q", cwd=cwd)


@pytest.mark.parametrize("deep", [(), ("--deep",)])
@pytest.mark.parametrize("way", ["in the file", "next to it"])
def test_the_audit_that_is_printed_finds_what_was_found(tmp_path, way, deep):
    """Also where every byte was read before, and the file looks as it did then: another one stays then."""
    run = tmp_path / "my run"
    run.mkdir()
    for step in (100, 200, 300):
        optimizer = {"optimizer": adam(1.0)} if way == "in the file" else {}
        torch.save(
            {"model": {"weight": torch.rand(40, 40) + 0.1}, "global_step": step, **optimizer}, run / f"model_{step}.pt"
        )
        if not optimizer:
            torch.save(adam(1.0), run / f"optimizer_{step}.pt")
    assert run_here("audit", run, "-o", "store.db", "--jobs", "1", "-q", *deep, cwd=tmp_path).returncode == 0
    flip(run / ("model_300.pt" if way == "in the file" else "optimizer_300.pt"))
    made = prune(tmp_path, "--keep-last", "1", "--apply")
    assert not any(each["moved_to"] for each in made["checkpoints"])
    (trouble,) = {each["trouble"] for each in made["checkpoints"] if each["trouble"]}
    assert pasted(trouble, tmp_path).returncode == 1
    made = prune(tmp_path, "--keep-last", "1", "--apply")
    assert [Path(each["path"]).name for each in made["checkpoints"] if each["moved_to"]] == ["model_100.pt"]
    assert not any(each["trouble"] for each in made["checkpoints"])


def test_an_inventory_of_an_audit_that_did_not_end_is_refused(run, tmp_path):
    """What it did not see might need what would go."""
    import sqlite3

    audit(tmp_path, "run")
    with sqlite3.connect(tmp_path / "store.db") as rows:
        rows.execute("UPDATE audit SET state = 'interrupted'")
    rows.close()
    done = run_here("prune", "store.db", "--keep-last", "1", cwd=tmp_path)
    assert done.returncode == 2 and b"did not finish" in done.stderr
    assert pasted(done.stderr.decode(), tmp_path).returncode == 0
    assert run_here("prune", "store.db", "--keep-last", "1", cwd=tmp_path).returncode == 0


def unread(*words, cwd, stdout=None):
    """A command of which nobody reads what it writes, or which writes it into this file."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return run_anew(*words, cwd=cwd, stdout=writing if stdout is None else stdout)
    finally:
        os.close(writing)


def test_moving_goes_on_when_nobody_reads_about_it(run, tmp_path):
    """As in a pipe into head: all of it is moved, and brought back, and stderr has the command that does so."""
    audit(tmp_path, "run")
    before = contents(run)
    done = unread("prune", "store.db", "--keep-last", "1", "--apply", cwd=tmp_path)
    (trash,) = trashes(run)
    assert done.returncode == 0 and len(list(run.glob("*.pt"))) == 1
    assert f"To bring them back: ckptdoctor prune --restore {trash}" in done.stderr.decode()
    done = unread("prune", "--restore", trash, cwd=tmp_path)
    assert (done.returncode, contents(run)) == (0, before)
    assert done.stderr.decode() == f"Restored 5 checkpoints and files from {trash}.\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no disk that is always full")
def test_moving_goes_on_when_its_lines_go_to_a_full_disk(run, tmp_path):
    """The status says that the output is not there, and stderr what was done."""
    audit(tmp_path, "run")
    with open("/dev/full", "wb") as full:
        done = unread("prune", "store.db", "--keep-last", "1", "--apply", cwd=tmp_path, stdout=full)
    said = done.stderr.decode()
    assert done.returncode == 2 and "Moved 5 checkpoints" in said and "The output cannot be written" in said
    assert len(list(run.glob("*.pt"))) == 1


@pytest.mark.parametrize(("fault", "status"), [(KeyboardInterrupt, 130), (RuntimeError, 2)])
def test_what_ends_it_midway_leaves_the_json_of_what_was_done(run, tmp_path, fault, status):
    """And so it is on the way back."""
    audit(tmp_path, "run")
    before = contents(run)
    real, calls = os.rename, []

    def third(*words):
        calls.append(words)
        if len(calls) == 3:
            raise fault
        real(*words)

    with mock.patch("os.rename", third):
        done = run_here("prune", "store.db", "--keep-last", "1", "--apply", "--format", "json", cwd=tmp_path)
    (trash,) = trashes(run)
    moved = [each["path"] for each in json.loads(done.stdout)["checkpoints"] if each["moved_to"] == str(trash)]
    assert done.returncode == status and moved == [str(run / f"model_step{step}.pt") for step in (100, 200)]
    assert f"ckptdoctor prune --restore {trash}" in done.stderr.decode()

    real = os.link
    calls.clear()
    (run / "model_step300.pt").rename(trash / "files" / "model_step300.pt")
    with mock.patch("os.link", lambda *words, **_: third(*words)):
        done = run_here("prune", "--restore", trash, "--format", "json", cwd=tmp_path)
    assert [each["path"] for each in json.loads(done.stdout)["restored"]] == moved and done.returncode == status
    assert f"To bring the rest back: ckptdoctor prune --restore {trash}" in done.stderr.decode()
    assert run_here("prune", "--restore", trash, cwd=tmp_path).returncode == 0 and contents(run) == before


def test_what_cannot_be_moved_stays_and_the_others_go(tmp_path):
    """The weights stay where the state of their optimizer cannot go with them, and so does what has gone meanwhile."""
    for name in ("a", "b", "c"):
        (tmp_path / "store" / name).mkdir(parents=True)
        for step in (100, 200):
            save(tmp_path / "store" / name / f"model_{step}.pt", step)
            torch.save(adam(1.0), tmp_path / "store" / name / f"optimizer_{step}.pt")
    audit(tmp_path, "store")
    real = os.rename

    def refused(source, target):
        if source.endswith("a/optimizer_100.pt"):
            raise PermissionError(errno.EACCES, "Permission denied", source)
        if source.endswith("b/model_100.pt"):
            os.unlink(source)
        real(source, target)

    with mock.patch("os.rename", refused):
        done = run_here("prune", "store.db", "--keep-last", "1", "--apply", "--format", "json", cwd=tmp_path)
    store = tmp_path / "store"
    (trash,) = trashes(store)
    troubles = [each["trouble"] for each in json.loads(done.stdout)["checkpoints"] if not each["stays"]]
    assert done.returncode == 1 and troubles == [
        f"{store}/a/optimizer_100.pt could not be moved into {trash}: Permission denied. The owner of it, or of a "
        "folder that it is in, can grant write access",
        f"{store}/b/model_100.pt is no longer there",
        None,
    ]
    left = {str(each.relative_to(store)) for each in store.glob("[abc]/*")}
    assert {"a/model_100.pt", "a/optimizer_100.pt", "b/optimizer_100.pt"} < left
    assert not {"c/model_100.pt", "c/optimizer_100.pt"} & left


def test_the_state_of_an_optimizer_next_to_weights_goes_with_them(tmp_path):
    """It is as large as two of them, and of no use alone."""
    (tmp_path / "run").mkdir()
    for step in (100, 200):
        save(tmp_path / "run" / f"model_{step}.pt", step)
        net = torch.nn.Linear(4, 4)
        optimizer = torch.optim.Adam(net.parameters())
        net(torch.ones(4)).sum().backward()
        optimizer.step()
        torch.save(optimizer.state_dict(), tmp_path / "run" / f"optimizer_{step}.pt")
    audit(tmp_path, "run")
    prune(tmp_path, "--keep-last", "1", "--apply")
    assert sorted(each.name for each in (tmp_path / "run").iterdir() if each.is_file()) == [
        *("model_200.pt", "optimizer_200.pt"),
    ]


@pytest.fixture(scope="module")
def store_db(tmp_path_factory):
    """A folder with an inventory of one run."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "run").mkdir()
    save(folder / "run" / "model_step1.pt", 1)
    audit(folder, "run")
    return folder


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "Name the inventory"),
        (("store.db",), "Choose what to keep"),
        (("store.db", "--keep-last", "1", "--metric", "loss"), "--keep-best"),
        (("--restore", "trash", "--apply"), "no other option"),
        (("missing.db", "--keep-last", "1"), "missing.db"),
        ((".", "--keep-last", "1"), ". is a folder. Name the database that this writes: ckptdoctor audit ."),
        (("--restore", "missing"), "not a trash folder"),
    ],
)
def test_what_cannot_be_meant_is_refused(store_db, options, said):
    """In one sentence, and nothing is touched."""
    tmp_path = store_db
    done = run_here("prune", *options, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr.decode() and "Traceback" not in done.stderr.decode()
