"""Changes one thing in the code and runs its tests, many times over: what no test notices is a hole in the tests.

``python tools/mutate.py`` tries mutants of the rooms that write and prove; ``python tools/mutate.py PATH…`` those of
other files or folders, and ``PATH:LINE`` those of one line. Everything happens in a copy of the tree.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent

_COMPUTED = (
    *(f"tests/edits/applied/test_{name}.py" for name in ("casting", "densifying")),
    *(f"tests/repair/test_{name}.py" for name in ("dequantizing", "filling_in", "fusing_norms", "splitting")),
    "tests/repair/test_transposing.py",
)
_DOORS = ("tests/repair/test_verify.py", "tests/repair/test_repair.py", "tests/rules/test_laws.py")

# the rooms that write and prove, and the tests that have to notice what is changed there
ROOMS: dict[str, tuple[str, ...]] = {
    "ckptdoctor/repair/repair.py": ("tests/repair/test_index.py", *_DOORS),
    "ckptdoctor/prove/*.py": (
        *("tests/prove", "tests/edits/test_elements.py", "tests/rules/quantization/test_torch.py", *_COMPUTED),
        *_DOORS,
    ),
    "ckptdoctor/checkpoint/patterns.py": ("tests/grafting/test_heal.py", "tests/repair/test_plan_request.py", *_DOORS),
    "ckptdoctor/writing/*.py": ("tests/writing", "tests/repair/test_repair.py"),
    "ckptdoctor/pickles/encode.py": ("tests/pickles", "tests/repair/test_repair.py"),
    "ckptdoctor/edits/*.py": (
        *("tests/edits", "tests/edits/applied/test_apply_edits.py", "tests/repair/test_merge_adapter.py"),
        *("tests/repair/test_optimizers_by_name.py", *_COMPUTED, *_DOORS),
    ),
    "ckptdoctor/pruning/plan.py": ("tests/pruning/test_plan.py",),
    "ckptdoctor/pruning/trash.py": ("tests/pruning/test_trash.py",),
}

_SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ORDERING = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_OPPOSITE: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
}


@dataclass(frozen=True)
class Mutant:
    """One file in which the text from ``begin`` to ``end`` (lines and bytes in them) is another."""

    path: str
    begin: tuple[int, int]
    end: tuple[int, int]
    text: str

    def applied(self, source: str) -> str:
        """The source with it. Lines keep their numbers up to it."""
        lines = source.encode().splitlines(keepends=True)
        before = b"".join(lines[: self.begin[0] - 1]) + lines[self.begin[0] - 1][: self.begin[1]]
        after = lines[self.end[0] - 1][self.end[1] :] + b"".join(lines[self.end[0] :])
        return (before + self.text.encode() + after).decode()

    def shown(self, source: str) -> str:
        """Where it is, and the line as it was and as it is."""
        at = self.begin[0] - 1
        old, new = (text.splitlines()[at].strip() for text in (source, self.applied(source)))
        return f"{self.path}:{self.begin[0]}\n    - {old}\n    + {new}"


def mutants(path: str, source: str) -> Iterator[Mutant]:
    """Every mutant of a file, in the order of its text."""
    tree = ast.parse(source)
    for node in _code(tree):
        for text in _others(node):
            yield Mutant(
                path,
                (node.lineno, node.col_offset),
                (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset),
                text,
            )


def _code(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """The expressions and statements below, but for what no test could notice, such as annotations and texts."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.JoinedStr) or (isinstance(child, ast.keyword) and child.arg == "strict"):
                continue
            if isinstance(child, (ast.expr, ast.stmt)):
                yield child
            if isinstance(child, ast.AST):
                yield from _code(child)


def _others(node: ast.expr | ast.stmt) -> Iterator[str]:
    """What may stand in the place of a node."""
    if isinstance(node, ast.stmt):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            yield "pass"
        elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
            yield "return None"
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        yield from _unfiltered(node)
    else:
        yield from (f"({text})" for text in _other_values(node))


