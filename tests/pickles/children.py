"""Decoding in a child process that may neither do anything forbidden nor use much memory or time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

# Decodes each file named on the command line and prints, as JSON, what came of it and how long it took.
_CODE = """
import json, resource, sys, time
{before}
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.noun import complete_all
from ckptdoctor.pickles import decode
from ckptdoctor.pickles.encode import encode
complete_all()  # what the first of a class would bring about is none of a file's doing
files = [open(path, "rb").read() for path in sys.argv[1:]]
{after}
for data in files:
    start = time.process_time()
    try:
        pickled = decode(data)
        said = [each.kind for each in pickled.ambiguities] or ["read"]
        if {encoding}:
            encode(pickled)
        pickled = None
    except CkptDoctorError as error:
        said = [type(error).__name__, error.message]
    print(json.dumps([said, time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


def run(folder, streams, *, before="", after="", encoding=True, timeout=120):
    """Decode each stream in one child; returns for each what was said, seconds, and the peak memory so far in kB."""
    paths = []
    for number, data in enumerate(streams):
        paths.append(folder / str(number))
        paths[-1].write_bytes(data)
    code = _CODE.format(before=before, after=after, encoding=encoding)
    command = [sys.executable, "-c", code, *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
