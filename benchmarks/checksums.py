"""CRC-32 of bytes in the page cache: zlib, zlib-ng and ISA-L, in one thread and in two, where they are installed.

``python benchmarks/checksums.py``: ``pip install zlib-ng isal`` first. ``values/storage_damage.py`` takes zlib-ng where
it is there. Figures of one thread are of CPU seconds, which a busy machine changes less; of two, of wall clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from threading import Thread

from ckptdoctor.values.storage_damage import CHUNK

SIZE = 64 << 20  # more than caches hold
ROUNDS = 5

Crc32 = Callable[[memoryview, int], int]


def libraries() -> dict[str, Crc32]:
    """The functions by the name of the library."""
    found: dict[str, Crc32] = {}
    for name, module in (("zlib", "zlib"), ("zlib-ng", "zlib_ng.zlib_ng"), ("ISA-L", "isal.isal_zlib")):
        try:
            found[name] = import_module(module).crc32
        except ImportError:
            print(f"  {name:<8} is not installed")
    return found


def checked(crc32: Crc32, data: memoryview, first: int = 0, step: int = 1) -> None:
    """Check every ``step``-th chunk from ``first`` on."""
    for at in range(first * CHUNK, len(data), step * CHUNK):
        crc32(data[at : at + CHUNK], 0)


def together(crc32: Crc32, data: memoryview) -> None:
    """Two threads, a half each: all of these leave the interpreter to the other."""
    threads = [Thread(target=checked, args=(crc32, data, number, 2)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def best(work: Callable[[], None], clock: Callable[[], float]) -> float:
    """The fewest seconds of several runs."""
    seconds = []
    for _ in range(ROUNDS):
        began = clock()
        work()
        seconds.append(clock() - began)
    return min(seconds)


def main() -> None:
    """One line for each library."""
    data = memoryview(os.urandom(SIZE))
    found = libraries()
    assert len({crc32(data, 0) for crc32 in found.values()}) == 1
    for name, crc32 in found.items():
        one = best(partial(checked, crc32, data), time.process_time)
        two = best(partial(together, crc32, data), time.perf_counter)
        print(f"  {name:<8} {SIZE / one / 1e9:6.1f} GB/s in one thread   {SIZE / two / 1e9:6.1f} GB/s in two")


if __name__ == "__main__":
    main()
