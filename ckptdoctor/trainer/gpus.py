"""The GPUs that a run may see are settled before torch starts.

A machine numbers its GPUs 0, 1, 2, …: the physical numbers, those of ``nvidia-smi``. A process sees those that
``CUDA_VISIBLE_DEVICES`` lists, and numbers them again in the order of the list: the logical numbers. With
``CUDA_VISIBLE_DEVICES=0,4`` there are two GPUs, physical 0 is ``cuda:0`` and physical 4 is ``cuda:1``; ``cuda:4`` does
not exist. Two traps:

- CUDA reads the variable once, when it starts. What is set later has no effect and no warning. So this module never
  imports torch, and refuses when CUDA has started already.
- Left alone CUDA counts from the fastest GPU, nvidia-smi along the PCI bus, and "GPU 4" may be two different cards.
  ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` makes the two agree. (CUDA C++ Programming Guide, "CUDA Environment Variables".)
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass

from ckptdoctor.errors import TrainingError, UsageError

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"

# What was chosen here, and what a scheduler had set before: so that a second choice is not held to the first one.
CHOSEN = "CKPTDOCTOR_GPUS"
BEFORE = "CKPTDOCTOR_GPUS_BEFORE"

_MEMORY = ("index", "memory.free", "memory.total", "name")
_PATIENCE = 30.0  # seconds: nvidia-smi wakes sleeping GPUs one by one, which takes some on a machine with eight
_BY_HAND = "name the GPUs by hand (--gpus 0,1) or train on the CPU (--device cpu)"


@dataclass(frozen=True)
class GpuSelection:
    """The GPUs of a run by their physical numbers; their places in the tuple are their logical ones."""

    physical: tuple[int, ...]

    def sentence(self) -> str:
        """Return the map, for people: "GPUs: physical 0 → cuda:0, physical 4 → cuda:1"."""
        return "GPUs: " + ", ".join(f"physical {gpu} → cuda:{place}" for place, gpu in enumerate(self.physical))


@dataclass(frozen=True)
class Gpu:
    """One line of nvidia-smi. Memory in MiB; None where the driver keeps no count (unified memory, MIG)."""

    index: int
    free: int | None
    total: int | None
    name: str


def select(choice: str, count: int | None, environ: MutableMapping[str, str]) -> GpuSelection:
    """Make the chosen GPUs the only ones that this process and its children see, by setting ``environ``.

    ``choice`` is "0,4", by physical numbers, or "auto": ``count`` of them (None: all), most free memory first. Numbers
    say by themselves how many, ``count`` is not looked at. Call it before torch is imported.
    """
    numbers = None if choice.strip() == "auto" else parse_numbers(choice)
    _refuse_too_late()
    allowed = _allowed(environ)
    if numbers is None:
        numbers = _most_free(query(), allowed, count)
    _refuse_hidden(numbers, allowed)
    _remember(environ)
    environ[ORDER] = "PCI_BUS_ID"
    # a plain assignment: setdefault would leave an earlier choice standing, and nobody would notice
    environ[VISIBLE] = environ[CHOSEN] = ",".join(map(str, numbers))
    return GpuSelection(numbers)


def parse_numbers(choice: str) -> tuple[int, ...]:
    """Return the numbers of "0,4". Raises UsageError for anything else, and for a GPU that is named twice."""
    parts = [part.strip() for part in choice.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,4}", part) for part in parts):
        raise UsageError(
            f'--gpus "{_plain(choice)}": give the numbers of GPUs separated by commas, such as "0,4", or "auto"'
        )
    numbers = tuple(int(part) for part in parts)
    twice = [number for number in numbers if numbers.count(number) > 1]
    if twice:
        raise UsageError(f"--gpus {_plain(choice)}: GPU {twice[0]} is named twice; name each once")
    return numbers


def query() -> tuple[Gpu, ...]:
    """Return every GPU of this machine, as nvidia-smi sees them: it takes no notice of ``CUDA_VISIBLE_DEVICES``."""
    return parse_memory(_nvidia_smi(_MEMORY, "--gpus auto"))


def parse_memory(text: str) -> tuple[Gpu, ...]:
    """Return the answer to ``--query-gpu=index,memory.free,memory.total,name --format=csv,noheader,nounits``.

    A number that the driver does not give is in brackets: [N/A], [Not Supported], [Unknown Error]. nvidia-smi also
    prints what ails it among the lines. Warnings are passed over; any other such text is a TrainingError that quotes
    it: a machine with one GPU lost is not one to choose from blindly.
    """
    found = tuple(_gpu(line) for line in _lines(text))
    if not found:
        raise TrainingError(f"--gpus auto: nvidia-smi lists no GPU on this machine; {_BY_HAND}")
    return found


def _gpu(line: str) -> Gpu:
    cells = [cell.strip() for cell in line.split(",", 3)]
    if len(cells) != 4 or not all(re.fullmatch(r"[0-9]+|\[[^]]*\]", cell) for cell in cells[:3]) or cells[0][0] == "[":
        raise TrainingError(f'--gpus auto: nvidia-smi answers "{_plain(line)}"; {_BY_HAND}')
    free, total = (None if cell.startswith("[") else int(cell) for cell in cells[1:3])
    return Gpu(int(cells[0]), free, total, cells[3])


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING:")]


def _nvidia_smi(columns: tuple[str, ...], asker: str) -> str:
    """Return the answer of nvidia-smi for the columns; TrainingError when it is not there, fails or hangs."""
    command = ["nvidia-smi", f"--query-gpu={','.join(columns)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_PATIENCE, encoding="utf-8", errors="replace", check=False
        )
    except FileNotFoundError as error:
        raise TrainingError(f"{asker} needs nvidia-smi, which is not installed on this machine; {_BY_HAND}") from error
    except subprocess.TimeoutExpired as error:
        raise TrainingError(f"nvidia-smi did not answer within {_PATIENCE:.0f} seconds; {_BY_HAND}") from error
    except OSError as error:
        raise TrainingError(f"nvidia-smi cannot be run ({error.strerror}); {_BY_HAND}") from error
    if done.returncode != 0:
        # it says on stdout, not on stderr, what is wrong
        said = _plain(" ".join(_lines(done.stdout or done.stderr))) or f"exit status {done.returncode}"
        raise TrainingError(f'nvidia-smi fails: "{said}"; {_BY_HAND}')
    return done.stdout


def _most_free(gpus: tuple[Gpu, ...], allowed: tuple[int, ...] | None, count: int | None) -> tuple[int, ...]:
    """Return ``count`` of the GPUs that may be used, most free memory first; unknown memory last, ties by number."""
    usable = [gpu for gpu in gpus if allowed is None or gpu.index in allowed]
    wanted = len(usable) if count is None else count
    if not 1 <= wanted <= len(usable):
        where = "this machine has" if allowed is None else f"{VISIBLE} leaves visible"
        raise UsageError(
            f"--gpus auto: {wanted} GPUs requested, but {where} {len(usable)}; request no more than these"
            if usable and wanted > 0
            else f"--gpus auto: {wanted} GPUs requested; request at least one, or train on the CPU: --device cpu"
        )
    return tuple(gpu.index for gpu in sorted(usable, key=_fullness)[:wanted])


def _fullness(gpu: Gpu) -> tuple[int, int]:
    return (1 if gpu.free is None else -gpu.free, gpu.index)


def _refuse_too_late() -> None:
    """Refuse when CUDA runs: it has its list of GPUs. Looks into ``sys.modules``; an import would be the mistake."""
    started = getattr(getattr(sys.modules.get("torch"), "cuda", None), "is_initialized", None)
    if started is not None and started():
        raise UsageError(
            f"--gpus comes too late: CUDA has started in this process and does not read {VISIBLE} again;"
            " choose the GPUs before torch uses one"
        )


def _refuse_hidden(numbers: tuple[int, ...], allowed: tuple[int, ...] | None) -> None:
    hidden = [number for number in numbers if allowed is not None and number not in allowed]
    if allowed is not None and hidden:
        visible = ", ".join(map(str, allowed))
        raise UsageError(
            f"--gpus: GPU {hidden[0]} is not visible here, {VISIBLE} leaves {visible}; choose from these, by "
            "their physical numbers"
        )


def _remember(environ: MutableMapping[str, str]) -> None:
    """Keep what the environment said before the first choice."""
    before = _before(environ)
    environ.pop(BEFORE, None)
    if before is not None:
        environ[BEFORE] = before


def _before(environ: MutableMapping[str, str]) -> str | None:
    """Return ``CUDA_VISIBLE_DEVICES`` as others set it, not as an earlier choice did, or None where nobody has."""
    visible = environ.get(VISIBLE)
    return environ.get(BEFORE) if visible is not None and visible == environ.get(CHOSEN) else visible


def _allowed(environ: MutableMapping[str, str]) -> tuple[int, ...] | None:
    """Return the physical numbers that a scheduler lets this process see; None: all."""
    visible = _before(environ)
    if visible is None:
        return None
    entries = [entry.strip() for entry in visible.split(",")]
    allowed = _by_uuid(entries) if entries[0].startswith(("GPU-", "MIG-")) else _by_number(entries)
    if not allowed:
        raise UsageError(
            f"--gpus: {VISIBLE} is set to {_plain(visible)!r}, which leaves no GPU visible; ask the "
            "scheduler for GPUs (or unset it, if there is no scheduler) or train on the CPU: --device cpu"
        )
    return allowed


def _by_number(entries: list[str]) -> tuple[int, ...]:
    """Return the numbers up to the first entry that is none: there CUDA stops reading too ("0,-1,2" is GPU 0)."""
    numbers: list[int] = []
    for entry in entries:
        if not re.fullmatch(r"[0-9]{1,4}", entry):
            break
        numbers.append(int(entry))
    return tuple(numbers)


def _by_uuid(entries: list[str]) -> tuple[int, ...]:
    """Return the numbers of GPUs that are named "GPU-8932f937…", as some schedulers do.

    The start of a name is enough.
    """
    if entries[0].startswith("MIG-"):
        raise UsageError(
            f"--gpus: {VISIBLE} names slices of a GPU (MIG), which have no numbers; leave --gpus out to use these"
        )
    pairs = [
        line.partition(",")
        for line in _lines(_nvidia_smi(("index", "uuid"), f"--gpus, where {VISIBLE} names GPUs by UUID,"))
    ]
    known = {uuid.strip(): int(index) for index, _, uuid in pairs if index.strip().isdecimal()}
    return tuple(number for entry in entries for uuid, number in known.items() if uuid.startswith(entry))


def _plain(text: str) -> str:
    """Return at most 200 characters of others' text on one line, without what a terminal would obey."""
    line = "".join(sign if sign.isprintable() else " " for sign in text)
    return " ".join(line.split())[:200]
