"""Fuzzes for some seconds: ``python -m tests.fuzz.worker KIND SEED SECONDS``, where KIND is bytes or commands.

``bytes``: reader, pickle machine, rules, writer and loader meet damaged samples. ``commands``: every command meets
damaged files and folders of all rules and formats. Runs under a memory limit, with an audit hook that ends the process
when anything of a file were imported, compiled, executed or unpickled. Prints how many cases it tried; a failing case
is printed with its seed, and the status is 1.
"""

from __future__ import annotations

import ast
import contextlib
import encodings
import os
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from pathlib import Path
from pkgutil import walk_packages

import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, FileSource
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.edits import Rename, Retag
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import CkptDoctorError, DamagedError, NotACheckpointError, UnreadableError
from ckptdoctor.examine.file import check
from ckptdoctor.loading import load
from ckptdoctor.noun import complete_all
from ckptdoctor.pickles import decode
from ckptdoctor.pickles.encode import encode, prove
from ckptdoctor.writing import Copy, Generated, Literal
from tests.fuzz.mutations import mutated

ROOT = Path(formats.__file__).parents[1]
SAMPLES = Path(__file__).parents[2] / "sample_ckpts"
MEMORY = {"bytes": 4_000_000_000, "commands": 6_000_000_000}  # torch's libraries take 2 GB, as addresses alone
AT_LEAST = 10  # cases, however little time there is
SLOW = 10.0  # seconds for one small file: no honest reader needs them
FORBIDDEN = {"exec", "compile", "pickle.find_class", "os.system", "subprocess.Popen", "socket.connect"}


def main(kind: str, seed: int, seconds: float) -> int:
    """Try cases until the time is over; the exit status."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY[kind], MEMORY[kind]))
    with tempfile.TemporaryDirectory() as folder:
        case = {"bytes": of_bytes, "commands": of_commands}[kind](Path(folder))
        sys.addaudithook(forbid)
        tried, end = 0, time.monotonic() + seconds
        while tried < AT_LEAST or time.monotonic() < end:
            started = time.process_time()
            wrong = case(seed + tried)
            taken = time.process_time() - started
            if wrong or taken > SLOW:
                print(f"seed {seed + tried}: {wrong or f'took {taken:.1f} s'}")
                return 1
            tried += 1
    print(f"{tried} cases")
    return 0


class Watch:
    """While it is entered, what is imported, compiled, executed or unpickled ends the process."""

    active = False

    def __enter__(self) -> None:
        Watch.active = True

    def __exit__(self, *_: object) -> None:
        Watch.active = False


def forbid(event: str, arguments: tuple[object, ...]) -> None:
    """The audit hook. ``ast.literal_eval`` compiles to a tree only, and runs nothing."""
    if Watch.active and event in FORBIDDEN and sys._getframe(1).f_code.co_filename != ast.__file__:
        traceback.print_stack()
        raise SystemExit(f"canary: {event} {arguments!r}"[:300])


def of_bytes(folder: Path) -> Callable[[int], str]:
    """What tries a mutated file, and mutated pickles alone and in an archive, and gives what went wrong."""
    samples = [path for path in sorted(SAMPLES.glob("*/*")) if path.is_file()]
    seeds = [path.read_bytes() for path in samples if path.stat().st_size < 70_000] + odd_tensors()
    archives = [records for data in seeds if (records := records_of(data))]
    pickles = [data for path in samples if path.suffix == ".pt" and (data := pickle_of(path))]
    path = folder / "case"
    warm_up(path)

    def case(seed: int) -> str:
        chance = random.Random(seed)
        try:
            with Watch():
                path.write_bytes(mutated(chance.choice(seeds), chance))
                through_everything(path)
                through_load(path)
                through_the_machine(mutated(chance.choice(pickles), chance))
                path.write_bytes(with_mutated_pickle(chance.choice(archives), chance))
                through_load(path)
        except Exception:  # whatever it is, it is a failure of this case
            return traceback.format_exc()
        return ""

    return case


def of_commands(folder: Path) -> Callable[[int], str]:
    """The same for every command on damaged files and folders."""
    from tests.fuzz import commands

    os.environ["CKPTDOCTOR_TRACEBACK"] = "1"
    warnings.simplefilter("ignore")
    warm_up(folder / "case")
    os.chdir(folder)
    names = commands.subjects()
    for words in commands.COMMANDS:  # what is imported late is imported now
        commands.undamaged(words, folder / "warm")
    return lambda seed: commands.one_case(seed, names, folder / "work", Watch())


def warm_up(path: Path) -> None:
    """Import everything that is imported lazily, so that the hook sees only what a file brings about."""
    no_file_asks = ("trainer", "tui", "integrations")  # nor need the libraries of hooks be there
    for room in sorted(each.name for each in ROOT.iterdir() if each.is_dir() and each.name not in no_file_asks):
        for module in walk_packages([str(ROOT / room)], f"ckptdoctor.{room}."):
            import_module(module.name)
    for module in walk_packages(encodings.__path__, "encodings."):
        with contextlib.suppress(ImportError):  # those of other systems
            import_module(module.name)
    for name in ("bz2", "gzip", "lzma", "tarfile", "zlib", "zstandard"):  # what unpacks packed files
        import_module(name)
    for sample in sorted(SAMPLES.glob("*/*")):
        if sample.is_file():
            path.write_bytes(sample.read_bytes())
            through_everything(path)
            through_load(path)
    complete_all()


def odd_tensors() -> list[bytes]:
    """Files of torch with the kinds of tensors that are made in their own ways, and values that are made of calls."""
    warnings.simplefilter("ignore")  # torch's on quantised and sparse tensors; and load's, which are asked for
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    contents = {
        "plain": dense.t(),
        "parameter": torch.nn.Parameter(dense),
        "coo": dense.to_sparse(),
        "csr": dense.to_sparse_csr(),
        "tensor": torch.quantize_per_tensor(dense, 0.1, 3, torch.qint8),
        "channel": torch.quantize_per_channel(dense, torch.ones(2), torch.zeros(2), 0, torch.quint8),
        "conj": torch.tensor([1 + 2j]).conj(),
        "meta": torch.empty(2, 3, device="meta"),
        "size": torch.Size([2, 3]),
        "device": torch.device("cuda:1"),
    }
    made = []
    for new in (True, False):
        file = BytesIO()
        torch.save(contents, file, _use_new_zipfile_serialization=new)
        made.append(file.getvalue())
    return made


def pickle_of(path: Path) -> bytes:
    """The data.pkl of an archive, b"" where there is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            return next(archive.read(name) for name in archive.namelist() if name.endswith("/data.pkl"))
    except (zipfile.BadZipFile, StopIteration):
        return b""


