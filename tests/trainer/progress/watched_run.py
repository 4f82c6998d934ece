"""A program that plays a run to its own terminal: ``python watched_run.py FOLDER [crash]``."""

from __future__ import annotations

import sys
import time

from ckptdoctor.trainer.events import StepDone
from ckptdoctor.trainer.progress.report import listener
from tests.trainer.progress.runs import config, run


def main(out, crash=""):
    """Two epochs in about half a second."""
    short = config(out=out, epochs=2)
    with listener(short, True) as tell:
        for event in run(short):
            if isinstance(event, StepDone):
                time.sleep(0.012)
            if crash and getattr(event, "epoch", 0) == 2:
                print("a word from elsewhere")
                raise SystemExit("the run is broken")
            tell(event)


if __name__ == "__main__":
    main(*sys.argv[1:])
