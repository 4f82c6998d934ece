"""A save on a full file system, which only this process sees: it goes with the process, however that ends."""

from __future__ import annotations

import ctypes
import json
import subprocess

from ckptdoctor.errors import WriteError
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.snapshot import folders
from ckptdoctor.trainer.snapshot.folders import Position
from ckptdoctor.trainer.snapshot.resume import read
from ckptdoctor.trainer.snapshot.save import save
from tests.trainer.snapshot.toy import ALONE, Toy

CLONE_NEWNS = 0x20000  # unshare(2)


def main(place):
    """Print what the save says, and what is there afterwards."""
    assert ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=True)
    config = RunConfig(out=str(place))
    strategy = Toy(config)
    save(config, strategy, ALONE, Position(1))
    (place / "filler").write_bytes(bytes(16000))
    try:
        said = str(save(config, strategy, ALONE, Position(2)))
    except WriteError as error:
        said = error.message
    newest = folders.newest(place)
    epoch = read(newest)["epoch"] if newest else None
    print(json.dumps({"said": said, "left": sorted(path.name for path in place.iterdir()), "epoch": epoch}))
