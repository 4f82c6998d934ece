"""What there is little room for: lines end where their pane does, and lists keep a line."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch

from ckptdoctor.tui.widgets import values_preview
from ckptdoctor.tui.widgets.compare_view import CompareView
from ckptdoctor.tui.widgets.detail import Detail
from ckptdoctor.tui.widgets.fix_list import FixList
from tests.tui import browse, walk


@pytest.mark.parametrize("width", [40, 60, 82, 90, 100, 101, 110])
def test_sizes_have_one_line_each(width, tmp_path, monkeypatch):
    """However little room there is for names, bars and numbers."""
    monkeypatch.setattr(values_preview, "REST", 0.01)
    part = {"weight": 3.0, "bias": 1.0, "running_mean": 2.0, "running_variance": 0.66121}
    state = {f"bn1.{name}": torch.arange(8.0) * far for name, far in part.items()}
    torch.save({**state, "bn1.num_batches_tracked": torch.tensor(7), "fc.weight": torch.ones(3, 8)}, tmp_path / "bn.pt")

    def sizes(app):
        text = app.screen.query_one("#facts").content.plain
        return text.partition("sizes")[2].strip("\n").split("\n"), app.screen.query_one(Detail)._width()

    (found,) = walk(tmp_path / "bn.pt", ("home",), size=(width, 40), look=sizes)
    lines, room = found
    assert len(lines) == 5
    assert all(len(line) <= room and "%" in line and "σ" in line for line in lines)


def test_values_end_where_their_pane_does(tmp_path):
    """What is cut ends in a sign that says so."""
    torch.save({"_forward_hooks_always_called_with_kwargs": OrderedDict(), "n": 3}, tmp_path / "values.pt")
    lines = browse(tmp_path / "values.pt", size=(100, 30)).split("\n")
    (cut,) = [line.split("││")[0] for line in lines if "││" in line and "collections." in line.split("││")[0]]
    assert cut.rstrip().endswith("…") and "OrderedDict of 0" not in cut


def rows(app, kind):
    """How many lines of a list can be seen."""
    return app.screen.query_one(kind).scrollable_content_region.height


@pytest.mark.parametrize("height", [10, 15, 16, 19, 20, 24])
def test_a_comparison_keeps_lines_on_a_tiny_screen(height):
    """What is known of the line under the cursor makes room for it."""
    size = (40, height)
    assert browse("resnet.pt", size=size, other="plain.safetensors", look=lambda app: rows(app, CompareView)) >= 3


@pytest.mark.parametrize("height", [10, 15, 16, 24])
def test_repairs_keep_lines_on_a_tiny_screen(height):
    """The plan makes room for them."""
    assert browse("resnet.pt", "f", size=(40, height), look=lambda app: rows(app, FixList)) >= 2
