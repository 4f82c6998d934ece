"""Defines a seal and the JSON file that it is kept in: small, one region a line, and the same for the same bytes.

The file is documented in ``docs/seals.md``. One that is read may be anybody's, so each of its fields is checked
before it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ckptdoctor.errors import DamagedError, UnreadableError
from ckptdoctor.noun import noun, replace
from ckptdoctor.regex import regex
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.shell import quote
from ckptdoctor.wording import system_says

FORMAT = "ckptdoctor seal"
VERSION = 1
# bytes of a block: a change is named this exactly, and costs one digest for as many bytes
BLOCK = 1 << 20
# behind the name of a sealed file, and as the name in a sealed folder
SUFFIX = ".seal.json"
IN_FOLDER = f"ckptdoctor{SUFFIX}"
# bytes of a seal that are read at most: 10^6 tensors with names of 300 characters take no more
_LONGEST = 1 << 30
_SETTLED = 2_000_000_000  # nanoseconds without a change, after which the times of a file tell the next one
_DIGEST = regex(r"[0-9a-f]{64}")


@noun
class SealedTensor:
    """A tensor by its name, and which bytes of its region it shows: all from the first to the last that it touches."""

    name: str
    start: int
    stop: int


@noun
class Region:
    """Bytes of a file that tensors show: the digest of each block from its beginning, and the tensors.

    ``blocks`` are SHA-256 digests in hexadecimal; a region without bytes has none.
    """

    offset: int
    length: int
    blocks: tuple[str, ...]
    tensors: tuple[SealedTensor, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes where they are one block, else of the digests of all blocks in a row."""
        return joined(self.blocks)


@noun
class SealedParity:
    """The parity of a file: how many percent were asked for, and the SHA-256 of the table in the parity file."""

    percent: float
    table: str


@noun
class SealedFile:
    """A file: its size, the SHA-256 of all of it, and that of the bytes in none of its regions (``rest``).

    ``name`` is the path in the folder that was sealed, with slashes; for a single file its name when it was sealed.
    ``parity`` is None where none was made.
    """

    name: str
    size: int
    digest: str
    rest: str
    regions: tuple[Region, ...]
    parity: SealedParity | None = None

    @property
    def tensors(self) -> int:
        """How many tensors have bytes in it."""
        return len({tensor.name for region in self.regions for tensor in region.tensors})


@noun
class Seal:
    """What a file or a folder was when it was sealed. ``block`` is how many bytes one digest of a region is about."""

    folder: bool
    files: tuple[SealedFile, ...]
    block: int = BLOCK


def joined(blocks: tuple[str, ...]) -> str:
    """Return the digest of a region by those of its blocks."""
    if len(blocks) == 1:
        return blocks[0]
    return hashlib.sha256(b"".join([bytes.fromhex(each) for each in blocks])).hexdigest()


def seal_beside(path: str) -> str:
    """Return the file that the seal of a path is kept in."""
    return os.path.join(path, IN_FOLDER) if os.path.isdir(path) else path + SUFFIX


def entries_of(path: str) -> Iterator[tuple[str, Seal, SealedFile]]:
    """Yield what seals of a file are there, next to it or of a folder above, each with what it says of the file.

    Seals that are not intact say nothing.
    """
    for where, name in _places(path):
        try:
            seal = read_seal(where)
        except (DamagedError, UnreadableError):  # verify says what is wrong with it
            continue
        for file in seal.files:
            if seal.folder == bool(name) and (file.name == name or not name):
                yield where, seal, file


def seal_above(path: str) -> tuple[str, Seal] | None:
    """Return the nearest seal of a folder above that has a file, or files of a folder, and what it says of these alone.

    It is None where there is none. Raises UnreadableError or DamagedError for a nearer one that cannot be used.
    """
    for where, name in _places(path):
        if not name:
            continue
        seal = read_seal(where)
        if not seal.folder:
            continue
        if not os.path.isdir(path):
            files = [each for each in seal.files if each.name == name]
        else:
            below = [(each, each.name.removeprefix(f"{name}/")) for each in seal.files]
            files = [replace(each, name=inside) for each, inside in below if inside != each.name]
        if files:
            return where, Seal(os.path.isdir(path), tuple(files), seal.block)
    return None


