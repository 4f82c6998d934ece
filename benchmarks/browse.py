"""The browser on 500,000 tensors: how long until something is on the screen, and how long a key press takes.

``python benchmarks/browse.py FOLDER``: the folder needs 100 MB; the file stays there for the next run. The command is
started in a terminal of its own, and its output is read until the first drawing has come (the file's name, and that its
headers are being read), and then the whole tree. For keys the screen is drawn in full, only no terminal shows it. *Tree
after headers* counts from the moment that the headers have been read. Keys are pressed while the rules still run in
their thread, and again when they are done.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import signal
import statistics
import struct
import sys
import time
from pathlib import Path

from textual import events

from ckptdoctor.checkpoint import process
from ckptdoctor.tui import thread_priority, workers
from ckptdoctor.tui.app import BrowserApp

COUNT = 500_000
PARTS = (("attn.q.weight", [8, 4]), ("attn.k.weight", [8, 4]), ("attn.v.weight", [8, 4]), ("attn.o.weight", [8, 4]))
PARTS += (("mlp.up.weight", [16, 4]), ("mlp.down.weight", [4, 16]), ("norm1.weight", [4]), ("norm1.bias", [4]))
PARTS += (("norm2.weight", [4]), ("norm2.bias", [4]))
# each of them changes what is on the screen, wherever the ones before have left the cursor
KEYS = ["end", "home"] + ["down"] * 20 + ["pagedown", "pageup"] * 5 + ["end", "home", "down"]
KEYS += ["right", "down", "right", "down", "left", "left", "t", "end", "pageup", "home", "pagedown", "t", "down", "up"]


def many_tensors(folder: Path, count: int = COUNT) -> Path:
    """A safetensors file of so many small tensors, as deep as experts in a language model; its values are a hole."""
    path = folder / f"tensors_{count}.safetensors"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        end = 0
        for index in range(count):
            name, shape = PARTS[index % 10]
            begin, end = end, end + 4 * (shape[0] * shape[-1] if len(shape) > 1 else shape[0])
            key = f"model.layers.{index // 5000}.experts.{index // 10 % 500}.{name}"
            header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + end)
    return path


STARTS = 3
SIGNS = {"first drawing": "reading headers", "whole tree": "examining"}  # what the title bar says by then
CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def started(path: Path) -> dict[str, tuple[float, float]]:
    """Seconds of the clock and of the processor from the start of the process to each of ``SIGNS``."""
    begun = time.perf_counter()
    process_id, terminal = pty.fork()
    if not process_id:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        os.execv(sys.executable, [sys.executable, "-m", "ckptdoctor", "browse", os.fspath(path)])
    found: dict[str, tuple[float, float]] = {}
    shown = ""
    while len(found) < len(SIGNS) and time.perf_counter() - begun < 60:
        if select.select([terminal], [], [], 0.1)[0]:
            shown += CONTROL.sub("", os.read(terminal, 1 << 16).decode(errors="replace"))
        for name in [name for name, sign in SIGNS.items() if name not in found and sign in shown]:
            found[name] = (time.perf_counter() - begun, processor(process_id))
    os.kill(process_id, signal.SIGKILL)
    os.waitpid(process_id, 0)
    os.close(terminal)
    return found


def processor(process_id: int) -> float:
    """Seconds that a process has computed so far."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Watched(BrowserApp):
    """The browser, which notes when it has drawn."""

    drawn = 0.0
    used = 0.0

    def _display(self, screen, renderable) -> None:
        super()._display(screen, renderable)
        Watched.drawn = time.perf_counter()
        Watched.used = time.thread_time()


async def pressed(app: Watched, key: str) -> tuple[float, float]:
    """Seconds from a key press to the end of the drawing that answers it, and how many of them the processor worked."""
    before, used = time.perf_counter(), time.thread_time()
    app.post_message(events.Key(key, None))
    while Watched.drawn < before:
        await asyncio.sleep(0.0005)
        assert time.perf_counter() - before < 5, f"{key} changes nothing"
    return Watched.drawn - before, Watched.used - used


async def painted(app: Watched, begun: list[float]) -> float:
    """Seconds from the headers to the first screen with the tree on it."""
    while getattr(app.screen, "opened", None) is None:
        await asyncio.sleep(0.005)
    while Watched.drawn < begun[0] or not app.screen.examination.painted.is_set():
        await asyncio.sleep(0.001)
    return Watched.drawn - begun[0]


async def main(folder: Path) -> None:
    """Print the figures."""
    process.collect_seldom()
    begun: list[float] = []
    genuine = workers.opened_checkpoint

    def noted(*arguments):
        begun.append(time.perf_counter())
        return genuine(*arguments)

    workers.opened_checkpoint = noted
    path = many_tensors(folder)
    for name, times in zip(SIGNS, zip(*[started(path).values() for _ in range(STARTS)], strict=True), strict=True):
        clock, computing = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"{name:<27} {clock:6.3f} s from the start of the process, {computing:.3f} of them computing")
    app = Watched(os.fspath(path))
    async with app.run_test(size=(120, 40)):
        print(f"tree after headers          {await painted(app, begun):6.3f} s")
        for title in ("while the rules run", "when they are done"):
            times = [(*await pressed(app, key), key) for key in KEYS]
            took, used, key = max(times)
            middle, worked = (1000 * statistics.median(column) for column in list(zip(*times, strict=True))[:2])
            print(f"key press, {title:<18}  median {middle:5.1f} ms, {worked:5.1f} of them computing")
            print(f"{'':<31} worst  {1000 * took:5.1f} ms, {1000 * used:5.1f} of them computing ({key})")
            while not all(worker.is_finished for worker in app.workers):  # one that a key has cancelled is no error
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)


if __name__ == "__main__":
    thread_priority.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files")))
