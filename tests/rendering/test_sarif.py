"""Reports for code scanning: valid SARIF 2.1.0, whatever files hold."""

import json
import re
from dataclasses import replace

import pytest
from jsonschema import Draft202012Validator

from ckptdoctor.checkpoint import Extent
from ckptdoctor.diagnose.catalogue import all_rules
from ckptdoctor.findings import Finding, Location, Report, Severity
from ckptdoctor.rendering import sarif
from ckptdoctor.rendering.sarif import descriptor, sections, uri
from tests.cli.files import HOSTILE, printable
from tests.rendering import samples
from tests.rendering.sarif_schema import SCHEMA


def run_of(*files, **options):
    """The only run of the report, after it was held against the schema."""
    text = sarif.render(Report(tuple(files)), "1.0", all_rules(), **options)
    assert text.isascii()
    document = json.loads(text)
    Draft202012Validator.check_schema(SCHEMA)
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(document)] == []
    (run,) = document["runs"]
    return run


def lying(path="runs/resnet50.pt", file=None):
    """A checkpoint of which every storage lies in a file: 1,000 bytes after one another."""
    contents = samples.checkpoint(path)
    tensors = tuple(
        replace(
            each,
            storage=replace(each.storage, extent=Extent(file or path, 1000 * number, each.storage.nbytes), crc32=1),
        )
        for number, each in enumerate(contents.tensors)
    )
    return replace(contents, tensors=tensors, storages=tuple(each.storage for each in tensors))


def test_findings_are_results():
    """Each has its rule, level, message with the repair, keys, and fingerprints."""
    run = run_of(samples.report(samples.MODULE_PREFIX, samples.SHARED, samples.CUDA_TAG))
    assert [each["level"] for each in run["results"]] == ["error", "note", "warning"]
    rules = run["tool"]["driver"]["rules"]
    assert [rules[each["ruleIndex"]]["id"] for each in run["results"]] == ["N401", "A701", "D601"]
    first = run["results"][0]
    assert first["message"]["text"].startswith('all 3 keys of state_dict begin with "module."\n')
    assert "Repair, safe: ckptdoctor fix runs/resnet50.pt --strip-module" in first["message"]["text"]
    (logical,) = first["locations"][0]["logicalLocations"]
    assert logical == {
        "name": "module.conv1.weight",
        "fullyQualifiedName": "state_dict/module.conv1.weight",
        "kind": "property",
    }
    assert run["results"][1]["locations"][0]["logicalLocations"][0]["kind"] == "resource"
    assert first["properties"]["keys"] == 2 and first["properties"]["torchSays"][0].startswith("Missing key(s)")


def test_byte_ranges():
    """Where a finding tells its bytes these are the region, else those of its tensors; a folder's names its files."""
    found = replace(samples.MODULE_PREFIX, location=Location(offset=77, length=5))
    contents = lying()
    run = run_of(samples.report(found, samples.MODULE_PREFIX, checkpoint=contents))
    regions = [each["physicalLocation"].get("region") for each in run["results"][0]["locations"]]
    assert regions == [{"byteOffset": 77, "byteLength": 5}, {"byteOffset": 1000, "byteLength": 256}]
    regions = [each["physicalLocation"].get("region") for each in run["results"][1]["locations"]]
    assert regions == [{"byteOffset": 0, "byteLength": 37632}, {"byteOffset": 1000, "byteLength": 256}]
    folder = lying("runs", "runs/part-1.safetensors")
    places = [
        each["physicalLocation"]
        for each in run_of(samples.report(found, path="runs", checkpoint=folder))["results"][0]["locations"]
    ]
    assert [each["artifactLocation"]["uri"] for each in places] == ["runs/part-1.safetensors"] * 2
    assert places[1]["region"] == {"byteOffset": 1000, "byteLength": 256}


