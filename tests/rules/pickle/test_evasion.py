"""P207 and P213: archives and pickles that readers take differently."""

from __future__ import annotations

import pytest

from ckptdoctor.rules.examples import Example, T
from tests.builders import build
from tests.rules.examined import found, sick


@pytest.mark.parametrize("example", sick("P207"), ids=lambda example: example.title)
def test_archives_that_torch_does_not_write(tmp_path, example):
    """The reader's own words are the message."""
    findings = found(build(example, tmp_path), "P207")
    assert findings
    assert all(finding.message and not finding.message.endswith(".") for finding in findings)


def test_streams_that_no_pickler_writes(tmp_path):
    """The byte offset of the place is told."""
    for example in sick("P213"):
        (finding,) = found(build(example, tmp_path), "P213")
        assert finding.location.offset is not None


def test_nothing_is_said_of_what_torch_writes(tmp_path):
    """Archives and streams of torch.save are neither evasive nor ambiguous."""
    for container in ("torch zip", "torch legacy"):
        path = build(Example(container, {"w": T((3,)), "epoch": 3}, container), tmp_path)
        assert found(path, "P207") + found(path, "P213") == []
