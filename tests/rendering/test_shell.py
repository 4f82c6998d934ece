"""Commands are printed so that a shell takes them as they are."""

import json
import os
import re
import subprocess

import pytest

from ckptdoctor.edits import Fix, Safety
from ckptdoctor.rules.examples import T
from tests import builders
from tests.cli.files import printable, sick
from tests.commands import run_here

NAMES = [
    *("model.pt", "epoch=9 best.ckpt", "it's.pt", 'a"b$c`d.pt', "new\nline.pt", "\x1b[31m.pt", "büro.pt", "-o.pt"),
    *("::", "::error::x.pt", "##vso[task.complete]x.pt", "\\##[group]x.pt", "###[error]x.pt"),
    os.fsdecode(b"caf\xe9.pt"),
]


def commands(folder, name, stdin=b""):
    """The commands that repair what is found in a file, from the report for programs."""
    result = run_here("check", "--format", "json", "--", name, cwd=folder, stdin=stdin)
    (file,) = json.loads(result.stdout)["files"]
    return {each["code"]: each["fix"]["command"] for each in file["findings"] if each["fix"] is not None}


def words(command):
    """What bash gives to ``ckptdoctor``, word for word."""
    script = f"ckptdoctor() {{ printf '%s\\0' \"$@\"; }}; {command}"
    return subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout.split(b"\0")[:-1]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_path_is_one_word_for_the_shell(tmp_path, name):
    """bash gives back the very path, byte for byte, and the word holds nothing that a terminal would act on."""
    sick(tmp_path).rename(tmp_path / name)
    command = commands(tmp_path, name)["N401"]
    assert command.isprintable()
    fix, path, option = words(command)
    given = f"./{name}" if name.startswith("-") else name
    assert (fix, path, option) == (b"fix", os.fsencode(given), b"--strip-module")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_build_service_finds_no_command_in_it(tmp_path, name):
    """The line of the log is the command as programs get it, and no service takes a part of it for its own."""
    sick(tmp_path).rename(tmp_path / name)
    output = run_here("check", "--", name, cwd=tmp_path).stdout
    assert printable(output) and commands(tmp_path, name)["N401"] in output.decode()
    assert not re.search(r"^\s*::|##vso\[|##\[", output.decode(), re.MULTILINE)


def test_a_fix_with_its_own_option(tmp_path):
    """An option of its own is all that a fix needs, safe or unsafe."""
    builders.save({"state_dict": {"fc.weight": T((2, 3))}, "epoch": 1}, tmp_path / "a b.pt")
    assert commands(tmp_path, "a b.pt")["W301"] == "ckptdoctor fix 'a b.pt' --root state_dict"


def test_an_unsafe_fix_chosen_by_code(tmp_path):
    """A fix chosen by its rule's code says that unsafe ones are meant too: that command names no reference."""
    builders.save({"fc.weight": T((2, 3))}, tmp_path / "m.safetensors", container="safetensors")
    with open(tmp_path / "m.safetensors", "ab") as file:
        file.write(b"more")
    command = commands(tmp_path, "m.safetensors")["F008"]
    assert command == "ckptdoctor fix m.safetensors --select F008 --unsafe-fixes"
    confirmed = Fix("drop", (), Safety.CONFIRMED, "--select N420")
    assert confirmed.options == ("--select N420", "--unsafe-fixes")


def test_standard_input_has_no_path_to_repair(tmp_path):
    """For standard input the command speaks of FILE, which the reader has to put in."""
    given = sick(tmp_path).read_bytes()
    assert commands(tmp_path, "-", given) == {"N401": "ckptdoctor fix FILE --strip-module"}
