from pathlib import Path

import pytest
import torch

from ckptdoctor.diagnose.events import Finished, Found, LeftOut, Opened, Recognised
from ckptdoctor.diagnose.findings import findings_of
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.errors import UnreadableError, UsageError
from ckptdoctor.examine.file import check, diagnose
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import T
from tests import builders

SICK = {"module.fc.weight": T((20, 30)), "module.fc.bias": T((20,))}
BARE = {"fc.weight": T((20, 30)), "fc.bias": T((20,))}


@pytest.fixture
def sick(tmp_path):
    """A DataParallel checkpoint."""
    builders.save(SICK, tmp_path / "sick.pt")
    return str(tmp_path / "sick.pt")


def codes(report):
    """The codes found, worst first."""
    return [finding.code for finding in report.findings]


def test_events_come_in_order(sick):
    """The container is told first, then the contents, then findings and what was left out, and the report last."""
    events = list(diagnose(sick))
    kinds = [type(event) for event in events]
    assert kinds[:2] == [Recognised, Opened] and kinds[-1] is Finished and kinds.count(Finished) == 1
    report = events[-1].report
    assert [event.finding for event in events if isinstance(event, Found)] == list(report.findings)
    assert [event.skipped for event in events if isinstance(event, LeftOut)] == list(report.skipped)


def test_the_report_has_the_facts(sick):
    """The report knows its file, what was read, and what was not."""
    report = check(sick)
    assert report.path == sick and report.error is None
    assert report.container.format == "torch zip" and len(report.checkpoint.tensors) == 2
    assert 0 < report.bytes_read <= report.container.size
    assert [each.what for each in report.skipped] == ["checksums and values", "fit to a model"]


def test_findings_are_sorted_worst_first(tmp_path):
    """Errors come before warnings, whatever the order of the rules."""
    contents = {"module.a.weight": T((2, 2), device="cuda:0"), "module.a.total_ops": T((1,), dtype="float64")}
    builders.save(contents, tmp_path / "m.pt")
    ranks = [finding.severity.rank for finding in check(str(tmp_path / "m.pt")).findings]
    assert len(ranks) > 1 and ranks == sorted(ranks, reverse=True)


def test_only_chosen_rules_run(sick):
    """Rules that were not chosen find nothing."""
    assert codes(check(sick, Settings(Selection(select=("N401",))))) == ["N401"]
    assert "N401" not in codes(check(sick, Settings(Selection(ignore=("N",)))))
    with pytest.raises(UsageError):
        check(sick, Settings(Selection(select=("Q999",))))


def test_a_missing_file_is_an_error(tmp_path):
    """What cannot be opened gives a report with an error and nothing else."""
    report = check(str(tmp_path / "missing.pt"))
    assert "No such file" in report.error
    assert (report.container, report.checkpoint, report.findings, report.skipped) == (None, None, (), ())


def test_a_directory_is_an_error(tmp_path):
    """A directory is no file to examine, and the error says so."""
    assert check(str(tmp_path)).error


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("empty.pt", b"", "F004"),
        ("page.pt", b"<!DOCTYPE html><html><title>Sign in</title></html>", "F002"),
        ("pointer.pt", b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 9\n", "F001"),
        ("body.pt", b'{"error": "Repository not found"}', "F003"),
        ("zero.pt", bytes(4096), "F010"),
    ],
)
def test_damage_is_a_finding_and_not_an_error(tmp_path, name, data, code):
    """A mistaken or damaged file is explained by a finding, and its contents are said not to have been examined."""
    (tmp_path / name).write_bytes(data)
    report = check(str(tmp_path / name))
    assert code in codes(report) and report.error is None
    assert "the contents" in [each.what for each in report.skipped]


@pytest.mark.parametrize("place", [0.2, 0.5, 0.95, 0.999])
def test_a_truncated_file_is_never_healthy(sick, tmp_path, place):
    """Wherever a file is cut there is an error among the findings."""
    data = Path(sick).read_bytes()
    (tmp_path / "cut.pt").write_bytes(data[: int(len(data) * place)])
    report = check(str(tmp_path / "cut.pt"))
    assert report.error is None
    assert report.findings[0].severity is Severity.ERROR


@pytest.mark.parametrize("container", ["torch zip", "torch legacy", "safetensors"])
def test_every_flipped_byte_of_the_beginning_gives_a_report(tmp_path, container):
    """No flipped byte makes the examination fail: there is always a report."""
    builders.save(SICK, tmp_path / "m", container=container)
    data = (tmp_path / "m").read_bytes()
    for place in [*range(0, 200, 7), *range(200, len(data), 97)]:
        changed = data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]
        (tmp_path / "flipped").write_bytes(changed)
        assert check(str(tmp_path / "flipped")) is not None


