"""Each new checkpoint of a run has one line, when it is complete and not before."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import count

import pytest
import torch

import ckptdoctor
from ckptdoctor.rendering.watch import line as rendered
from ckptdoctor.watching.judging import Watched
from ckptdoctor.watching.watch import Began, Ended, Watcher, WatchRequest
from tests.commands import ROOT, as_others_may, run_anew, run_here, with_modes
from tests.runs.generated import KINDS, Run, Saved, adam, weights


def save(path, step, *, seed=0, **changed):
    """Save weights and Adam's state as a script does."""
    model = weights(seed) | changed
    torch.save({"model": model, "optimizer": adam(), "step": step, "scheduler": {}, "rng": 1}, path)
    return model


def watched(run, *acts, looks=2, **options):
    """What comes of a run of which ``acts`` are done one after another, each followed by so many looks."""
    turns = [turn for act in acts for turn in (act, *[None] * (looks - 1))]
    turn = iter(turns)

    def wait(seconds):
        act = next(turn, stop)
        if act is not None:
            act()

    def stop():
        raise KeyboardInterrupt

    watcher = Watcher(WatchRequest(str(run), **options), wait)
    events = []
    try:
        events.extend(iter(watcher.events()))
    except KeyboardInterrupt:
        events.append(watcher)
    return events


def lines(events):
    """The checkpoints alone."""
    return [each for each in events if isinstance(each, Watched)]


def test_a_new_checkpoint_has_one_line(tmp_path):
    """With its step, its levels, and nothing of those that were there before."""
    save(tmp_path / "step_1.pt", 1)
    began, line, watcher = watched(tmp_path, lambda: save(tmp_path / "step_2.pt", 2), looks=4)
    assert (began.existing, began.newest, began.reached.step) == (1, "step_1.pt", 1)
    assert (line.name, line.step, line.valid, line.since, watcher.lines) == ("step_2.pt", 2, True, "step_1.pt", 1)
    assert [each.value for each in line.levels] == ["V0", "V1", "V2", "V3"]


def test_what_is_written_in_pieces_has_a_line_at_its_end(tmp_path):
    """However long it stays as it is in between; its last piece has the headers of a zip."""
    save(tmp_path / "whole", 5)
    data = (tmp_path / "whole").read_bytes()
    path = tmp_path / "run" / "step_5.pt"
    path.parent.mkdir()
    pieces = [lambda end=end: path.write_bytes(data[:end]) for end in (1, 2_000, len(data) - 100, len(data) - 1)]
    events = watched(path.parent, *pieces, looks=3)
    assert lines(events) == [] and list(events[-1].unfinished) == ["step_5.pt"]
    (line,) = lines(watched(path.parent, *pieces, lambda: path.write_bytes(data), looks=3))
    assert (line.valid, line.step) == (True, 5)


def test_a_file_that_is_still_growing_has_no_line(tmp_path):
    """Although its headers, which come first, are complete: sizes and times change from one look to the next."""
    grown = count()
    folder = tmp_path / "checkpoint-7"

    def more():
        folder.mkdir(exist_ok=True)
        save(folder / "pytorch_model.bin", 7)
        (folder / f"shard-{next(grown)}.txt").write_text("")

    assert lines(watched(tmp_path, *[more] * 6, looks=1)) == []
    assert len(lines(watched(tmp_path, *[more] * 6, lambda: None, lambda: None, looks=1))) == 1


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_library_has_a_line_when_its_last_file_is_there(kind, tmp_path):
    """The files of a checkpoint appear one after another; the line comes once, after the last that matters."""
    whole, run = Run(tmp_path / "whole", kind), tmp_path / "run"
    whole.folder.mkdir()
    run.mkdir()
    whole.pattern = "ckpt_{}.pt"
    for step in (100, 200):
        whole.saved.append(Saved(KINDS[kind](whole, step, None), step))
    every = [path for path in whole.folder.rglob("*") if path.is_file()]
    every.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
    saved = [str(run / each.path.relative_to(whole.folder)) for each in whole.saved]

    def copy(path):
        goal = run / path.relative_to(whole.folder)
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, goal)

    found = lines(watched(run, *[lambda path=path: copy(path) for path in every], looks=3))
    assert [(each.path, each.valid) for each in found] == [(path, True) for path in saved], (found, every)


