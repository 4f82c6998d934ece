"""A real server that speaks S3, in a process of its own."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
from contextlib import contextmanager
from unittest import mock

import pytest

# what the server begins with: thousands of objects that are uploaded take a minute
_SERVE = """
import marshal, sys
from threading import Event
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer
backend = s3_backends["123456789012"]["aws"]
with open(sys.argv[1], "rb") as file:
    for bucket, objects in marshal.load(file).items():
        backend.create_bucket(bucket, "us-east-1")
        for name, data in objects.items():
            backend.put_object(bucket, name, data)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)  # on a port that it has, and nobody else gets
server.start()
print(server.get_host_and_port()[1], flush=True)
Event().wait()
"""


@contextmanager
def served(folder, **buckets):
    """Serve buckets of objects by their names, and tell this process and those that it starts where.

    It gives a function that reads what was asked for.
    """
    for name in ("moto", "flask", "s3fs"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install -c constraints.txt -e '.[slow]'")
    (folder / "objects").write_bytes(marshal.dumps(buckets))
    line = [sys.executable, "-c", _SERVE, str(folder / "objects")]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(line, stderr=log, stdout=subprocess.PIPE, text=True)
    try:
        port = process.stdout.readline().strip()
        assert port, (folder / "log").read_text()
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
        rest = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_EC2_METADATA_DISABLED": "true"}
        with mock.patch.dict(os.environ, {**keys, **rest}):
            yield lambda: (folder / "log").read_text()
    finally:
        process.terminate()
        process.communicate()
