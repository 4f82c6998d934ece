"""Fuzzes reader, rules, writer and loader for some seconds: ``python -m tests.fuzz.worker SEED SECONDS``.

Runs under a memory limit, with an audit hook that ends the process when anything of a file were imported, compiled,
executed or unpickled. Prints how many cases it tried; a failing case is printed with its seed, and the status is 1.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from importlib import import_module
from io import BytesIO
from pathlib import Path
from pkgutil import walk_packages

import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, FileSource
from ckptdoctor.edits import Rename, Retag
from ckptdoctor.engine.diagnose import check
from ckptdoctor.engine.settings import Settings
from ckptdoctor.errors import CkptDoctorError, DamagedError, NotACheckpointError, UnreadableError
from ckptdoctor.late import complete_all
from ckptdoctor.loading import load
from ckptdoctor.pickles import decode, encode, prove
from ckptdoctor.writing.recipe import Copy, Generated, Literal
from tests.fuzz.mutations import mutated

ROOT = Path(formats.__file__).parents[1]
SAMPLES = Path(__file__).parents[2] / "sample_ckpts"
MEMORY = 4_000_000_000  # of which torch's libraries take more than half, as addresses alone
AT_LEAST = 10  # cases, however little time there is
SLOW = 10.0  # seconds for one small file: no honest reader needs them
FORBIDDEN = {"exec", "compile", "pickle.find_class", "os.system", "subprocess.Popen", "socket.connect"}


def main(seed: int, seconds: float) -> int:
    """Try cases until the time is over; the exit status."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    samples = [path for path in sorted(SAMPLES.glob("*/*")) if path.is_file()]
    seeds = [path.read_bytes() for path in samples if path.stat().st_size < 70_000] + odd_tensors()
    archives = [records for data in seeds if (records := records_of(data))]
    pickles = [data for path in samples if path.suffix == ".pt" and (data := pickle_of(path))]
    with tempfile.TemporaryDirectory() as folder:
        warm_up(Path(folder) / "case")
        sys.addaudithook(forbid)
        tried, end = 0, time.monotonic() + seconds
        while tried < AT_LEAST or time.monotonic() < end:
            if not one_case(seed + tried, seeds, pickles, archives, Path(folder) / "case"):
                return 1
            tried += 1
    print(f"{tried} cases")
    return 0


def forbid(event: str, arguments: tuple[object, ...]) -> None:
    """The audit hook."""
    if event in FORBIDDEN:
        raise SystemExit(f"canary: {event} {arguments!r}"[:300])


def warm_up(path: Path) -> None:
    """Import everything that is imported lazily, so that the hook sees only what a file brings about."""
    for part in ("formats", "facts", "rules", "engine", "remote", "values", "writing"):
        for module in walk_packages([str(ROOT / part)], f"ckptdoctor.{part}."):
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


def one_case(seed: int, seeds: list[bytes], pickles: list[bytes], archives: list[dict[str, bytes]], path: Path) -> bool:
    """One mutated file, and mutated pickles alone and in an archive; False when something else than an answer came."""
    chance = random.Random(seed)
    started = time.process_time()
    try:
        path.write_bytes(mutated(chance.choice(seeds), chance))
        through_everything(path)
        through_load(path)
        through_the_machine(mutated(chance.choice(pickles), chance))
        path.write_bytes(with_mutated_pickle(chance.choice(archives), chance))
        through_load(path)
    except Exception as error:  # whatever it is, it is a failure of this case
        # not format_exc, which compiles lines to point at their middle
        where = [
            f"  {frame.f_code.co_filename}:{line} {frame.f_code.co_name}"
            for frame, line in traceback.walk_tb(error.__traceback__)
        ]
        print("\n".join([f"seed {seed}: {error!r}", *where]))
        return False
    taken = time.process_time() - started
    if taken > SLOW:
        print(f"seed {seed}: took {taken:.1f} s")
    return taken <= SLOW


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
                recipe = formats.rewrite(source, report.checkpoint, edits)
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
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2])))