def test_a_temporary_name_has_no_line(tmp_path):
    """The line comes when the checkpoint has got its own name."""
    events = watched(
        tmp_path,
        lambda: save(tmp_path / "step_1.pt.tmp", 1),
        lambda: None,
        lambda: os.replace(tmp_path / "step_1.pt.tmp", tmp_path / "step_1.pt"),
    )
    assert [each.name for each in lines(events)] == ["step_1.pt"]
    (*_, watcher) = watched(tmp_path, lambda: save(tmp_path / "step_2.pt.tmp", 2))
    assert watcher.unfinished == {"step_2.pt.tmp": "it has a temporary name"}


def test_weights_that_moved_are_measured(tmp_path):
    """The distance is that of torch; equal weights have none, and a counter of integers does not matter."""
    path = (tmp_path / "step_{}.pt").as_posix().format
    saved = []
    events = watched(
        tmp_path,
        lambda: saved.append(save(path(1), 1, seed=1)),
        lambda: saved.append(save(path(2), 2, seed=2, num_batches_tracked=torch.tensor(10**9))),
        lambda: save(path(3), 3, seed=2),
    )
    one, other = (torch.cat([each[name].flatten().double() for name in weights()]) for each in saved)
    first, second, third = lines(events)
    assert (first.moved, first.since, third.moved) == (None, None, 0.0)
    assert second.moved == pytest.approx(float((other - one).norm() / one.norm()), rel=1e-4)
    assert second.seconds_since == pytest.approx(os.stat(path(2)).st_mtime - os.stat(path(1)).st_mtime)


def test_nan_is_named(tmp_path):
    """An invalid checkpoint says which tensor; the next one is compared with it."""
    bad = torch.full((24,), float("nan"))
    events = watched(
        tmp_path,
        lambda: save(tmp_path / "step_1.pt", 1),
        lambda: save(tmp_path / "step_2.pt", 2, **{"layers.0.bias": bad}),
        lambda: save(tmp_path / "step_3.pt", 3),
    )
    _, line, third = lines(events)
    assert [each.value for each in line.levels] == ["V0", "V1", "V3"]
    assert "24 NaN in 1 tensor" in line.trouble and line.findings[0].keys == (("model", "layers.0.bias"),)
    assert (line.moved, line.unmeasured) == (None, "NaN or infinity is new here")
    assert (third.valid, third.since, third.unmeasured) == (True, "step_2.pt", "it has NaN or infinity")


def test_what_stays_cut_off_is_invalid_after_a_minute(tmp_path, monkeypatch):
    """A killed save has a line as well, when nothing has been written for so long."""
    save(tmp_path / "step_1.pt", 1)
    monkeypatch.setattr("ckptdoctor.watching.watch._PATIENCE", 0.0)
    cut = (tmp_path / "step_1.pt").read_bytes()[:-50]
    (line,) = lines(watched(tmp_path, lambda: (tmp_path / "step_2.pt").write_bytes(cut)))
    assert (line.name, line.valid, line.levels) == ("step_2.pt", False, ())


def test_a_file_that_is_saved_again_has_a_line_again(tmp_path):
    """The one before it is gone then, and what was kept of it in memory shows how far the weights moved."""
    path = tmp_path / "ckpt.pt"
    one, other = (torch.cat([each.flatten() for each in weights(seed).values()]) for seed in (1, 2))
    for run in (tmp_path, path):
        path.unlink(missing_ok=True)
        found = lines(watched(run, *[lambda step=step: save(path, step, seed=step) for step in (1, 2)]))
        assert [each.step for each in found] == [1, 2] and not found[1].estimated
        assert " s after it was last saved · weights moved " in rendered(found[1])
        assert found[1].moved == pytest.approx(float((other - one).norm() / one.norm()), rel=1e-4)


