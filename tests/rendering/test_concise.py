"""One line a finding, for editors and for grep."""

import pytest

from tests.cli.files import healthy, sick, training
from tests.commands import run_here


@pytest.fixture
def lines(tmp_path):
    """Prints findings of files in the folder as one line each."""

    def printed(*arguments):
        return run_here("check", *arguments, "--format", "concise", cwd=tmp_path).stdout.decode().splitlines()

    return printed


def test_one_line_a_finding(tmp_path, lines):
    """Each finding is one line with path, code, severity, name, message and fix."""
    sick(tmp_path)
    assert lines("sick.pt") == [
        'sick.pt: N401 error module-prefix: both keys begin with "module." [fix: --strip-module]'
    ]


def test_a_healthy_file_is_silent(tmp_path, lines):
    """No finding, no line."""
    healthy(tmp_path)
    assert lines("healthy.pt") == []


def test_a_path_with_a_line_break_stays_on_one_line(tmp_path, lines):
    """Neither path nor message can forge a second line."""
    sick(tmp_path).rename(tmp_path / "a\nb.pt: N401 error")
    (line,) = lines("a\nb.pt: N401 error")
    assert line.startswith(r"a\nb.pt: N401 error: N401 error module-prefix: ")


def test_statistics_are_sorted_by_frequency(tmp_path, lines):
    """The most frequent rule comes first, with its severity and name."""
    sick(tmp_path)
    training(tmp_path)
    healthy(tmp_path)
    chosen = ("--select", "D602,N401", "--statistics")
    found = lines("sick.pt", "training.pt", *chosen)
    assert found[-2:] == ["2  error  N401  module-prefix", "1  error  D602  cuda-index-out-of-range"]
    assert len(found) == 5
    assert lines("healthy.pt", *chosen) == []
