"""Records what a person sees of every command on hundreds of files, and every byte that is written.

Before the house is rebuilt: ``python tools/freeze.py before.json.gz``; afterwards the same into another file, and
``python tools/freeze.py --compare before.json.gz after.json.gz``, which prints the first lines that differ and ends
with 1 where any does. The commands run as processes, on the samples, on every sick example of every rule, on planted
calls in all containers, and on pairs of a broken checkpoint and its target.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PAIRS = 200

# a file is F here and what it should fit T; what is written has one of these names and is gone afterwards
ONE = (
    "check F",
    "check --deep --format json F",
    "check --format sarif F",
    "check --format markdown F",
    "show F",
    "show --format json F",
    "fix F --diff",
    "fix F -o out.pt",
    "fix F -o out.json --format json",
    "fix F --unsafe-fixes -o out.pt",
    "fix F --weights-only-safe --to-cpu -o out.pt",
    "convert F out.safetensors",
    "convert F out.pt",
    "salvage F -o out",
    "report F -o page.html",
)
TWO = (
    "check F --like T --format json",
    "check F --like T",
    "fix F --like T --auto -o out.pt",
    "fix F --like T --auto --unsafe-fixes -o out.pt",
    "fix F --like T --write-map draft.json",
    "diff F T",
    "diff F T --format json",
    "graft F --from T -o out.pt",
    "merge F T -o out.pt",
)

# what differs from run to run: how long it took, and when
_PASSING = (
    (re.compile(r"\b\d+(\.\d+)? (ms|s)\b"), "<time>"),
    (re.compile(r'"seconds": [\d.e-]+'), '"seconds": <time>'),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"), "<moment>"),
)


def main() -> int:
    """Record, or compare two records."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("record", nargs="+")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--only", default="", help="only inputs whose name contains this")
    options = parser.parse_args()
    if options.compare:
        return compare(*(_read(each) for each in options.record))
    found: dict[str, Any] = {}
    with ProcessPoolExecutor() as pool:
        names = [name for name in inputs() if options.only in name]
        for number, told in enumerate(pool.map(recorded, names, chunksize=4), 1):
            found |= told
            print(f"\r{number} of {len(names)} inputs", end="", file=sys.stderr)
    print(file=sys.stderr)
    with gzip.open(options.record[0], "wt", encoding="utf-8") as file:
        json.dump(found, file)
    return 0


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print what differs between two records."""
    different = [name for name in before if before[name] != after.get(name)]
    different += [name for name in after if name not in before]
    for name in different:
        print(f"--- {name}")
        old, new = before.get(name, {}), after.get(name, {})
        for key in sorted(old.keys() | new.keys()):
            one, other = (json.dumps(each.get(key), indent=1).replace("\\n", "\n") for each in (old, new))
            lines = difflib.unified_diff(one.splitlines(), other.splitlines(), key, key, lineterm="", n=1)
            print("\n".join(list(lines)[:20]))
    print(f"{len(different)} of {len(before)} commands differ")
    return 1 if different else 0


def inputs() -> Iterator[str]:
    """The names of all inputs; each is made anew in the process that needs it."""
    from tests.planted import PLACES
    from tests.rules.sick import SICK

    yield "the program"
    samples = ROOT / "sample_ckpts"
    yield from (f"sample/{each.relative_to(samples)}" for each in sorted(samples.rglob("*.*")) if _is_sample(each))
    yield from (f"sick/{code}/{title}" for code, title in SICK)
    yield from (f"planted/{place}" for place in PLACES)
    yield from (f"pair/{number}" for number in range(PAIRS))


def _is_sample(path: Path) -> bool:
    return path.parent.name != "__pycache__" and path.suffix not in (".py", ".md", ".pyc") and path.is_file()


def recorded(name: str) -> dict[str, Any]:
    """What every command says of one input and writes."""
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        if name == "the program":
            return {f"{name}: {words}": _run(words.split(), room) for words in _of_the_program()}
        one, other, commands = _made(name, room)
        _age(room)
        found = {}
        for line in commands:
            words = [{"F": one, "T": other}.get(word, word) for word in line.split()]
            found[f"{name}: {line}"] = _run(words, room)
        return found


def _of_the_program() -> Iterator[str]:
    from ckptdoctor.cli.main import cli
    from ckptdoctor.rules.registry import all_rules

    yield from ("--help", "rules", "rules --format json")
    yield from (f"{name} --help" for name in sorted(cli.commands))
    yield from (f"explain {rule.code}" for rule in all_rules())


def _made(name: str, room: Path) -> tuple[str, str, tuple[str, ...]]:
    from tests.builders import build, build_like

    kind, _, rest = name.partition("/")
    if kind == "sample":
        path = ROOT / "sample_ckpts" / rest
        shutil.copy(path, room)
        return path.name, "", ONE
    if kind == "sick":
        from tests.rules.sick import SICK

        code, _, title = rest.partition("/")
        _, example = SICK[code, title]
        one = os.path.relpath(build(example, room), room)
        if example.like is None:
            return one, "", ONE
        (room / "like").mkdir()
        return one, os.path.relpath(build_like(example, room / "like"), room), ONE + TWO
    if kind == "planted":
        from tests.planted import PLACES, whole

        return os.path.relpath(PLACES[rest](room, whole), room), "", ONE
    from tests.pairs import judge

    pair = judge.pair_of(int(rest))
    with judge._inside(str(room)):
        one = judge._saved(pair.called, pair.source, pair.source_format)
        other = judge._saved("target", pair.target, pair.target_format)
        for path, contents in pair.beside.items():
            judge._beside(Path(path), contents)
    return one, other, TWO


def _age(room: Path) -> None:
    """Let every input be of the same moment: a page and a listing tell when."""
    for path in room.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))


def _run(words: list[str], room: Path) -> dict[str, Any]:
    from tests.commands import run

    before = set(room.rglob("*"))
    ended = run(*words, cwd=room, timeout=240)
    written = {}
    for path in sorted(set(room.rglob("*")) - before, reverse=True):
        if path.is_file():
            written[str(path.relative_to(room))] = hashlib.sha256(_settled(path)).hexdigest()
            path.unlink()
        else:
            path.rmdir()
    streams = {"out": ended.stdout, "err": ended.stderr}
    return {"status": ended.returncode, "written": written} | {
        key: _normal(raw.decode("utf-8", "replace"), room) for key, raw in streams.items()
    }


def _settled(path: Path) -> bytes:
    raw = path.read_bytes()
    return _normal(raw.decode(), path.parent).encode() if path.suffix == ".html" else raw


def _normal(text: str, room: Path) -> str:
    text = text.replace(str(room), "<room>")
    for pattern, instead in _PASSING:
        text = pattern.sub(instead, text)
    return text


def _read(path: str) -> dict[str, Any]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


if __name__ == "__main__":
    sys.exit(main())
