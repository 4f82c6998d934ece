"""``ckptdoctor.train`` in a notebook: what an interrupt does that reaches this process alone."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest

import ckptdoctor

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal for one process there")


def test_a_run_that_has_not_heard_the_first_interrupt_hears_the_second(tmp_path, capsys):
    """It saves and ends; until then its output is read, without which it would wait for a reader in vain."""
    record = tmp_path / "run" / "metrics.jsonl"

    def interrupt():
        for _ in range(2):
            reached = size()
            while size() <= reached:
                time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)

    def size():
        return record.stat().st_size if record.exists() else 0

    waiting = threading.Thread(target=interrupt, daemon=True)
    waiting.start()
    with pytest.raises(KeyboardInterrupt):
        ckptdoctor.train("foonet", epochs=100_000, every=100_000, out=tmp_path / "run")
    waiting.join()
    assert "Stopped after" in capsys.readouterr().out
    assert ckptdoctor.latest(tmp_path / "run", resumable=True) is not None