def test_what_is_removed_is_forgotten(tmp_path):
    """As trainers do that keep the last few."""
    one, two = tmp_path / "step_1.pt", tmp_path / "step_2.pt"

    def second():
        save(two, 2)
        one.unlink()

    first, line = lines(watched(tmp_path, lambda: save(one, 1), second))
    assert (line.since, line.moved, line.unmeasured) == (first.name, 0.0, "")


def test_a_part_of_large_weights_is_kept(tmp_path, monkeypatch):
    """Of a checkpoint that is gone: what moved is estimated by it, and said so."""
    monkeypatch.setattr("ckptdoctor.values.sampling._MOST", 1 << 18)
    path = tmp_path / "ckpt.pt"
    before = {name: torch.randn(1500, 700) for name in ("a", "b")} | {"c": torch.randn(9)}
    after = {name: each + 0.01 * torch.randn(each.shape) for name, each in before.items()}
    events = watched(tmp_path, lambda: torch.save(before, path), lambda: torch.save(after, path))
    line = lines(events)[1]
    one, other = (torch.cat([each.flatten() for each in state.values()]) for state in (before, after))
    assert line.estimated and line.moved == pytest.approx(float((other - one).norm() / one.norm()), rel=0.02)
    assert f"weights moved about {100 * line.moved:.3g} %" in rendered(line)


def test_a_link_to_a_checkpoint_has_no_line(tmp_path):
    """Such as last.ckpt, where Lightning links it."""

    def both():
        save(tmp_path / "epoch=1-step=4.ckpt", 4)
        (tmp_path / "last.ckpt").symlink_to("epoch=1-step=4.ckpt")

    assert [each.name for each in lines(watched(tmp_path, both))] == ["epoch=1-step=4.ckpt"]


def test_a_run_that_is_not_there_yet(tmp_path):
    """Its folder is waited for."""
    run = tmp_path / "run"

    def begin():
        run.mkdir()
        save(run / "step_1.pt", 1)

    began, line, _ = watched(run, lambda: None, begin)
    assert (began.there, line.step) == (False, 1)


def test_it_ends_with_a_step(tmp_path):
    """At once where the newest is that far."""
    acts = [lambda step=step: save(tmp_path / f"step_{step}.pt", step) for step in (1, 2, 3)]
    assert watched(tmp_path, *acts, until=2)[-1] == Ended("step_2.pt has reached 2", well=True)
    assert [type(each) for each in watched(tmp_path, until=1)] == [Began, Ended]


def test_it_ends_with_an_epoch(tmp_path):
    """Where the contents have one, and steps are not counted from the beginning of the run."""

    def save_epoch(epoch):
        torch.save({"model": weights(), "epoch": epoch, "step": 0}, tmp_path / f"epoch-{epoch}.pt")

    (*_, line, end) = watched(tmp_path, *[lambda epoch=epoch: save_epoch(epoch) for epoch in (1, 2)], until=2)
    assert (line.epoch, line.step, line.steps_of_epoch, end.well) == (2, 0, True, True)


@pytest.mark.parametrize("kind", ["trainer", "torchtitan", "lightning"])
def test_a_run_in_a_store(kind, tmp_path):
    """What appears there file by file has one line, and is compared with the one before."""
    import fsspec

    whole = Run(tmp_path, kind)
    for step in (100, 200):
        whole.saved.append(Saved(KINDS[kind](whole, step, None), step))
    store, run = fsspec.filesystem("memory"), f"/watched/{kind}"
    every = sorted((path for path in tmp_path.rglob("*") if path.is_file()), key=lambda path: path.stat().st_mtime_ns)

    def copy(path):
        store.pipe(f"{run}/{path.relative_to(tmp_path).as_posix()}", path.read_bytes())

    found = lines(watched(f"memory:/{run}", *[lambda path=path: copy(path) for path in every], looks=2))
    assert [(each.step, each.valid) for each in found] == [(100, True), (200, True)]
    assert [each.moved for each in found] == [None, 0.0]


