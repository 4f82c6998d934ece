import json

from ckptdoctor.checkpoint import Special
from ckptdoctor.findings import Finding, Report, Severity
from ckptdoctor.report import json as report_json
from tests.report import samples


def rendered(*files, **options):
    """The document, parsed."""
    return json.loads(report_json.render(Report(files), "9.9", **options))


def test_the_schema():
    """The document has every field that the schema promises."""
    document = rendered(samples.report(samples.MODULE_PREFIX, samples.CUDA_TAG, coverage=samples.COVERAGE))
    (file,) = document["files"]
    assert (document["schema"], document["version"]) == ("ckptdoctor/1", "9.9")
    assert document["summary"] == {"error": 1, "warning": 1, "info": 0}
    assert (file["path"], file["format"], file["error"]) == ("runs/resnet50.pt", "torch zip", None)
    assert file["summary"] == {
        "tensors": 6,
        "parameters": 2057472,
        "bytes": 307123456,
        "dtypes": {"float32": 6},
        "devices": {"cuda:0": 6},
        "globals": [],
    }
    first = file["findings"][0]
    assert {"code", "name", "severity", "message", "keys", "location", "fix"} <= set(first)
    assert first["keys"] == ["state_dict/module.conv1.weight", "state_dict/module.bn1.weight"]
    assert first["fix"]["safety"] == "safe"
    assert first["fix"]["command"] == "ckptdoctor fix runs/resnet50.pt --strip-module"
    assert file["skipped"][0] == {"what": "checksums and values", "why": "--deep"}
    assert file["coverage"]["steps"][1]["keys"] == 320


def test_a_file_that_could_not_be_examined():
    """An unreadable file is in the document, with its error and without a summary."""
    (file,) = rendered(samples.damaged("it cannot"))["files"]
    assert (file["error"], file["summary"], file["format"]) == ("it cannot", None, "HTML page")


def test_true_text_in_ascii():
    """Keys are the true text after parsing; the document itself is printable ASCII, whatever the keys hold."""
    key = "a\x1b[31m\u202e\n\x00\udc80ß"
    finding = Finding("N401", "x", Severity.ERROR, key, keys=((key, 3, Special("(1, 2)")),))
    text = report_json.render(Report((samples.report(finding),)), "1")
    assert all(line.isascii() and line.isprintable() for line in text.split("\n"))
    assert json.loads(text)["files"][0]["findings"][0]["keys"] == [f"{key}/3/(1, 2)"]


def test_integers_too_long_to_print_are_text():
    """An integer that no reader could hold is given by its order of magnitude."""
    assert report_json.bounded(1 << 4_000_000) == "2^4000000"
    assert report_json.bounded(1 << 1000) == 1 << 1000


def test_statistics_count_codes():
    """With statistics the document counts the findings of each rule over all files."""
    files = (samples.report(samples.MODULE_PREFIX), samples.report(samples.MODULE_PREFIX, samples.CUDA_TAG))
    assert rendered(*files, statistics=True)["statistics"] == {"D601": 1, "N401": 2}
