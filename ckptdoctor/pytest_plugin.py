"""A pytest plugin whose fixture ``assert_loads`` fails a test if a checkpoint does not load into its model.

def test_the_release_loads(assert_loads):
    assert_loads("release/model.safetensors", Net())
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Union

import pytest

if TYPE_CHECKING:
    from ckptdoctor.findings import FileReport

Path = Union[str, "os.PathLike[str]"]


@pytest.fixture(name="assert_loads")
def _assert_loads() -> Callable[[Path, object], None]:
    """Return ``assert_loads(path, model)``, which fails the test unless the file loads into the model as it is."""
    return assert_loads


def assert_loads(path: Path, model: object) -> None:
    """Fail unless ``model.load_state_dict`` takes what is in the file, strictly, on a machine without a GPU.

    ``model`` is a torch.nn.Module, or a mapping of keys to tensors or shapes. Only headers are read, and nothing in the
    file is run. The failure shows what ``ckptdoctor check`` finds, with the commands that repair it.
    """
    __tracebackhide__ = True
    from ckptdoctor.api.checking import check

    report = check(path, model=model)
    if not _loads(report):
        from ckptdoctor.rendering.full import file_report

        pytest.fail(report.error or file_report(report, width=100), pytrace=False)


def _loads(report: FileReport) -> bool:
    from ckptdoctor.findings import Severity

    if report.error is not None or report.checkpoint is None:
        return False
    if any(each.severity is Severity.ERROR for each in report.findings):
        return False
    return report.coverage is None or report.coverage.keys == report.coverage.total_keys
