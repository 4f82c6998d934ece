"""Fuzzes reader, pickle machine, rules and writer for some seconds: ``python -m tests.fuzz.worker SEED SECONDS``.

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
import zipfile
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, FileSource
from ckptdoctor.edits import Rename, Retag
from ckptdoctor.engine.diagnose import check
from ckptdoctor.engine.settings import Settings
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.late import complete_all
from ckptdoctor.pickles import decode, encode, prove
from ckptdoctor.writing.recipe import Copy, Generated, Literal
from tests.fuzz.mutations import mutated

ROOT = Path(formats.__file__).parents[1]
SAMPLES = Path(__file__).parents[2] / "sample_ckpts"
MEMORY = 2_000_000_000
AT_LEAST = 10  # cases, however little time there is
SLOW = 10.0  # seconds for one small file: no honest reader needs them
FORBIDDEN = {"exec", "compile", "pickle.find_class", "os.system", "subprocess.Popen", "socket.connect"}


def main(seed: int, seconds: float) -> int:
    """Try cases until the time is over; the exit status."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    samples = [path for path in sorted(SAMPLES.glob("*/*")) if path.is_file()]
    seeds = [path.read_bytes() for path in samples if path.stat().st_size < 70_000]
    pickles = [data for path in samples if path.suffix == ".pt" and (data := pickle_of(path))]
    with tempfile.TemporaryDirectory() as folder:
        warm_up(Path(folder) / "case")
        sys.addaudithook(forbid)
        tried, end = 0, time.monotonic() + seconds
        while tried < AT_LEAST or time.monotonic() < end:
            if not one_case(seed + tried, seeds, pickles, Path(folder) / "case"):
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
    complete_all()


def pickle_of(path: Path) -> bytes:
    """The data.pkl of an archive, b"" where there is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            return next(archive.read(name) for name in archive.namelist() if name.endswith("/data.pkl"))
    except (zipfile.BadZipFile, StopIteration):
        return b""


def one_case(seed: int, seeds: list[bytes], pickles: list[bytes], path: Path) -> bool:
    """One mutated file and one mutated pickle; False when something other than an answer came of it."""
    chance = random.Random(seed)
    started = time.process_time()
    try:
        path.write_bytes(mutated(chance.choice(seeds), chance))
        through_everything(path)
        through_the_machine(mutated(chance.choice(pickles), chance))
    except Exception:  # whatever it is, it is a failure of this case
        print(f"seed {seed}:\n{traceback.format_exc()}")
        return False
    taken = time.process_time() - started
    if taken > SLOW:
        print(f"seed {seed}: took {taken:.1f} s")
    return taken <= SLOW


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