def _other_values(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Compare):
        for operator in node.ops:
            swapped = [_SWAPPED[type(each)]() if each is operator else each for each in node.ops]
            yield ast.unparse(ast.Compare(node.left, swapped, node.comparators))
        if isinstance(node.ops[0], _ORDERING):
            yield f"not {ast.unparse(node)}"
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.unparse(ast.BoolOp(other, node.values))
        for at in range(len(node.values)):
            rest = node.values[:at] + node.values[at + 1 :]
            yield ast.unparse(ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0])
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield ast.unparse(node.left)
        yield ast.unparse(node.right)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPPOSITE and not _is_text(node):
        yield ast.unparse(ast.BinOp(node.left, _OPPOSITE[type(node.op)](), node.right))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield ast.unparse(node.operand)
    elif isinstance(node, ast.IfExp):
        yield ast.unparse(node.body)
        yield ast.unparse(node.orelse)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield repr(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield repr(node.value + 1)


def _unfiltered(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> Iterator[str]:
    """The same without one of its conditions."""
    for generator in node.generators:
        kept = generator.ifs
        for condition in kept:
            generator.ifs = [each for each in kept if each is not condition]
            yield ast.unparse(node)
        generator.ifs = kept


def _is_text(node: ast.BinOp) -> bool:
    """Whether it joins texts or lists, which cannot be subtracted."""
    joined = (ast.JoinedStr, ast.List, ast.Tuple)
    return any(
        isinstance(each, joined) or (isinstance(each, ast.Constant) and isinstance(each.value, (str, bytes)))
        for each in (node.left, node.right)
    )


def tests_of(path: str) -> tuple[str, ...]:
    """The tests that have to notice what is changed in a file; for other rooms, those that lie where it lies."""
    for pattern, tests in ROOMS.items():
        if fnmatch(path, pattern):
            return tests
    mirrored = Path("tests", *Path(path).parts[1:-1])
    laws = ("tests/rules/test_laws.py",) if path.startswith("ckptdoctor/rules/") else ()
    return (str(mirrored), *laws)


class Copy:
    """A copy of the tree, in which one file at a time is another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[tuple[str, ...], tuple[list[str], float]] = {}
        aside = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
        shutil.copytree(ROOT, folder, ignore=aside, dirs_exist_ok=True)

    def survives(self, mutant: Mutant, tests: tuple[str, ...]) -> bool:
        """Whether all these tests pass with the mutant. Tests that do not end have noticed it too."""
        files, usual = self.usual(tests)
        path = self.folder / mutant.path
        source = path.read_text(encoding="utf-8")
        try:
            path.write_text(mutant.applied(source), encoding="utf-8")
            _forget(path)
            return self.passes(files, 60 + 4 * usual)
        finally:
            path.write_text(source, encoding="utf-8")
            _forget(path)

    def usual(self, tests: tuple[str, ...]) -> tuple[list[str], float]:
        """The files of these tests, the quickest first, and how long all of them take as the code is."""
        if tests not in self.known:
            begun = monotonic()
            report = self.folder / "report.xml"
            if not self.passes(tests, None, f"--junit-xml={report}"):
                raise SystemExit(
                    f"The tests of {' '.join(tests)} fail as the code is: there is nothing to compare with."
                )
            taken: dict[str, float] = {}
            for case in ElementTree.parse(report).iter("testcase"):
                name = self._file(case.attrib["classname"])
                taken[name] = taken.get(name, 0) + float(case.attrib["time"])
            self.known[tests] = sorted(taken, key=taken.__getitem__), monotonic() - begun
        return self.known[tests]

    def _file(self, module: str) -> str:
        parts = module.split(".")
        while not self.folder.joinpath(*parts).with_suffix(".py").is_file():  # a class in it
            parts.pop()
        return str(Path(*parts).with_suffix(".py"))

    def passes(self, tests: Iterable[str], seconds: float | None, *options: str) -> bool:
        """Whether these tests pass, within this time."""
        arguments = ["-n", "0", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", "--hypothesis-seed=0"]
        arguments += [f"--basetemp={self.folder / '.temporary'}", *options, *tests]
        process = get_context("fork").Process(target=_test, args=(self.folder, arguments))
        process.start()
        try:
            process.join(seconds)
            return process.exitcode == 0
        finally:
            if process.exitcode is None and process.pid is not None:
                os.killpg(process.pid, signal.SIGKILL)  # with what the tests have started
                process.join()


def _test(folder: Path, arguments: list[str]) -> None:
    """Run tests in a process that is forked off: what most of them import is there already, but for the code itself."""
    import pytest

    os.setsid()
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    sys.path[0] = str(folder)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    os._exit(pytest.main(arguments))


def _forget(path: Path) -> None:
    """Remove what Python has compiled: a change of the same length within one second would not be noticed."""
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


def _chosen(paths: Sequence[str]) -> list[Mutant]:
    """The mutants of these files, folders and lines."""
    found = []
    for each in paths or [str(path.relative_to(ROOT)) for pattern in ROOMS for path in ROOT.glob(pattern)]:
        name, _, line = each.partition(":")
        files = sorted(ROOT.glob(f"{name}/**/*.py")) if (ROOT / name).is_dir() else [ROOT / name]
        for file in files:
            made = mutants(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8"))
            found += [mutant for mutant in made if not line or mutant.begin[0] == int(line)]
    return sorted(set(found), key=lambda mutant: (mutant.path, mutant.begin, mutant.end, mutant.text))


def main() -> int:
    """Try mutants, say which survive, and in the end how many did not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", metavar="PATH[:LINE]", help="files or folders, from the root of the tree")
    parser.add_argument("--mutants", type=int, default=60, help="how many are tried (60)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="which ones are tried")
    parser.add_argument("--tests", nargs="+", help="the tests that have to notice it, instead of those of the room")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as tests have it
    for name in ("torch", "numpy", "safetensors.torch", "pytest"):
        import_module(name)
    for number in (signal.SIGINT, signal.SIGTERM):  # in the background, too
        signal.signal(number, signal.default_int_handler)
    made = _chosen(options.paths)
    tried = random.Random(options.seed).sample(made, min(options.mutants, len(made)))
    print(f"{len(tried)} of {len(made)} mutants, --seed {options.seed}", flush=True)
    survivors, done = [], 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        copy = Copy(Path(folder))
        try:
            for mutant in sorted(tried, key=lambda each: (tests_of(each.path), each.path, each.begin)):
                survived = copy.survives(mutant, tuple(options.tests or tests_of(mutant.path)))
                done += 1
                said = mutant.shown((ROOT / mutant.path).read_text(encoding="utf-8"))
                print(f"{done}/{len(tried)} {'SURVIVED' if survived else 'noticed'} {said}", flush=True)
                survivors += [said] if survived else []
        except KeyboardInterrupt:
            print("Interrupted.")
    print(
        f"\n{done - len(survivors)} of {done} were noticed. These were not:"
        if survivors
        else f"All {done} were noticed."
    )
    print("\n".join(survivors))
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main())
