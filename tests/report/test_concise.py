from ckptdoctor.findings import Report
from ckptdoctor.report import concise
from ckptdoctor.report.full import statistics
from tests.report import samples


def test_one_line_a_finding():
    """Each finding is one line with path, code, severity, name, message and fix."""
    line = concise.file_report(samples.report(samples.MODULE_PREFIX))
    message = samples.MODULE_PREFIX.message
    assert line == f"runs/resnet50.pt: N401 error module-prefix: {message} [fix: --strip-module]"


def test_a_healthy_file_is_silent():
    """No finding, no line."""
    assert concise.file_report(samples.report()) == ""


def test_a_path_with_a_line_break_stays_on_one_line():
    """Neither path nor message can forge a second line."""
    assert "\n" not in concise.file_report(samples.report(samples.CUDA_TAG, path="a\nb.pt: N401 error"))


def test_statistics_are_sorted_by_frequency():
    """The most frequent rule comes first, with its severity and name."""
    files = (samples.report(samples.CUDA_TAG), samples.report(samples.MODULE_PREFIX, samples.CUDA_TAG))
    assert statistics(Report(files)).split("\n") == ["2  warning  D601  cuda-tag", "1  error    N401  module-prefix"]
    assert statistics(Report((samples.report(),))) == ""
