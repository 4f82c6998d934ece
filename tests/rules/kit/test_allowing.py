"""The call that lets torch accept the classes of a file works as it is printed."""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import fractions
import json
import random
import re
import subprocess
import sys
import types
import uuid
from pathlib import Path

import pytest
import torch

from ckptdoctor.checkpoint import GlobalName
from ckptdoctor.examine.file import check
from ckptdoctor.facts.globals import Blocked, BlockedCause
from ckptdoctor.rules.kit.allowing import allowing
from ckptdoctor.rules.kit.blocked import trusting

_PARAMETER = torch.nn.Parameter(torch.zeros(2))
_SGD = torch.optim.SGD([_PARAMETER], lr=0.1)
_PRINTED = re.compile(r"(?:(?:import|from) [^:]*?; )*torch\.serialization\.add_safe_globals\(\[.*\]\)")
# what loads once its classes are allowed
LOADS = {
    "optimizer": torch.optim.Adam([_PARAMETER]),
    "scheduler": torch.optim.lr_scheduler.StepLR(_SGD, 3),
    "distribution": torch.distributions.Normal(0.0, 1.0),
    "ellipsis": ...,
    "not implemented": NotImplemented,
    "exception": ValueError("x"),
    "missing file": FileNotFoundError("x"),
    "empty deque": collections.deque(maxlen=3),
    "empty defaultdict": collections.defaultdict(list),
    "chain": collections.ChainMap({}),
    "user dict": collections.UserDict(a=1),
    "namespace": argparse.Namespace(a=1),
    "simple namespace": types.SimpleNamespace(a=1),
    "date": datetime.date(2020, 1, 1),
    "moment": datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc),
    "decimal": decimal.Decimal("1.5"),
    "fraction": fractions.Fraction(1, 2),
    "uuid": uuid.UUID(int=3),
    "random": random.Random(1),
    "range": range(3),
    "slice": slice(1),
    "frozenset": frozenset([1]),
    "class": int,
    "object": object(),
}
# what torch refuses all the same
STAYS = {"deque": collections.deque([1, 2]), "defaultdict": collections.defaultdict(int, {"a": 1})}
_LOAD = """
import json, sys, torch
for path, line in json.load(sys.stdin):
    torch.serialization.clear_safe_globals()
    try:
        exec(line, {"torch": torch})
        torch.load(path)
    except Exception as error:
        print(path, line, error)
"""


@pytest.mark.filterwarnings("ignore:Detected call of")
def test_torch_loads_each_file_after_what_is_printed_for_it(tmp_path: Path) -> None:
    """In an interpreter that has imported torch alone, every printed line makes the file of its finding load."""
    cases = []
    for title, value in LOADS.items():
        path = tmp_path / f"{title}.pt"
        torch.save({"x": value}, path)
        cases.append((str(path), _printed(path)))
    came = subprocess.run([sys.executable, "-c", _LOAD], input=json.dumps(cases), capture_output=True, text=True)
    assert (came.stdout, came.returncode) == ("", 0), came.stderr


@pytest.mark.parametrize("title", STAYS)
def test_what_torch_does_not_fill_has_no_such_line(tmp_path: Path, title: str) -> None:
    """Torch fills only lists and dicts themselves: to allow a class that has entries of its own is no help."""
    path = tmp_path / "a.pt"
    torch.save({"x": STAYS[title]}, path)
    (finding,) = [each for each in check(str(path)).findings if each.code == "P201"]
    assert "add_safe_globals" not in finding.advice
    assert f"Allowing collections.{title} does not help" in finding.advice
    with (
        torch.serialization.safe_globals([collections.deque, collections.defaultdict, int]),
        pytest.raises(Exception, match=r"^Weights only load failed|^$"),
    ):
        torch.load(path)


def test_a_class_of_the_script_is_allowed_by_its_name_in_the_file() -> None:
    """No import brings it: the reader has it, perhaps elsewhere, and the pair says what the file calls it."""
    own = _blocked("__main__", "Config")
    assert allowing([own]) == 'torch.serialization.add_safe_globals([(Config, "__main__.Config")])'
    assert trusting([own], "{}.").endswith("Define or import Config before that.")


def test_two_classes_of_one_name_are_told_apart() -> None:
    """Each gets a name of its own where it is imported."""
    assert allowing([_blocked("a.b", "Net"), _blocked("c", "Net")]) == (
        "from a.b import Net; from c import Net as c_Net; torch.serialization.add_safe_globals([Net, c_Net])"
    )


def test_a_name_that_is_not_one_is_not_printed_as_code() -> None:
    """A file may call a class anything; nothing that is to be pasted comes from that."""
    advice = trusting([_blocked("a", "B; import this")], "{}.")
    assert advice == "No code can name a.B; import this, so nothing makes torch accept it."


def _printed(path: Path) -> str:
    (finding,) = [each for each in check(str(path)).findings if each.code == "P201"]
    found = _PRINTED.search(finding.advice)
    return found[0] if found else f"raise LookupError({finding.advice!r})"


def _blocked(module: str, name: str) -> Blocked:
    return Blocked(f"{module}.{name}", GlobalName(module, name, "data.pkl", 0), BlockedCause.FOREIGN, ())
