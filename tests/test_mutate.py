"""The mutants that tools/mutate.py tries."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tools import mutate

ROOMS = [(pattern, path) for pattern in mutate.ROOMS for path in mutate.ROOT.glob(pattern)]


@pytest.mark.parametrize("pattern", mutate.ROOMS)
def test_rooms_and_their_tests_are_there(pattern):
    """A file that moved is not silently left out."""
    assert list(mutate.ROOT.glob(pattern))
    assert all((mutate.ROOT / test).exists() for test in mutate.ROOMS[pattern])


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", [path for _, path in ROOMS], ids=lambda path: path.stem)
def test_a_mutant_is_another_program(path, every):
    """It compiles, and what it does is written in another way."""
    source = path.read_text(encoding="utf-8")
    before = ast.dump(ast.parse(source))
    for mutant in list(mutate.mutants(str(path), source))[::every]:
        assert ast.dump(ast.parse(mutant.applied(source))) != before


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("if a < 1: f(b)", {"if (a <= 1): f(b)", "if (not a < 1): f(b)", "if a < (2): f(b)", "if a < 1: pass"}),
        ("x = a and b", {"x = (a or b)", "x = (a)", "x = (b)"}),
        ("raise E(text)", {"pass"}),
        ("fd = os.open(path, A | B)", {"fd = os.open(path, (A))", "fd = os.open(path, (B))"}),
        ("def f(a: int | None) -> int | None:\n  return a", {"def f(a: int | None) -> int | None:\n  return None"}),
        ("y = [a for a in b if a not in c]", {"y = [a for a in b]", "y = [a for a in b if (a in c)]"}),
        ('z = f"{a + 1}" "…" if é else n', {"z = (f'{a + 1}…')", "z = (n)"}),
        (
            "q = a if a != b else not a",
            {"q = (a)", "q = (not a)", "q = a if (a == b) else not a", "q = a if a != b else (a)"},
        ),
    ],
)
def test_what_is_changed(source, changed):
    """Conditions, comparisons, calls, flags, filters, values; neither annotations nor texts."""
    assert {mutant.applied(source) for mutant in mutate.mutants("x.py", source)} == changed


@pytest.mark.slow
def test_what_no_test_notices_is_listed():
    """The mutants of a line, each with the tests that are named; nothing is changed but in a copy."""
    name = "ckptdoctor/wording.py"
    before = (mutate.ROOT / name).read_bytes()
    at = before.splitlines().index(b"    if number.bit_length() > PRINTABLE_BITS:") + 1
    command = [sys.executable, "tools/mutate.py", f"{name}:{at}", "--tests", "tests//test_wording.py"]
    done = subprocess.run(command, cwd=mutate.ROOT, capture_output=True, text=True)
    assert "2 of 2 mutants, --seed " in done.stdout, done.stderr
    assert done.stdout.endswith(
        f"1 of 2 were noticed. These were not:\n{name}:{at}\n    - if number.bit_length() > PRINTABLE_BITS:\n"
        "    + if (number.bit_length() >= PRINTABLE_BITS):\n"
    )
    assert done.returncode == 1
    assert (mutate.ROOT / name).read_bytes() == before
