"""Runs from Python what needs a process of its own: the browser, which needs a terminal, and training."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Iterator
from signal import SIGINT
from typing import Literal

from ckptdoctor.api.arguments import Path, Words, from_python, several
from ckptdoctor.errors import TrainingError, UsageError

_LAST = 20  # lines that an error may quote
_ODD = "backslashreplace"  # of bytes in the output that are not text, such as those of a file's name


@from_python
def browse(
    path: Path = ".",
    other: Path | None = None,
    *,
    model: object = None,
    like: Path | None = None,
    config: Path | None = None,
    root: str | None = None,
    deep: bool = False,
    theme: str | None = None,
    serve: bool = False,
    host: str | None = None,
    port: int | None = None,
) -> None:
    """Browse a checkpoint in the terminal of this process, or two side by side, until the browser is closed.

    ``serve`` shows it as a web page instead. The browser is a process of its own, so ``model`` is the name of your
    code ("nets:Net"). Raises UsageError without a terminal, and where the browser could not start, which has printed
    why.

    >>> import ckptdoctor
    >>> ckptdoctor.browse("model.pt")  # in a script, whose output goes into a file
    Traceback (most recent call last):
    ckptdoctor.errors.UsageError: browse() needs a terminal. Without one: check('model.pt'), or serve=True.
    """
    if model is not None and not isinstance(model, str):
        raise UsageError('model= of browse() is the name of your code, "nets:Net": the browser is another process.')
    # a program without a console has None for them
    if not serve and not all(each is not None and each.isatty() for each in (sys.stdin, sys.stdout)):
        raise UsageError(f"browse() needs a terminal. Without one: check({os.fsdecode(path)!r}), or serve=True.")
    given: dict[str, object] = {
        "model": model,
        "like": like,
        "config": config,
        "root": root,
        "deep": deep,
        "theme": theme,
    }
    given |= {"serve": serve, "host": host, "port": port}
    paths = [os.fsdecode(each) for each in (path, other) if each is not None]
    status = subprocess.run(_command("browse", given, paths), check=False).returncode
    if status == 2:
        raise UsageError("The browser could not start: the reason is above.")


@from_python
def train(
    network: str = "lenet",
    *,
    strategy: str = "single",
    world_size: int | None = None,
    gpus: str | None = None,
    device: str = "auto",
    data: str | None = None,
    data_dir: Path | None = None,
    epochs: int = 10,
    batch_size: int | None = None,
    lr: float | None = None,
    schedule: str = "cosine",
    momentum: float = 0.9,
    optimizer: str = "sgd",
    amp: str = "no",
    compile: bool = False,
    ema: bool = False,
    pin_memory: bool = False,
    workers: int = 0,
    seed: int = 0,
    out: Path | None = None,
    save: Words = "plain",
    every: int = 1,
    resume: bool = False,
    tag_device: str | None = None,
    timeout: float = 120,
    show_work: bool = False,
    slurm: bool = False,
    devices: bool = False,
) -> str:
    """Train a small network, save real checkpoints, and return their folder (None: ``runs/NETWORK-STRATEGY``).

    Each argument does what the option of ``ckptdoctor train`` with its name does; ``save`` is one format or several.
    The run is a process of its own, and its output is printed. With ``slurm`` or ``devices`` nothing is trained: the
    text that the command would print is returned, which is the sbatch script for this run, or the table of devices.
    Raises TrainingError with the reason if the run could not start or continue.

    >>> import ckptdoctor
    >>> script = ckptdoctor.train("lenet", strategy="ddp", world_size=8, slurm=True)
    >>> [line for line in script.splitlines() if "gres" in line][0]
    '#SBATCH --gres=gpu:8'
    """
    given: dict[str, object] = dict(locals())
    del given["network"]
    folder = os.fsdecode(out) if out is not None else os.path.join("runs", f"{network}-{strategy}")
    given |= {"out": folder, "save": several(save)}
    command = _command("train", given, [network])
    if slurm or devices:
        printed = subprocess.run(command, capture_output=True, text=True, errors=_ODD, check=False)
        if printed.returncode:
            raise TrainingError(_reason(printed.stderr.splitlines()))
        return printed.stdout
    last: deque[str] = deque(maxlen=_LAST)
    piped = subprocess.PIPE
    with subprocess.Popen(command, stdout=piped, stderr=subprocess.STDOUT, text=True, errors=_ODD) as process:
        try:
            _repeat(process, last)
        except KeyboardInterrupt:
            _interrupted(process, last)
            raise
    if process.returncode:
        raise TrainingError(_reason(last))
    return folder


def _repeat(process: subprocess.Popen[str], last: deque[str]) -> None:
    """Print what the run prints, until it ends."""
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="")
        last.append(line)


def _interrupted(process: subprocess.Popen[str], last: deque[str]) -> None:
    """Wait for the end of a run that has heard Ctrl-C, too, and saves first.

    One that goes on, because the signal came to this process alone, hears the next one from here.
    """
    try:
        _repeat(process, last)
    except KeyboardInterrupt:
        process.send_signal(SIGINT)
        _repeat(process, last)


def _reason(lines: Collection[str]) -> str:
    """Return the error that the last lines of a process print."""
    reasons = [line.partition("error: ")[2] for line in lines if "error: " in line]
    return (reasons or list(lines) or ["the run ended without a message."])[-1].strip()


def _command(name: Literal["browse", "train"], given: dict[str, object], arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "ckptdoctor", name, *_options(given), "--", *arguments]


def _options(given: dict[str, object]) -> Iterator[str]:
    """Yield options as they are typed; None and False are left out."""
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            yield option
        elif value is not None and value is not False:
            for each in value if isinstance(value, tuple) else (value,):
                yield f"{option}={os.fsdecode(each) if isinstance(each, os.PathLike) else each}"