def seals_of(path: str) -> Iterator[str]:
    """Yield the seals that may say something of a local file or folder: its own, and those of folders above."""
    if os.path.isfile(seal_beside(path)):
        yield seal_beside(path)
    yield from seals_above(path)


def seals_above(path: str) -> Iterator[str]:
    """Yield the seals of folders above, the nearest first, whatever they say."""
    yield from [where for where, name in _places(path) if name]


def _places(path: str) -> Iterator[tuple[str, str]]:
    """Yield where a seal of a file is, with the name that the file has there ("" in its own).

    Relative to the working directory where the path is.
    """
    if os.path.isfile(path + SUFFIX):
        yield path + SUFFIX, ""
    folder, name = os.path.split(os.path.abspath(path))
    while True:
        where = os.path.join(folder, IN_FOLDER)
        if os.path.isfile(where):
            yield where if os.path.isabs(path) else os.path.relpath(where), name
        above, step = os.path.split(folder)
        if not step:
            return
        folder, name = above, f"{step}/{name}"


# ---- written


def encoded(seal: Seal) -> bytes:
    """Return the seal as JSON, with each file and each region in a line of its own."""
    head = {"format": FORMAT, "version": VERSION, "algorithm": "sha256", "block": seal.block, "folder": seal.folder}
    files = ",\n".join([_file(each) for each in seal.files])
    return f'{_json(head)[:-1]},\n"files":[\n{files}\n]}}\n'.encode()


def _file(file: SealedFile) -> str:
    head: dict[str, Any] = {"name": file.name, "size": file.size, "sha256": file.digest, "rest": file.rest}
    if file.parity is not None:
        head["parity"] = {"percent": file.parity.percent, "table": file.parity.table}
    regions = ",\n".join([_json(_region(each)) for each in file.regions])
    return f'{_json(head)[:-1]},"regions":[\n{regions}\n]}}' if regions else f'{_json(head)[:-1]},"regions":[]}}'


def _region(region: Region) -> dict[str, Any]:
    found: dict[str, Any] = {"offset": region.offset, "length": region.length, "sha256": region.digest}
    if len(region.blocks) > 1:
        found["blocks"] = list(region.blocks)
    if region.tensors:
        found["tensors"] = [_tensor(each, region) for each in region.tensors]
    return found


def _tensor(tensor: SealedTensor, region: Region) -> dict[str, Any]:
    all_of_it = tensor.start == 0 and tensor.stop == region.length
    return {"name": tensor.name} | ({} if all_of_it else {"start": tensor.start, "stop": tensor.stop})


def _json(value: Any) -> str:
    # ASCII: half a surrogate pair in the name of a tensor is no UTF-8
    return json.dumps(value, separators=(",", ":"))


# ---- read


def read_seal(path: str) -> Seal:
    """Read the seal in a local file. Raises UnreadableError if there is none, DamagedError if it is not intact."""
    try:
        status = os.stat(path)
        read = _read if time.time_ns() - status.st_mtime_ns > _SETTLED else _read.__wrapped__
        return read(path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be opened: {system_says(error)}") from error


@lru_cache(maxsize=1)  # that of a folder is asked for by one file after another
def _read(path: str, *identity: int) -> Seal:
    with open(path, "rb") as file:
        return decoded(file.read(_LONGEST + 1), path)


def decoded(raw: bytes, path: str) -> Seal:
    """Return the seal that ``encoded`` made these bytes of.

    Raises DamagedError for any others, whose file is ``path``.
    """
    try:
        if len(raw) > _LONGEST:
            raise ValueError(f"it is longer than {_LONGEST:,} bytes")
        return _seal(_Fields(json.loads(raw), "the seal"))
    except (ValueError, RecursionError) as error:
        why = "it is not JSON" if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)) else str(error)
        why = "its brackets are nested too deeply" if isinstance(error, RecursionError) else why
        raise DamagedError(f"{path} is not an intact seal: {why}. {again(path)}") from None


def again(path: str) -> str:
    """Return how a seal that is damaged, in the file ``path``, is replaced."""
    if is_address(path):
        return "Download it again."
    if os.path.basename(path) == IN_FOLDER:
        sealed, what = os.path.dirname(path) or os.curdir, "the files in its folder are"
    elif path.endswith(SUFFIX):
        sealed, what = path.removesuffix(SUFFIX), "the file is"
    else:
        return (
            "Once you know that what it was made of is intact, delete the seal and make a new one with ckptdoctor seal."
        )
    return f"Once you know that {what} intact, delete the seal and make a new one: ckptdoctor seal {quote(sealed)}"


