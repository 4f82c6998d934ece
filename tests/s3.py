"""A real server that speaks S3, in a process of its own."""

from __future__ import annotations

import marshal
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from unittest import mock

import pytest

# what the server begins with: thousands of objects that are uploaded take a minute
_SERVE = """
import marshal, sys
from moto.s3.models import s3_backends
from moto.server import main
backend = s3_backends["123456789012"]["aws"]
with open(sys.argv[2], "rb") as file:
    for bucket, objects in marshal.load(file).items():
        backend.create_bucket(bucket, "us-east-1")
        for name, data in objects.items():
            backend.put_object(bucket, name, data)
main(["-H", "127.0.0.1", "-p", sys.argv[1]])
"""


@contextmanager
def served(folder, **buckets):
    """Serve buckets of objects by their names, and tell this process and those that it starts where.

    It gives a function that reads what was asked for.
    """
    for name in ("moto", "flask", "s3fs"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install -c constraints.txt -e '.[slow]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "objects").write_bytes(marshal.dumps(buckets))
    line = [sys.executable, "-c", _SERVE, str(port), str(folder / "objects")]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(line, stderr=log, stdout=log)
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