def test_it_ends_when_a_process_has_ended(tmp_path):
    """What was saved last has its line all the same, and what is cut off as well."""
    save(tmp_path / "whole", 1)
    data = (tmp_path / "whole").read_bytes()
    (tmp_path / "whole").unlink()
    script = "import sys, time; time.sleep(0.3); open('step_1.pt', 'wb').write(open(0, 'rb').read()[:int(sys.argv[1])])"
    for end in (len(data), len(data) - 9):
        with subprocess.Popen([sys.executable, "-c", script, str(end)], cwd=tmp_path, stdin=subprocess.PIPE) as process:
            process.stdin.write(data)
            process.stdin.close()
            found = list(ckptdoctor.watch(tmp_path, pid=process.pid, interval=0.1))
        assert [each.valid for each in found] == [end == len(data)]
        (tmp_path / "step_1.pt").unlink()


def test_scripts_ask_once(tmp_path):
    """Every checkpoint in order, and status 1 with --fail-on at the first that is not as asked."""
    for step in (9, 10):
        save(tmp_path / f"step_{step}.pt", step)
    torch.save(weights(), tmp_path / "step_11.pt")
    asked = ("watch", tmp_path, "--once", "--interval", 0.05)
    done = run_here(*asked, cwd=tmp_path)
    said = done.stdout.decode().splitlines()
    assert [line.split(" · ")[1] for line in said] == ["step 9", "step 10", "step 11"] and done.returncode == 0
    assert said[1].endswith("weights unchanged · valid: V0 headers, V1 bytes, V2 values, V3 resumable")
    assert said[2].endswith("V2 values · not resumable: it has no optimizer state")
    assert run_here(*asked, "--fail-on", "invalid", cwd=tmp_path).returncode == 0
    done = run_here(*asked, "--fail-on", "unresumable", cwd=tmp_path)
    assert done.returncode == 1 and b"step_11.pt is not resumable: 3 checkpoints in" in done.stderr


@pytest.fixture
def hidden(tmp_path):
    """Hide folders of a run by their modes, until the test is over."""
    done = []

    def hide(folder):
        folder.chmod(0)
        done.append(folder)

    tmp_path.chmod(0o755)
    yield hide
    for each in done:
        each.chmod(0o700)


def asked_as_others(*words, cwd):
    """A command of somebody whom modes of folders keep from reading them."""
    return run_anew(*words, cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)}, preexec_fn=as_others_may)


@with_modes
def test_a_checkpoint_that_cannot_be_listed_is_not_left_out(tmp_path, hidden):
    """It has a line, also with --quiet, and the status says it; latest passes it over."""
    for step in (100, 200, 300):
        KINDS["trainer"](Run(tmp_path, "trainer"), step, None)
    hidden(tmp_path / "checkpoint-300")
    said = f"{tmp_path / 'checkpoint-300'} cannot be listed: Permission denied. "
    for more in ("--fail-on=invalid", "-q"):
        done = asked_as_others("watch", tmp_path, "--once", "--interval=0.05", more, cwd=tmp_path)
        assert done.returncode == 2 and said in done.stderr.decode()
    done = asked_as_others("watch", tmp_path, "--once", "--interval=0.05", cwd=tmp_path)
    assert len(done.stdout.splitlines()) == 2
    done = asked_as_others("latest", tmp_path, cwd=tmp_path)
    assert done.stdout.decode() == f"{tmp_path / 'checkpoint-200'}\n"
    assert f"passed over checkpoint-300: {said}" in done.stderr.decode()