class _Fields:
    """An object of the JSON, whose fields are asked for by their names and kinds. Raises ValueError."""

    def __init__(self, value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"{place} is not an object")
        self._value, self.place = value, place

    def text(self, name: str) -> str:
        value = self._value.get(name)
        if not isinstance(value, str):
            raise ValueError(f'"{name}" of {self.place} is not a text')
        return value

    def number(self, name: str, most: int | None = None, default: int | None = None) -> int:
        value = self._value.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0 or (most is not None and value > most):
            raise ValueError(f'"{name}" of {self.place} is not a possible number of bytes')
        return value

    def digest(self, name: str) -> str:
        value = self.text(name)
        if not _DIGEST.fullmatch(value):
            raise ValueError(f'"{name}" of {self.place} is not a SHA-256 digest')
        return value

    def objects(self, name: str) -> Iterator[_Fields]:
        for at, value in enumerate(self.items(name)):
            yield _Fields(value, f'"{name}" {at} of {self.place}')

    def items(self, name: str) -> list[Any]:
        value = self._value.get(name, [])
        if not isinstance(value, list):
            raise ValueError(f'"{name}" of {self.place} is not a list')
        return value

    def share(self, name: str) -> float:
        value = self._value.get(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 100:
            raise ValueError(f'"{name}" of {self.place} is not a share in percent')
        return float(value)

    def within(self, name: str) -> _Fields | None:
        value = self._value.get(name)
        return None if value is None else _Fields(value, f'"{name}" of {self.place}')

    def flag(self, name: str) -> bool:
        value = self._value.get(name)
        if not isinstance(value, bool):
            raise ValueError(f'"{name}" of {self.place} is neither true nor false')
        return value


def _seal(fields: _Fields) -> Seal:
    if fields.text("format") != FORMAT:
        raise ValueError(f'its "format" is not "{FORMAT}"')
    if fields.number("version") != VERSION or fields.text("algorithm") != "sha256":
        raise ValueError("it was written by a later version of ckptdoctor")
    block = fields.number("block")
    if not block:
        raise ValueError("its blocks have no bytes")
    files = tuple([_sealed_file(each, block) for each in fields.objects("files")])
    folder = fields.flag("folder")
    names = [each.name for each in files]
    if len(set(names)) != len(names) or (not folder and len(names) != 1):
        raise ValueError("it does not name each of its files once")
    return Seal(folder, files, block)


def _sealed_file(fields: _Fields, block: int) -> SealedFile:
    name = fields.text("name")
    steps = name.split("/")
    if not name or "\0" in name or "\\" in name or any(step in ("", ".", "..") for step in steps):
        raise ValueError(f"the name of {fields.place} leads out of its folder")
    size = fields.number("size")
    regions, end = [], 0
    for each in fields.objects("regions"):
        region = _sealed_region(each, block, size)
        if region.offset < end:
            raise ValueError(f"{each.place} overlaps the one before it")
        end = region.offset + region.length
        regions.append(region)
    kept = fields.within("parity")
    parity = None if kept is None else SealedParity(kept.share("percent"), kept.digest("table"))
    return SealedFile(name, size, fields.digest("sha256"), fields.digest("rest"), tuple(regions), parity)


def _sealed_region(fields: _Fields, block: int, size: int) -> Region:
    offset = fields.number("offset", size)
    length = fields.number("length", size - offset)
    blocks = tuple(fields.items("blocks"))
    if not all(isinstance(each, str) and _DIGEST.fullmatch(each) for each in blocks):
        raise ValueError(f'"blocks" of {fields.place} are not SHA-256 digests')
    if length and not blocks:
        blocks = (fields.digest("sha256"),)
    if len(blocks) != -(-length // block) or joined(blocks) != fields.digest("sha256"):
        raise ValueError(f"the digests of {fields.place} contradict each other")
    tensors = [_sealed_tensor(each, length) for each in fields.objects("tensors")]
    return Region(offset, length, blocks, tuple(tensors))


def _sealed_tensor(fields: _Fields, length: int) -> SealedTensor:
    stop = fields.number("stop", length, length)
    return SealedTensor(fields.text("name"), fields.number("start", stop, 0), stop)
