"""Proves a healed file as a whole: its hash is one that was published for it, here or where the other copy is."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator
from contextlib import closing

from ckptdoctor.checkpoint import Source
from ckptdoctor.checkpoint.progress import Progress, Work, in_thread
from ckptdoctor.errors import DamagedError, UnreadableError
from ckptdoctor.examine.promised_checksums import promise_of
from ckptdoctor.noun import noun
from ckptdoctor.remote import open_remote
from ckptdoctor.remote.addresses import shown
from ckptdoctor.remote.published import Published
from ckptdoctor.remote.source import RemoteSource
from ckptdoctor.sealing.manifest import SUFFIX, decoded
from ckptdoctor.writing import Recipe
from ckptdoctor.writing.checksums import Bytes

_SEAL = 64 << 20  # bytes of a seal that are fetched at most
_LENGTHS = {"sha256": 64, "md5": 32}  # digits


@noun
class WholeProof:
    """What hashes say of a whole output: ``by`` names the one that is its hash, "" where none is.

    ``asked`` names those that are not.
    """

    by: str = ""
    asked: tuple[str, ...] = ()


def proven(
    recipe: Recipe, mine: Source, address: str | None, remote: RemoteSource | None
) -> Generator[Progress, None, WholeProof]:
    """Hash the output that a recipe makes, and compare it with what was published for the file.

    The seal and the lists of sums next to the damaged file come first, then what the server of the other copy says, and
    last a seal next to that. The output is read only where there is a hash to compare it with.
    """
    candidates = [*_local(mine), *([] if remote is None or address is None else _there(remote, address))]
    if not candidates:
        return WholeProof()
    kinds = sorted({each.algorithm for each in candidates})

    def hash_all(work: Work) -> dict[str, str]:
        found = {kind: hashlib.new(kind, usedforsecurity=False) for kind in kinds}
        with Bytes(recipe.source) as files:
            for chunk in files.of(recipe.segments):
                for each in found.values():
                    each.update(chunk)
                work.advance(len(chunk))
        return {kind: each.hexdigest() for kind, each in found.items()}

    digests = (yield from in_thread(hash_all, "hashing the result", recipe.size)).require()
    by = next((each.by for each in candidates if digests[each.algorithm] == each.digits), "")
    return WholeProof(by, tuple(dict.fromkeys([each.by for each in candidates if each.by != by])))


def _local(mine: Source) -> Iterator[Published]:
    promise = promise_of(mine)
    if promise is not None and len(promise.digits) == _LENGTHS[promise.algorithm]:
        yield Published(promise.algorithm, promise.digits, f"the {promise.kind} of {promise.by}")


def _there(remote: RemoteSource, address: str) -> Iterator[Published]:
    for each in remote.published:
        yield Published(each.algorithm, each.digits, f"the {each.kind} that {remote.path} publishes ({each.by})")
    if not any(each.algorithm == "sha256" for each in remote.published) and "?" not in address:
        yield from _sealed(address)


def _sealed(address: str) -> Iterator[Published]:
    """Yield the hash in a seal next to a remote file, where there is one."""
    where = f"{address}{SUFFIX}"
    try:
        with closing(open_remote(where)) as source:
            if source.size > _SEAL:
                return
            seal = decoded(source.fetch(0, source.size), shown(where))
    except (UnreadableError, DamagedError):  # most files have none, and one that is damaged shows nothing
        return
    if not seal.folder:
        yield Published("sha256", seal.files[0].digest, f"the SHA-256 of the seal {shown(where)}")
