import re
from dataclasses import replace

import pytest

from ckptdoctor.checkpoint import Mapping, Role, StateDict
from ckptdoctor.edits import Drop, Fix, Safety, Transpose
from ckptdoctor.findings import Coverage, Finding, Report, Severity
from ckptdoctor.rendering import full
from ckptdoctor.rendering.paint import Paint
from tests.golden import golden
from tests.rendering import samples

HOSTILE = "a\x1b[31m\u202e\n\x00\x07\u200b\x9b2J"


def test_a_sick_file():
    """A report names the file, its contents, each cause with its repair, and what was not examined."""
    golden("full.txt", full.file_report(samples.report(samples.MODULE_PREFIX, samples.CUDA_TAG, samples.SHARED)))


def test_eighty_columns():
    """On a terminal of 80 columns every line but a command fits."""
    report = samples.report(samples.MODULE_PREFIX, samples.CUDA_TAG, samples.SHARED, coverage=samples.COVERAGE)
    text = full.file_report(report, width=80)
    golden("full_80.txt", text)
    assert all(len(line) <= 80 for line in text.split("\n") if "ckptdoctor fix" not in line)


def test_a_healthy_file_is_two_lines():
    """A healthy file is two lines: what it is, and what was and was not examined."""
    lines = full.file_report(samples.report()).split("\n")
    assert len(lines) == 2
    assert lines[1].startswith("No findings. Read 61 kB of 307 MB in 0.07 s. Not examined:")


def test_an_unreadable_file_is_never_called_healthy():
    """Where the contents were not read the report says so and does not say that nothing was found."""
    text = full.file_report(samples.damaged("web.pt is an HTML page."))
    assert "No findings" not in text
    assert "Not examined: the contents" in text


@pytest.mark.parametrize("width", [None, 20, 40, 80])
def test_hostile_text_is_escaped_everywhere(width):
    """Nothing that a file holds reaches the terminal raw, whatever part of a report it is in."""
    odd = Finding(
        "N401",
        "module-prefix",
        Severity.ERROR,
        f"message {HOSTILE}",
        cause=f"cause {HOSTILE}",
        torch_says=(f"torch {HOSTILE}",),
        advice=f"advice {HOSTILE}",
        keys=((HOSTILE, HOSTILE),),
    )
    contents = samples.checkpoint()
    state_dict = StateDict((HOSTILE,), Role.MODEL, (samples.tensor(HOSTILE, HOSTILE, device=HOSTILE),))
    tree = Mapping("dict", ((HOSTILE, HOSTILE),))
    hostile = type(contents)(
        **{
            **{name: getattr(contents, name) for name in contents.__slots__},
            "state_dicts": (state_dict,),
            "tensors": state_dict.tensors,
            "tree": tree,
        }
    )
    text = full.file_report(samples.report(odd, checkpoint=hostile, path=HOSTILE), width=width)
    assert all(line.isprintable() for line in text.split("\n"))
    assert r"\x1b[31m\u202e\n" in text.replace("\n", "")


def test_very_long_keys_are_abridged():
    """A key of a million characters takes no more than its share of a line."""
    long = Finding("N401", "x", Severity.ERROR, "m", keys=((("k" * 1_000_000),),))
    assert max(map(len, full.file_report(samples.report(long)).split("\n"))) < 200


def test_colour_marks_severity_only_when_asked():
    """Without colour a report holds no escape code; with it the text is the same."""
    report = samples.report(samples.MODULE_PREFIX, samples.CUDA_TAG)
    plain, coloured = full.file_report(report), full.file_report(report, Paint(True))
    assert "\x1b" not in plain
    assert "\x1b[1;31merror\x1b[0m N401" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_commands_are_never_broken():
    """A command keeps its line however narrow the terminal is, so that it can be copied."""
    text = full.file_report(samples.report(samples.MODULE_PREFIX, samples.CUDA_TAG), width=30)
    assert "    ckptdoctor fix runs/resnet50.pt --strip-module\n" in text


def test_advice_names_the_real_path():
    """Where a rule's advice says FILE the report says which file."""
    text = full.file_report(samples.report(samples.SHARED, path="my model.pt"))
    assert "ckptdoctor fix 'my model.pt' --select A701 gives" in text


def test_total_over_several_files():
    """Several files end with one line that counts findings and files that could not be examined."""
    files = (samples.report(samples.MODULE_PREFIX), samples.report(samples.CUDA_TAG), samples.damaged("no"))
    assert full.total(Report(files)) == "3 files: 1 error, 1 warning, 1 could not be examined"
    assert full.total(Report(files[:1])) == ""


def test_a_fit_that_stays_incomplete():
    """Where no repair makes everything fit the report says so; where one does it does not."""
    coverage = replace(samples.COVERAGE, keys=318, parameters=23_552_000, steps=())
    text = full.file_report(samples.report(coverage=coverage))
    assert "318 of 320 keys as it is (92.0 % of parameters); no repair makes the rest fit" in text
    assert "no repair" not in full.file_report(samples.report(coverage=samples.COVERAGE))


def test_a_fit_that_repairs_below_complete():
    """Where a finding has a repair that the steps do not count, nobody says that there is none."""
    coverage = Coverage("net", (), total_keys=4, total_parameters=8, keys=3, parameters=6)
    fix = Fix("transpose", (Transpose(("fc.weight",)),), Safety.UNSAFE, "--auto --model net")
    finding = replace(samples.MODULE_PREFIX, fix=fix)
    report = samples.report(finding, coverage=coverage)
    assert "3 of 4 keys as it is (75.0 % of parameters); repairs below make more of it fit" in full.file_report(report)
    dropped = replace(finding, fix=replace(fix, edits=(Drop((("fc.weight",),)),)))
    assert "; no repair makes the rest fit" in full.file_report(replace(report, findings=(dropped,)))


def test_what_from_pretrained_ties_is_said_in_a_clause():
    """The keys count as fitting, and it is said why."""
    coverage = Coverage("net", (), total_keys=4, total_parameters=8, keys=4, parameters=8, retied=1)
    said = full.file_report(samples.report(coverage=coverage))
    assert "4 of 4 keys as it is (100 % of parameters); 1 of them is not in the file, but from_pretrained ties" in said