def test_what_no_rule_explains_is_an_error(sick, tmp_path):
    """When the rules that explain damage were not chosen the file counts as not examined, never as healthy."""
    data = Path(sick).read_bytes()
    (tmp_path / "cut.pt").write_bytes(data[: len(data) // 2])
    report = check(str(tmp_path / "cut.pt"), Settings(Selection(select=("N401",))))
    assert report.findings == () and report.error


def test_a_container_that_is_not_read_yet_is_named(tmp_path):
    """A known container of another kind is a finding with its name, not damage."""
    (tmp_path / "model.gguf").write_bytes(b"GGUF\x03\0\0\0" + bytes(64))
    report = check(str(tmp_path / "model.gguf"))
    assert report.error is None and [each.code for each in report.findings] == ["C114"]
    assert "GGUF" in report.findings[0].message


def test_a_reference_gives_coverage(sick, tmp_path):
    """With a reference the report tells how much fits before and after the fixes."""
    builders.save(BARE, tmp_path / "bare.pt")
    report = check(sick, Settings(like=str(tmp_path / "bare.pt")))
    coverage = report.coverage
    assert (coverage.keys, coverage.total_keys, coverage.total_parameters) == (0, 2, 620)
    assert coverage.steps[-1].keys == 2 and coverage.steps[-1].parameters == 620
    assert codes(report).count("N401") == 1
    assert "fit to a model" not in [each.what for each in report.skipped]


def test_an_unreadable_reference_is_not_a_report(sick, tmp_path):
    """A reference that cannot be read is wrong with the request, not with the file."""
    with pytest.raises(UnreadableError):
        check(sick, Settings(like=str(tmp_path / "missing.pt")))


def test_root_narrows_to_one_state_dict(tmp_path):
    """With a root, rules see only the state dicts below it; a root that is not there is an error that names others."""
    builders.save({"ema": BARE, "model": SICK}, tmp_path / "two.pt")
    path = str(tmp_path / "two.pt")
    assert "N401" not in codes(check(path, Settings(root="ema")))
    assert "N401" in codes(check(path, Settings(root="model")))
    assert "Its top level holds ema, model" in check(path, Settings(root="nowhere")).error
    builders.save({"epoch": {"n": 1}, "model": SICK}, tmp_path / "one.pt")
    assert "no state dict" in check(str(tmp_path / "one.pt"), Settings(root="epoch")).error


def test_deep_reads_every_byte(sick, tmp_path):
    """A flipped bit in a value is found with --deep and only then; what even that does not see is named."""
    builders.save({"module.fc.weight": T((300, 200))}, Path(sick))
    data = bytearray(Path(sick).read_bytes())
    storage = check(sick).checkpoint.storages[0]
    data[storage.extent.offset + 5] ^= 1
    (tmp_path / "flipped.pt").write_bytes(data)
    path = str(tmp_path / "flipped.pt")
    assert "F009" not in codes(check(path))
    report = check(path, Settings(deep=True))
    assert "F009" in codes(report)
    assert report.bytes_read > check(path).bytes_read
    assert "checksums and values" not in [each.what for each in report.skipped]
    few = check(path, Settings(Selection(select=("F",)), deep=True))
    assert "whether values are NaN or infinite" in [each.what for each in few.skipped]


def test_findings_of_needs_no_file(sick):
    """The rules can be run again over contents that no file holds yet."""
    checkpoint = check(sick).checkpoint
    assert "N401" in [finding.code for finding in findings_of(checkpoint)]
    assert findings_of(checkpoint, rules=()) == []


def test_unexamined_parts_are_reported(tmp_path):
    """What a reader left out stands in the report as not examined."""
    nested = []
    for _ in range(200):
        nested = [nested]
    torch.save({"fc.weight": torch.ones(2, 3), "nested": nested}, tmp_path / "deep.pt")
    skipped = {each.what: each.why for each in check(str(tmp_path / "deep.pt")).skipped}
    (told,) = [what for what in skipped if "levels deep" in what]
    assert skipped[told] == "not read"


@pytest.mark.parametrize("wrap", [False, True])
def test_a_pickled_module_is_held_against_the_model(wrap, tmp_path):
    """What P204's repair makes of it is compared; as it is nothing fits, and repairs of keys wait until then."""
    from torch import nn

    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    torch.save({"model": nn.DataParallel(net)} if wrap else net, tmp_path / "whole.pt")
    torch.save(net.state_dict(), tmp_path / "bare.pt")
    report = check(str(tmp_path / "whole.pt"), Settings(like=str(tmp_path / "bare.pt")))
    assert (report.coverage.keys, report.coverage.steps[0].code, report.coverage.steps[-1].keys) == (0, "P204", 7)
    assert "W311" not in codes(report) and ("N401" in codes(report)) is wrap
    assert all(finding.fix is None for finding in report.findings if finding.code in ("N401", "W301"))
