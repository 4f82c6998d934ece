"""The browser's filter and ``show --filter`` are one language, and keep the same tensors."""

from __future__ import annotations

import asyncio
import io
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from ckptdoctor.checkpoint import show_path
from ckptdoctor.cli import main
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.widgets.list_view import ListView
from tests.tui import NORMAL, browse, press_at_once, settled, walk

SAMPLES = Path(__file__).parents[2] / "sample_ckpts"
FILES = (
    pytest.param("healthy/dtypes.pt", marks=pytest.mark.slow),
    "healthy/model.safetensors",
    "sick/N401-training-on-gpu.pt",
    "sick/A701-shared-tensors.pt",
    pytest.param("trained/fsdp/dcp", marks=pytest.mark.slow),
)
FILTERS = (
    "bias",
    "*.weight !conv",
    "dtype:f32,bf16 shape:*",
    ">1kB",
    "!device:cuda <=16",
    "is:tied",
    "finding:* weight",
    "!finding:N401",
)


def printed(arguments):
    """What a command prints, without the sentence on stderr where nothing matches."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        status = main.run(arguments)
    assert status in (ExitStatus.CLEAN, ExitStatus.FINDINGS)
    return out.getvalue()


def narrowed(path):
    """For each filter the names that the browser lists then, and the command that y copies."""
    found = []

    async def run():
        app = BrowserApp(path)
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            await press_at_once(pilot, "t")
            for text in FILTERS:
                await press_at_once(pilot, "slash", "ctrl+u", f"text:{text}", "enter")
                view = app.screen.query_one(ListView)
                names = [show_path(view.opened.table.tensors[row].path) for row in view.rows]
                found.append((names, app.screen.command()))

    asyncio.run(run())
    return found


@pytest.mark.parametrize("name", FILES)
def test_the_same_tensors_are_kept(name):
    """In the list, and by the command that y copies there, the same names follow each other."""
    found = narrowed(str(SAMPLES / name))
    assert sum(bool(names) for names, _ in found) > 1
    for names, line in found:
        assert line.startswith("ckptdoctor show ") and " --keys --filter " in line
        assert [shown.split("  ")[0] for shown in printed(shlex.split(line)[1:]).splitlines()] == names


def test_y_in_the_tree():
    """The level in which the cursor is, with the filter: a filter of one tensor would be none."""

    def look(app):
        return app.screen.command()

    show = "ckptdoctor show resnet.pt"
    typed = ("slash", "text:*.bias")
    stages = ((*typed, "enter"), ("end",), ("slash", "escape", "home"))
    filtered = f"{show} --root state_dict --filter '*.bias'"
    assert walk("resnet.pt", *stages, look=look) == [filtered, filtered, f"{show} --root epoch"]
    assert browse("plain.safetensors", *typed, "enter", "end", look=look) == (
        "ckptdoctor show plain.safetensors --filter '*.bias'"
    )
