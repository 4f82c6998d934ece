"""Being asked to stop by signals."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from ckptdoctor.trainer.launch.stopping import StopRequest


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGUSR1, "SIGUSR1")]
)
def test_a_signal_is_a_request(number, reason):
    """Each of the signals is taken note of, with its name, and nothing else happens."""
    with StopRequest().installed() as stop:
        assert (stop.asked, stop.reason) == (False, None)
        os.kill(os.getpid(), number)
        assert (stop.asked, stop.reason) == (True, reason)


def test_the_handlers_come_back():
    """Afterwards the signals do what they did before, also when the run failed."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    with pytest.raises(ZeroDivisionError), StopRequest().installed():
        assert signal.getsignal(signal.SIGTERM) != before[1]
        raise ZeroDivisionError
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == before


def test_ctrl_c_a_second_time():
    """Whoever presses Ctrl-C again does not want to wait; the first reason stays."""
    with StopRequest().installed() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.reason == "SIGTERM"


def test_in_another_thread():
    """Outside the main thread no handler can be set: the request is there, and can be made by hand."""
    seen = []

    def work():
        with StopRequest().installed() as stop:
            seen.append(stop.asked)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
    assert signal.getsignal(signal.SIGINT) is before
