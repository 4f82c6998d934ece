"""A real server that speaks S3, in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from unittest import mock

import pytest


@contextmanager
def served(folder):
    """Serve, and tell this process and those that it starts where; gives a function that reads what was asked for."""
    for name in ("moto", "flask", "s3fs"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install -c constraints.txt -e '.[slow]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    with open(folder / "log", "w") as log:
        process = subprocess.Popen([sys.executable, "-c", serve], stderr=log, stdout=log)
    try:
        _wait(port)
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
        rest = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_EC2_METADATA_DISABLED": "true"}
        with mock.patch.dict(os.environ, {**keys, **rest}):
            yield lambda: (folder / "log").read_text()
    finally:
        process.terminate()
        process.wait()


def _wait(port):
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server did not start")
