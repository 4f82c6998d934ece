"""A save on a full file system: run by test_save.py as ``python -m … FOLDER``, in a mount namespace of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ckptdoctor.errors import WriteError
from ckptdoctor.trainer.config import Config
from ckptdoctor.trainer.snapshot import folders
from ckptdoctor.trainer.snapshot.position import Position
from ckptdoctor.trainer.snapshot.resume import read
from ckptdoctor.trainer.snapshot.save import save
from tests.trainer.snapshot.toy import ALONE, Toy

if __name__ == "__main__":
    place = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=True)
    config = Config(out=str(place))
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
