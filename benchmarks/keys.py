"""How long a key press takes in a real terminal: from its bytes going in to the first bytes that answer it.

``python benchmarks/keys.py FOLDER``: the folder needs 100 MB; the file of 500,000 tensors stays there for the next run.
Keys are pressed from the moment that the tree is on the screen, while the rules still run in their thread, and again
when they are done. What ``browse.py`` measures within the process begins later and ends sooner: between a terminal and
the screen, and back, stand threads that have to wait for their turn.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import sys
import termios
import time
from pathlib import Path

from browse import many_tensors

UP, DOWN, RIGHT, LEFT = (b"\x1b[" + sign for sign in (b"A", b"B", b"C", b"D"))
HOME, END, PAGE_UP, PAGE_DOWN = b"\x1b[H", b"\x1b[F", b"\x1b[5~", b"\x1b[6~"
# each of them changes what is on the screen, wherever the ones before have left the cursor
KEYS = [END, HOME] + [DOWN] * 12 + [PAGE_DOWN, PAGE_UP] * 3 + [END, HOME, DOWN]
KEYS += [RIGHT, DOWN, RIGHT, LEFT, LEFT, b"t", END, PAGE_UP, HOME, b"t", DOWN, UP]
QUIET = 0.05  # seconds without output after which the screen has settled
PATIENCE = 5.0


def started(path: Path) -> tuple[int, int]:
    """The browser in a terminal of 120 columns and 40 lines: its process, and our end of the terminal."""
    child, terminal = pty.fork()
    if not child:
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        os.execv(sys.executable, [sys.executable, "-m", "ckptdoctor", "browse", os.fspath(path)])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    return child, terminal


def read(terminal: int, seconds: float) -> bytes:
    """What comes within so many seconds."""
    ready, _, _ = select.select([terminal], [], [], max(0, seconds))
    return os.read(terminal, 1 << 16) if ready else b""


def until(terminal: int, text: bytes) -> None:
    """Wait until it is on the screen."""
    seen, end = b"", time.perf_counter() + 60
    while text not in seen:
        assert time.perf_counter() < end, f"{text!r} never came"
        seen += read(terminal, 1)


def settle(terminal: int) -> None:
    """Wait until nothing more comes."""
    while read(terminal, QUIET):
        pass


def pressed(terminal: int, key: bytes) -> float:
    """Seconds from a key to the first bytes that answer it."""
    begun = time.perf_counter()
    os.write(terminal, key)
    assert read(terminal, PATIENCE), f"{key!r} changes nothing"
    took = time.perf_counter() - begun
    settle(terminal)
    return took


def main(folder: Path) -> None:
    """Print the figures."""
    child, terminal = started(many_tensors(folder))
    until(terminal, b"experts")
    for title, pause in (("while the rules run", 5), ("when they are done", 0)):
        times = [(pressed(terminal, key), key) for key in KEYS]
        slow = sum(took > 0.05 for took, _ in times)
        print(
            f"key press, {title:<19} median {1000 * statistics.median([took for took, _ in times]):4.0f} ms, "
            f"worst {1000 * max(times)[0]:4.0f} ms ({max(times)[1]!r}), {slow} of {len(times)} over 50 ms"
        )
        end = time.perf_counter() + pause
        while time.perf_counter() < end:
            read(terminal, 0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"))
