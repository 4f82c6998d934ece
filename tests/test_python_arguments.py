"""From Python: arguments of other kinds than the command line can give, and errors and results that travel."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from copy import copy, deepcopy
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from torch import nn

import ckptdoctor
from ckptdoctor.errors import UnreadableError, UsageError
from tests.commands import run_here


@pytest.fixture
def path(tmp_path):
    """The weights of a wrapped layer."""
    path = tmp_path / "m.pt"
    torch.save({f"module.{key}": value for key, value in nn.Linear(3, 2).state_dict().items()}, path)
    return path


def test_a_path_may_be_bytes(path, tmp_path):
    """As the functions of Python take them, also of a name that is not UTF-8."""
    odd = tmp_path / os.fsdecode(b"m\xff.pt")
    odd.write_bytes(path.read_bytes())
    for name in (os.fsencode(path), os.fsencode(odd)):
        assert list(ckptdoctor.load(name)) == list(ckptdoctor.open(name)) == ["module.weight", "module.bias"]
        assert ckptdoctor.check(name).errors and ckptdoctor.diff(name, path, values=True).same
    made = ckptdoctor.convert(os.fsencode(path), os.fsencode(tmp_path / "m.safetensors"))
    assert made.output == str(tmp_path / "m.safetensors")
    assert ckptdoctor.audit(os.fsencode(path), tmp_path / "store.db", jobs=1).examined == 1


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda path: ckptdoctor.check(path, root=3), "root= takes text, not int"),
        (lambda path: ckptdoctor.diff(path, path, root_b=b"x"), "root_b= takes text, not bytes"),
        (lambda path: ckptdoctor.diff(path, path, rtol="1"), "rtol= takes a number, not str"),
        (lambda path: ckptdoctor.fix(path, dtype=torch.float16), "dtype= takes text, not dtype"),
        (lambda path: ckptdoctor.fix(path, rename=[("a", "b")]), "expected text, or several texts, not tuple"),
        (lambda path: ckptdoctor.fix(path, drop=3), "expected text, or several texts, not int"),
        (lambda path: ckptdoctor.check(path, select=[3]), "expected text, or several texts, not int"),
        (lambda path: ckptdoctor.seal(path, parity=5), "parity= takes text, not int"),
        (lambda path: ckptdoctor.convert(path, "x", shard_size=[]), "shard_size= takes text or a number, not list"),
        (lambda path: ckptdoctor.explain(3), "error= takes text or an exception, not int"),
        (lambda path: ckptdoctor.watch(path, until="5"), "until= takes a number, not str"),
    ],
)
def test_an_argument_of_another_type_is_named(path, call, told):
    """At once, and not by what fails somewhere inside."""
    with pytest.raises(TypeError) as caught:
        call(path)
    assert str(caught.value) == told


@pytest.mark.parametrize(
    "call",
    [
        lambda path, out: ckptdoctor.convert(path, f"{out}/x.pt", to="safetensor"),
        lambda path, out: ckptdoctor.convert(path, out, shard_size=-1),
        lambda path, out: ckptdoctor.convert([], f"{out}/x.pt"),
        lambda path, out: ckptdoctor.merge(output=f"{out}/x.pt", part={"": path}),
        lambda path, out: ckptdoctor.merge(output=f"{out}/x.pt", part={0: path}),
        lambda path, out: ckptdoctor.fix(path, qkv_layout="kqv"),
        lambda path, out: ckptdoctor.fix(path, expert_layout="in"),
        lambda path, out: ckptdoctor.fix(path, orthogonal_map="caley"),
        lambda path, out: ckptdoctor.open(path, framework="jax"),
        lambda path, out: ckptdoctor.audit(path, f"{out}/x.db", deep="everything"),
        lambda path, out: ckptdoctor.audit(path, f"{out}/x.db", jobs=-1),
        lambda path, out: ckptdoctor.audit(path, f"{out}/x.db", jobs=1, limit_rate=-1),
        lambda path, out: ckptdoctor.audit(path, f"{out}/x.db", jobs=1, shard=(1, 2, 3)),
    ],
)
def test_a_value_that_the_command_refuses_is_refused(path, tmp_path, call):
    """It would be ignored otherwise, or do something else; and nothing is written."""
    (tmp_path / "out").mkdir()
    with pytest.raises(ckptdoctor.UsageError):
        call(path, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir()) and len(list(tmp_path.iterdir())) == 2


def test_one_rule_or_several(path):
    """A text is one code, not its letters."""
    assert [each.code for each in ckptdoctor.check(path, select="N401").findings] == ["N401"]
    assert not ckptdoctor.check(path, ignore="module-prefix").findings
    assert ckptdoctor.fix(path, select="N401", diff=True).steps


def test_an_exception_is_a_target_as_its_text_is(path):
    """What ``explain`` takes, ``check`` and ``fix`` take, too."""
    with pytest.raises(RuntimeError) as caught:
        nn.Linear(3, 2).load_state_dict(torch.load(path))
    for error in (caught.value, str(caught.value)):
        assert "N401" in {each.code for each in ckptdoctor.check(path, error=error).findings}
        assert ckptdoctor.fix(path, error=error, diff=True).steps


def test_what_is_not_text_is_not_a_key(path):
    """As with a dict."""
    for key in (0, None, b"module.bias", ("module.bias",)):
        with pytest.raises(KeyError):
            ckptdoctor.open(path)[key]


def test_a_checkpoint_keeps_its_framework(path):
    """Copied, and in another process."""
    opened = ckptdoctor.open(path, framework="np")
    for each in (copy(opened), deepcopy(opened), pickle.loads(pickle.dumps(opened))):
        assert isinstance(each["module.bias"], np.ndarray) and repr(each) == repr(opened)


def test_errors_travel_between_processes(path, tmp_path):
    """With their kind, their sentence and what they know."""
    path.write_bytes(path.read_bytes()[:500])
    for name in (tmp_path / "missing.pt", path):
        with ProcessPoolExecutor(1, get_context("spawn")) as pool, pytest.raises(ckptdoctor.CkptDoctorError) as there:
            pool.submit(ckptdoctor.load, name).result()
        with pytest.raises(ckptdoctor.CkptDoctorError) as here:
            ckptdoctor.load(name)
        assert type(there.value) is type(here.value) and str(there.value) == str(here.value)
        assert there.value.offset == here.value.offset
        assert getattr(there.value, "filename", None) == getattr(here.value, "filename", None)


def test_a_missing_package_is_told_in_the_words_of_python(path, tmp_path, monkeypatch):
    """As any other error is."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ckptdoctor.MissingPackageError, match=r"^export=") as caught:
        ckptdoctor.audit(path, tmp_path / "store.db", jobs=1, export="parquet")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value) == caught.value.message