def records_of(data: bytes) -> dict[str, bytes]:
    """The records of a sound archive, empty where it is none."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except zipfile.BadZipFile:
        return {}


def with_mutated_pickle(records: dict[str, bytes], chance: random.Random) -> bytes:
    """An archive that is sound but for its data.pkl."""
    made = BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in records.items():
            archive.writestr(name, mutated(data, chance) if name.endswith("/data.pkl") else data)
    return made.getvalue()


def through_load(path: Path) -> None:
    """load gives contents or one of its documented errors; what it gives strictly, it gives leniently, too."""
    given = []
    for strict in (True, False):
        try:
            load(path, strict=strict)
            given.append(strict)
        except (UnreadableError, NotACheckpointError, DamagedError) as error:
            assert error.message, "an error without a word"
    assert given != [True], "strict gave more than lenient"


def through_the_machine(data: bytes) -> None:
    """A pickle is refused, or decodes to a graph that is proven or known not to be."""
    try:
        pickle = decode(data)
        encode(pickle)
        prove(data, pickle)
    except CkptDoctorError:
        return


def through_everything(path: Path) -> None:
    """check reports; what can be read can be rewritten or is refused; what was rewritten can be read."""
    report = check(str(path), Settings())
    if report.checkpoint is None:
        assert report.findings or report.error, "neither a finding nor an error"
        return
    with FileSource(path) as source:
        for edits in (
            [Retag("cpu")],
            [Rename(each.path, renames(each.keys)) for each in report.checkpoint.state_dicts],
        ):
            try:
                recipe = formats.write(wanted_of(report.checkpoint, edits), source)
                output = b"".join(piece(source, segment) for segment in recipe.segments)
            except CkptDoctorError:
                continue
            reopen(path, output, report.checkpoint)


def renames(keys: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """A new name for every key."""
    return tuple((key, f"renamed.{key}") for key in dict.fromkeys(keys))


def piece(source: FileSource, segment: Literal | Copy | Generated) -> bytes:
    """The bytes of one segment."""
    if isinstance(segment, Literal):
        return segment.data
    if isinstance(segment, Copy):
        return source.read(segment.offset, segment.length)
    return b"".join(segment.chunks())


def reopen(path: Path, output: bytes, before: Checkpoint) -> None:
    """The rewritten file has as many tensors as the original."""
    other = path.with_name("rewritten")
    other.write_bytes(output)
    assert len(formats.open_checkpoint(other).tensors) == len(before.tensors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