def test_fingerprints_stay():
    """Neither wording, nor places of bytes, nor what is found before decides them; the file and the keys do."""
    one = samples.MODULE_PREFIX
    moved = replace(one, message="other words", location=Location(offset=9), severity=Severity.INFO)
    other = replace(one, keys=(("ema", "module.x"),))

    def prints(*findings, **options):
        results = run_of(samples.report(*findings, **options))["results"]
        return [each["partialFingerprints"]["ckptdoctor/v1"] for each in results]

    assert prints(one) == prints(moved) == prints(samples.CUDA_TAG, one)[1:]
    assert len({*prints(one), *prints(other), *prints(one, path="b.pt")}) == 3
    first, second = prints(one, one)
    assert first.endswith(":1") and second.endswith(":2") and first[:-1] == second[:-1]


def test_what_was_not_examined_is_told():
    """Files that could not be read make the run no success, and what was skipped is a note."""
    run = run_of(samples.report(), samples.damaged("web.pt is an HTML page"))
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False and run["results"] == []
    told = [(each["level"], each["message"]["text"]) for each in invocation["toolExecutionNotifications"]]
    assert ("note", "Not examined: checksums and values (--deep)") in told
    assert ("error", "web.pt is an HTML page") in told
    assert run_of(samples.report())["invocations"][0]["executionSuccessful"] is True
    assert [each["location"]["uri"] for each in run["artifacts"]] == ["runs/resnet50.pt", "web.pt"]


def test_statistics():
    """They are a property of the run."""
    run = run_of(samples.report(samples.MODULE_PREFIX, samples.MODULE_PREFIX), statistics=True)
    assert run["properties"]["statistics"] == {"N401": 2}


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_every_rule_is_described_by_its_page(rule):
    """Help is the page, with all of its sections and no marks of reStructuredText."""
    made = descriptor(rule)
    assert list(sections(rule.page)) == [
        "Meaning",
        "Why it matters",
        "Symptoms",
        "Detection",
        "Repair",
    ]
    assert made["helpUri"].endswith(f"/docs/rules/{rule.code}.md")
    assert made["help"]["markdown"].count("\n## ") == 5 and "``" not in made["help"]["text"]
    assert made["fullDescription"]["text"] and made["shortDescription"]["text"] == rule.summary.replace("``", "")
    assert re.sub("```text\n.*?\n```", "", made["help"]["markdown"], flags=re.DOTALL).count("`") % 2 == 0


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("a.pt", "a.pt"),
        ("./runs/a b.pt", "runs/a%20b.pt"),
        ("/data/ä.pt", "file:///data/%C3%A4.pt"),
        ("c:odd#name?.pt", "c%3Aodd%23name%3F.pt"),
        ("100%.pt", "100%25.pt"),
        ("bad\udcff.pt", "bad%FF.pt"),
        ("-", "-"),
        ("https://host/a b.pt?download=true", "https://host/a%20b.pt?download=true"),
    ],
)
def test_paths_become_references(path, said):
    """Relative paths stay relative, and no sign of a path means anything in an URI."""
    assert uri(path) == said


def test_hostile_text():
    """Keys and paths that would take over a terminal, a placeholder or a link are harmless."""
    hostile = f"{HOSTILE} {{0}} [click](https://evil) {{x}} \ud800"
    finding = Finding(
        "N401", "module-prefix", Severity.ERROR, hostile, hostile, (hostile,), hostile, ((hostile,),) * 150
    )
    run = run_of(samples.report(finding, path=f"{HOSTILE}.pt"), samples.damaged(hostile))
    (result,) = run["results"]
    text = result["message"]["text"]
    assert printable(text.replace("\n", "").encode()) and "](" not in text and "{{0}}" in text and " {x}" in text
    assert len(result["locations"]) == 100 and result["properties"]["keys"] == 150


def test_fifty_thousand_keys_and_a_rule_of_another_package():
    """One finding about every key stays small, and a code without a page has no number."""
    keys = tuple(("state_dict", f"module.layers.{number}.weight") for number in range(50_000))
    run = run_of(samples.report(replace(samples.MODULE_PREFIX, keys=keys), replace(samples.CUDA_TAG, code="XX1")))
    assert [("ruleIndex" in each) for each in run["results"]] == [True, False]
    assert len(json.dumps(run)) < 100_000