NAMES = ("check", "open", "show", "diff", "fix", "seal", "verify", "rebuild", "latest", "audit", "watch", "prune")


@pytest.mark.parametrize("name", [*NAMES, "salvage", "convert", "graft", "report", "undo"])
def test_a_name_that_a_function_does_not_have_is_refused_as_python_does(path, name, monkeypatch):
    """A misspelled argument is named, with its function."""
    monkeypatch.chdir(path.parent)
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'nonsense'"):
        getattr(ckptdoctor, name)(path, nonsense=1)


@pytest.mark.parametrize("name", ["seal", "latest", "audit", "watch", "report", "verify", "fix", "open"])
def test_a_name_that_no_file_can_have_is_an_error_of_ours(name, tmp_path, monkeypatch):
    """As every path that cannot be opened; also one of several."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnreadableError, match="cannot be opened"):
        getattr(ckptdoctor, name)("a\0b")
    if name == "audit":
        with pytest.raises(UnreadableError, match="not a possible file name"):
            ckptdoctor.audit(["a\0b"])


def test_a_shard_that_is_no_pair_is_refused(path, tmp_path):
    """One number as well as three."""
    for shard in (3, (1, 2, 3), "12"):
        with pytest.raises(UsageError, match="shard= takes two numbers"):
            ckptdoctor.audit(path, tmp_path / "store.db", shard=shard)


def test_a_report_of_an_inventory_shows_its_stores(path, tmp_path):
    """The same page as that of the command; another checkpoint is refused."""
    ckptdoctor.audit(path, tmp_path / "store.db", jobs=1)
    page = ckptdoctor.report(tmp_path / "store.db", output=tmp_path / "x.html")
    with open(page, encoding="utf-8") as file:
        text = file.read()
    done = run_here("report", tmp_path / "store.db", "-o", "y.html", cwd=tmp_path)
    assert done.returncode == 0 and "stores of checkpoints" in text
    assert text == (tmp_path / "y.html").read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="takes no other checkpoint and no target"):
        ckptdoctor.report(tmp_path / "store.db", path, output=tmp_path / "z.html")