@with_modes
def test_a_folder_of_the_run_that_cannot_be_listed_is_not_left_out(tmp_path, hidden):
    """It may hold newer checkpoints than those that are seen; where none are, that is an error."""
    for version in (0, 1):
        folder = tmp_path / "lightning_logs" / f"version_{version}" / "checkpoints"
        folder.mkdir(parents=True)
        save(folder / f"epoch=0-step={version + 1}.ckpt", version + 1)
    hidden(folder.parent)
    said = f"{folder.parent} cannot be listed: Permission denied. "
    done = asked_as_others("latest", tmp_path, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.decode().endswith("epoch=0-step=1.ckpt\n")
    assert f"passed over lightning_logs/version_1: {said}" in done.stderr.decode()
    done = asked_as_others("watch", tmp_path, "--once", "--interval=0.05", "--fail-on=invalid", cwd=tmp_path)
    assert (done.returncode, len(done.stdout.splitlines())) == (2, 1) and said in done.stderr.decode()
    for command in ("latest", "watch"):
        done = asked_as_others(command, folder.parent.parent / "version_1", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, b"") and said in done.stderr.decode()


@with_modes
def test_a_folder_of_which_only_the_names_can_be_read_is_not_empty(tmp_path):
    """Nothing can be known about what is in it."""
    (tmp_path / "run").mkdir()
    save(tmp_path / "run" / "step_1.pt", 1)
    (tmp_path / "run").chmod(0o600)
    done = asked_as_others("latest", "run", cwd=tmp_path)
    (tmp_path / "run").chmod(0o700)
    assert done.returncode == 2 and b"run cannot be listed: Permission denied" in done.stderr


def test_a_run_that_is_not_there_is_an_error_where_nobody_looks_again(tmp_path):
    """A name that was mistyped must not pass for a run in which all is valid."""
    done = run_here("watch", tmp_path / "nope", "--once", "--fail-on", "invalid", cwd=tmp_path)
    assert done.returncode == 2 and f"{tmp_path / 'nope'} cannot be opened: No such file" in done.stderr.decode()
    with pytest.raises(FileNotFoundError):
        next(ckptdoctor.watch(tmp_path / "nope", once=True, interval=0))


def test_lines_of_json(tmp_path):
    """One object each, with the keys of what is NaN."""
    save(tmp_path / "step_1.pt", 1, **{"layers.0.bias": torch.full((24,), float("inf"))})
    done = run_here("watch", tmp_path, "--once", "--interval", 0.05, "--format", "json", "-q", cwd=tmp_path)
    (line,) = done.stdout.splitlines()
    said = json.loads(line)
    assert (said["step"], said["valid"], said["levels"], done.stderr) == (1, False, ["V0", "V1", "V3"], b"")
    assert said["findings"][0]["keys"] == ["model/layers.0.bias"]


def test_it_gives_up(tmp_path):
    """With status 1 where nothing came for so long."""
    done = run_here("watch", tmp_path, "--timeout", 0, "--interval", 0.05, cwd=tmp_path)
    assert done.returncode == 1 and b"No new checkpoint for 0 s: 0 checkpoints in" in done.stderr
    done = run_here("watch", tmp_path, "--timeout", -1, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, b"error: --timeout must be a number of seconds: -1.\n")


def test_beside_a_process_that_writes_slowly(tmp_path):
    """In a log: no line before the last byte is there, one line soon after it, and Ctrl-C ends in one sentence."""
    save(tmp_path / "whole", 3)
    run = tmp_path / "run"
    run.mkdir()
    script = (
        "import sys, time\n"
        "data = open('whole', 'rb').read()\n"
        "with open('run/step_3.pt', 'wb', buffering=0) as file:\n"
        "    for at in range(0, len(data), len(data) // 8 + 1):\n"
        "        file.write(data[at : at + len(data) // 8 + 1])\n"
        "        time.sleep(0.25)\n"
        "print(time.time())\n"
    )
    log = tmp_path / "log"
    with (
        open(log, "wb") as output,
        subprocess.Popen(
            [sys.executable, "-m", "ckptdoctor", "watch", "run", "--interval", "0.1"],
            cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT,
        ) as watching,
    ):  # fmt: skip
        _until(lambda: b"waiting" in log.read_bytes())
        with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE) as writer:
            while writer.poll() is None:
                assert b"step_3.pt" not in log.read_bytes() or writer.poll() is not None or _whole(run, tmp_path)
                time.sleep(0.01)
        _until(lambda: b"step_3.pt" in log.read_bytes())
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20) == 130
    first, line, last = log.read_text().splitlines()
    assert first == "run has no checkpoint yet: waiting for the first."
    assert " step_3.pt · step 3 · " in line and line.endswith("valid: V0 headers, V1 bytes, V2 values, V3 resumable")
    assert last.startswith("Stopped: 1 checkpoint in ") and last.endswith(" s, all valid.")


def _whole(run, folder):
    return (run / "step_3.pt").stat().st_size == (folder / "whole").stat().st_size


def _until(true):
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
