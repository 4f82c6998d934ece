"""The deep examination: both parts, what is said of the rest, progress and Ctrl-C."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import get_args

import pytest
import torch
from safetensors.torch import save_file

import ckptdoctor
from ckptdoctor.checkpoint.progress import Progress, Work
from ckptdoctor.diagnose.events import Finished, Found
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine import deep
from ckptdoctor.examine.file import check, diagnose
from ckptdoctor.examine.files import examine_all
from ckptdoctor.findings import Severity
from ckptdoctor.rules import registry
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.values import examine
from ckptdoctor.values.statistics import Values
from tests.builders import build

DEEP = Settings(deep=True)


@pytest.fixture
def sick(tmp_path: Path) -> str:
    """A checkpoint with a NaN."""
    path = tmp_path / "sick.pt"
    weight = torch.randn(300, 200)
    weight[7, 8] = float("nan")
    torch.save({"fc.weight": weight, "fc.bias": torch.randn(300)}, path)
    return str(path)


def codes(report):
    """The codes of all findings."""
    return [finding.code for finding in report.findings]


def skipped(report):
    """What was not examined."""
    return [(each.what, each.why) for each in report.skipped]


def test_values_are_read_with_deep_alone(sick):
    """A NaN is found with --deep and only then."""
    assert "V651" not in codes(check(sick))
    assert "V651" in codes(check(sick, DEEP))


def test_one_rule_alone(sick):
    """With nothing but V651 only NaN and infinities are looked for, and found."""
    report = check(sick, Settings(Selection(select=("V651",)), deep=True))
    assert codes(report) == ["V651"]


def test_no_rule_asks_for_sums(tmp_path):
    """Every example of the rules that read values has the same findings where everything is measured for pictures."""
    deep_rules = [each for each in all_rules() if Values in (each.subject, *get_args(each.subject))]
    examples = [example for each in deep_rules for example in (*each.sick, *each.healthy) if example.deep]
    assert len(examples) > 20
    for number, example in enumerate(examples):
        (folder := tmp_path / str(number)).mkdir()
        path = str(build(example, folder))
        assert check(path, DEEP).findings == check(path, Settings(deep=True, pictures=True)).findings


def test_rules_of_other_packages_get_everything(sick, monkeypatch):
    """Mean, spread and zeros are there for a rule that ckptdoctor does not know."""
    told = []

    def listening(values: Values) -> Iterator[Problem]:
        """Takes down what it is given."""
        told.extend(values.tensors.values())
        yield from ()

    strange = rule("X901", "listening", Severity.INFO)(listening)
    monkeypatch.setattr(registry, "_plugged_in", lambda: [strange])
    registry.deep.cache_clear()
    check(sick, DEEP)
    registry.deep.cache_clear()
    assert [each.std == pytest.approx(1, abs=0.1) for each in told] == [True, True]


def test_values_are_examined_without_torch(sick):
    """In a process that cannot import it."""
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import ckptdoctor\n"
        "report = ckptdoctor.check(sys.argv[1], deep=True)\n"
        "print(*[finding.code for finding in report.findings])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, sick], capture_output=True, text=True, check=True)
    assert "V651" in done.stdout.split()


def test_opaque_dtypes_are_said_to_be_left_out(tmp_path):
    """How many tensors, and why."""
    packed = {f"w{number}": torch.zeros(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2) for number in range(3)}
    torch.save(packed, tmp_path / "model.pt")
    report = check(str(tmp_path / "model.pt"), DEEP)
    assert ("the values of 3 tensors", "float4_e2m1fn_x2 is a packed dtype") in skipped(report)


def test_both_parts_tell_how_far_they_are(sick):
    """Progress in bytes, of values and what is seen beside them, and then of the checksums that are left."""
    events = [event for event in diagnose(sick, DEEP) if isinstance(event, Progress)]
    assert list(dict.fromkeys([event.what for event in events])) == ["checksums and values", "checksums"]
    assert {event.total for event in events} == {4 * (300 * 200 + 300)}


def test_a_watcher_is_told_everything(sick):
    """``examine_all`` passes each event on."""
    seen = []
    (report,) = examine_all([sick], DEEP, seen.append)
    assert {Progress, Found, Finished} <= {type(event) for event in seen}
    assert not report.interrupted


@pytest.mark.parametrize("during", ["checksums and values", "checksums"])
def test_ctrl_c_leaves_with_what_was_found(tmp_path, monkeypatch, during):
    """Findings of what was read until then, and what was not."""
    path = tmp_path / "model.pt"
    tensors = {f"w{number}.weight": torch.randn(1 << 19) for number in range(6)}
    tensors["w0.weight"][5] = float("nan")
    torch.save({"module." + key: value for key, value in tensors.items()}, path)
    if during == "checksums":
        _hold_checksums(monkeypatch)
    else:
        _slow_down_values(monkeypatch)
    monkeypatch.setattr(threading.Event, "wait", _interrupting(during))
    report = check(str(path), DEEP)
    assert report.interrupted
    assert [each.what for each in report.readings] == ["checksums", "values"]
    assert not report.readings[0].complete
    assert report.readings[1].complete is (during == "checksums")
    assert {"N401", "V651"} <= set(codes(report))
    rest = "the rest of the checksums" if during == "checksums" else "the rest of the checksums and values"
    assert (rest, "interrupted") in skipped(report)
    if during != "checksums":
        assert 4 << 20 <= report.readings[0].done < 12 << 20


def test_damage_that_was_seen_before_ctrl_c_is_told(tmp_path, monkeypatch):
    """A checksum that is wrong is a finding, although most of the file was not read any more."""
    path = tmp_path / "model.pt"
    torch.save({f"w{number}.weight": torch.randn(1 << 19) for number in range(6)}, path)
    extent = check(str(path)).checkpoint.tensors[0].storage.extent
    data = bytearray(path.read_bytes())
    data[extent.offset + 8_002] ^= 1
    path.write_bytes(data)
    _slow_down_values(monkeypatch)
    monkeypatch.setattr(threading.Event, "wait", _interrupting("checksums and values"))
    report = check(str(path), DEEP)
    assert report.interrupted
    assert "F009" in codes(report)


def _hold_checksums(monkeypatch):
    """Let the checksums that are left take until they are told to stop."""
    genuine = deep.examine_integrity
    monkeypatch.setattr(
        deep,
        "examine_integrity",
        lambda checkpoint, source, work, sound: genuine(checkpoint, source, _until_stopped(work)),
    )


def _slow_down_values(monkeypatch):
    """Let values take a moment for each chunk, one after another."""
    genuine = examine.examine_values
    monkeypatch.setattr(
        examine,
        "examine_values",
        lambda checkpoint, source, work, checks, **options: genuine(
            checkpoint, source, _slow(work), threads=1, checks=checks
        ),
    )


def _until_stopped(work):
    """Work that is not done before it is told to stop, however late that is."""

    def held(progress):
        while True:
            work.reach(progress.done)
            sleep(0.001)

    return Work(listener=held)


def _slow(work):
    def slowly(progress):
        sleep(0.05)
        work.reach(progress.done)

    return Work(listener=slowly)


def _interrupting(what):
    """``Event.wait`` that raises KeyboardInterrupt once, while the work called ``what`` is waited for."""
    genuine = threading.Event.wait
    state = {"done": False}

    def wait(self, timeout=None):
        here = sys._getframe(1).f_locals
        ready = here.get("what") == what and (what == "checksums" or here["work"].done >= 4 << 20)
        if ready and not state["done"]:
            state["done"] = True
            raise KeyboardInterrupt
        return genuine(self, timeout)

    return wait


def test_python_callers_get_their_ctrl_c(sick, monkeypatch):
    """``ckptdoctor.check`` raises KeyboardInterrupt as any function does."""
    _hold_checksums(monkeypatch)
    monkeypatch.setattr(threading.Event, "wait", _interrupting("checksums"))
    with pytest.raises(KeyboardInterrupt):
        ckptdoctor.check(sick, deep=True)


def test_a_flipped_bit_is_found_every_time(tmp_path):
    """At 200 random places of the values: the checksum tells, and the damaged tensor is named."""
    tensors = {f"layer{number}.weight": torch.randn(40, 30 + number) for number in range(12)}
    path = tmp_path / "model.pt"
    torch.save(tensors, path)
    data = path.read_bytes()
    report = check(str(path))
    places = {tensor.path: tensor.storage.extent for tensor in report.checkpoint.tensors}
    settings = Settings(Selection(select=("F009",)), deep=True)
    chance = random.Random(6)
    for _ in range(200):
        key, extent = chance.choice(list(places.items()))
        at = extent.offset + chance.randrange(extent.length)
        damaged = bytearray(data)
        damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        (finding,) = check(str(path), settings).findings
        assert (finding.code, finding.keys) == ("F009", (key,))


@pytest.mark.parametrize("container", ["torch zip", "safetensors", "shards"])
def test_what_was_read_is_counted(tmp_path, container):
    """All of a file of which every value was looked at, whether or not it has checksums, which are read apart."""
    weights = {"a": torch.randn(300, 200), "b": torch.randn(300)}
    if container == "torch zip":
        torch.save(weights, path := tmp_path / "m.pt")
    else:
        save_file(weights, path := tmp_path / "m.safetensors")
    if container == "shards":
        ckptdoctor.convert(str(path), f"{tmp_path}/shards/", shard_size="100kB")
        path = tmp_path / "shards"
    report = check(str(path), DEEP)
    assert report.container is not None
    assert report.bytes_read >= 0.98 * report.container.size > 0.98 * 4 * 60_300
