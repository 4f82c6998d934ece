"""README, documentation, help and changelog tell the truth, and say all of it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import ckptdoctor
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.main import COMMANDS, cli, run
from ckptdoctor.config import Config
from ckptdoctor.explaining import recognise
from ckptdoctor.formats import registry
from ckptdoctor.rendering import sarif
from ckptdoctor.rules import framework
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.wording import format_name
from tests.trainer.forks import Forked, fork_ranks
from tools import docs, readme
from tools.pages import commands, examples, links, manual, marking, messages, rules

DOCS = readme.ROOT / "docs"
TEXT = readme.README.read_text(encoding="utf-8")
PAGES = {page.relative_to(readme.ROOT).as_posix(): page.read_text(encoding="utf-8") for page in examples.PAGES}
OTHERS = {name: (readme.ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "CHANGELOG.md")}
RULES = {rule.code: rule for rule in all_rules()}
COMMAND_PAGES = {name: PAGES[f"docs/commands/{name}.md"] for name in COMMANDS}


def test_the_readme_is_short():
    """It fits into 200 lines, and has neither help texts nor a table of rules."""
    assert len(TEXT.splitlines()) <= 200
    assert "--help\nUsage:" not in TEXT and len(re.findall(r"\b[A-Z]\d{3}\b", TEXT)) < 20


def test_the_readme_names_every_command():
    """Each command has a line of its own."""
    assert {name for name in COMMANDS if not re.search(rf"^- `ckptdoctor {name}\b", TEXT, re.MULTILINE)} == set()


@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if "<!-- begin: " in text])
def test_generated_blocks_are_up_to_date(page):
    """Each marked block is what the code says; python tools/readme.py writes it anew."""
    for block, found in re.findall(r"<!-- begin: (\w+) -->\n(.*?)<!-- end: \1 -->", PAGES[page], re.DOTALL):
        assert found.strip("\n") == readme.BLOCKS[block]()


@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if any(e.runs for e in examples.examples(text))])
def test_examples_print_what_is_below_them(page, tmp_path):
    """Every command in a console block is run, none is refused, and each prints what the page shows."""
    examples.prepare(tmp_path)
    for example in examples.examples(PAGES[page]):
        if example.runs:
            outcome = examples.carry_out(example.command, tmp_path)
            assert outcome.status in (ExitStatus.CLEAN, ExitStatus.FINDINGS), f"{example.command}: {outcome.printed}"
            assert example.output in ("", outcome.printed)


def test_what_is_not_run_is_only_what_cannot_be():
    """Setting up, a terminal, and training are left out; every other command line in a console block is run."""
    left = [each.command for text in PAGES.values() for each in examples.examples(text) if not each.runs]
    other = r"python3 -m venv|ckptdoctor (browse|train|fix tour/|setup .*--install)"
    assert [line for line in left if not re.match(other, line)] == []


def option_names(command):
    """Every option that a command takes."""
    parameters = cli.get_command(click.Context(cli), command).params
    return {
        name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts) if name[0] == "-"
    } | {"--help"}


TYPED = re.compile(
    rf"(?<=\$\()ckptdoctor (?:{'|'.join(COMMANDS)})\b[^)\n]*|ckptdoctor (?:{'|'.join(COMMANDS)})\b[^`\n]*"
)
LINES = sorted({line for text in (*PAGES.values(), *OTHERS.values()) for line in TYPED.findall(text)})


@pytest.mark.parametrize("line", LINES)
def test_every_command_in_the_docs_parses(line):
    """Each command line of README and docs names a command, options and rule codes that exist."""
    _, command, *words = shlex.split(line.replace("&&", "").split("  ")[0])
    assert {word for word in words if word.startswith("--")} - {"--"} <= option_names(command)
    assert {code for word in words for code in re.findall(r"\b[A-Z]\d{3}\b", word) if "/" not in word} <= set(RULES)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page(command):
    """It is listed, has an example of its own, and its help with every option is on it."""
    page = commands.generated(command, COMMAND_PAGES[command])
    assert page.startswith(f"# ckptdoctor {command}\n")
    assert f"\n{command} <{command}>\n" in PAGES["docs/commands/index.md"]
    assert any(each.command.startswith(f"ckptdoctor {command} ") for each in examples.examples(COMMAND_PAGES[command]))
    assert {name for name in option_names(command) if name not in page} == set()


def kept(folder):
    """The pages of a kind as they are in the tree, by their names."""
    return {page.stem: page.read_text(encoding="utf-8") for page in readme.REFERENCE[folder].glob("*.md")}


@pytest.fixture(scope="module")
def rule_pages():
    """The pages of rules by their names."""
    return kept("rules")


PRINTED = re.compile(r"## Output of check\n\n```console\n.*?^```\n\n", re.DOTALL | re.MULTILINE)


def test_the_reference_is_up_to_date():
    """Each page of a rule and of a message is made of what the code says; python tools/readme.py writes it anew."""
    pages = [page for folder in readme.REFERENCE.values() for page in folder.glob("*.md")]
    found = {page: PRINTED.sub("", page.read_text(encoding="utf-8")) for page in pages}
    assert found == readme.reference(samples=False)


@pytest.mark.slow
def test_the_reference_shows_what_check_prints():
    """Below the text of a rule is what check prints of the sample that shows it."""
    found = {code: PRINTED.findall(text) for code, text in kept("rules").items()}
    made = dict(rules.samples())
    assert {code: each for code, each in found.items() if each} == {
        code: [f"## Output of check\n\n{block}\n\n"] for code, block in made.items()
    }


def test_every_rule_has_a_page(rule_pages):
    """Each has one, with what every rule says of itself, and is in the table."""
    assert set(rule_pages) == {"index", *RULES}
    for code, rule in RULES.items():
        assert rule_pages[code].startswith(f"# {code} {rule.name}\n")
        assert "\n## Symptoms\n" in rule_pages[code] and "\n## Repair\n" in rule_pages[code]
        assert f"| [{code}]({code}.md) | `{rule.name}` | {rule.severity.value} |" in rule_pages["index"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("N401", 'Missing key(s) in state_dict: "conv1.weight", "bn1.weight", …'),
        (
            "P201",
            "WeightsUnpickler error: Unsupported global: GLOBAL argparse.Namespace was not an allowed global by "
            "default.",
        ),
        # broken over two lines in the docstring
        (
            "D602",
            "Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1. Please use "
            "torch.load with map_location to map your storages to an existing device.",
        ),
        ("F012", 'invalid hash value (expected "f37072fd", got "…")'),
    ],
)
def test_a_message_is_a_heading_of_its_rule(code, message, rule_pages):
    """What people paste into a search engine is a heading, in full and on one line."""
    assert f"\n### {marking.span(message)}\n" in rule_pages[code]


def test_what_is_no_message_is_no_heading(rule_pages):
    """Where a rule says that nothing is to be seen, that is a sentence."""
    assert "\n### " not in rule_pages["F009"].split("## Detection")[0]
    assert "Nothing: training or inference just gets worse, or NaN." in rule_pages["F009"]


LISTED = ("Missing key(s) in state_dict", "Unexpected key(s) in state_dict", "size mismatch for")


def test_every_message_has_a_page():
    """Each that explain knows has one of its own, with its words as the title and what it means."""
    made = [name for name, _ in messages.pages()]
    assert len(made) == len(set(made))
    pages = kept("messages")
    index = pages.pop("index")
    for words in {message.says[0] for message in recognise.messages()} | set(LISTED):
        name = messages.name_of(words)
        assert pages[name].startswith(f"# {marking.span(messages.shown(words))}\n")
        assert f"- [{marking.span(messages.shown(words))}]({name}.md)" in index
    assert not [name for name, text in pages.items() if re.search(r"\{\w+\}", text.split("```")[0])]


def test_a_page_of_a_message_shows_where_it_was_seen():
    """Who printed it, the text as it was met, what it means in it, and the rule."""
    page = kept("messages")["cannot-instantiate-posixpath-on-your-system"]
    assert "NotImplementedError: cannot instantiate 'PosixPath' on your system" in page
    assert "[P203 path-object](../rules/P203.md)" in page and "ckptdoctor" in page.split("## Solution")[1]


def test_the_manual_page_is_up_to_date():
    """It is what the help of the commands says, python tools/readme.py writes it, and the wheel has it for man."""
    page = manual.PAGE.read_text(encoding="utf-8")
    assert page == manual.page()
    assert all(f".SS ckptdoctor {name} " in page for name in COMMANDS)
    assert page.isascii() and not [line for line in page.splitlines() if line.startswith("'")]
    project = (readme.ROOT / "pyproject.toml").read_text()
    assert f'"docs/{manual.PAGE.name}" = "share/man/man1/ckptdoctor.1"' in project


def test_every_format_is_documented():
    """What reports call each format is on the page of formats."""
    names = {format_name(module.NAME) for module in (*registry.built_in(), *registry.folder_formats())}
    assert {name for name in names if f"| {name} |" not in PAGES["docs/formats.md"]} == set()


def test_every_exit_status_is_documented():
    """Each number is on the page of commands."""
    assert {status for status in ExitStatus if f"- **{status.value}** " not in PAGES["docs/commands/index.md"]} == set()


def test_every_setting_is_documented():
    """Each key of the configuration is on its page, and so is each extra that people install."""
    page = PAGES["docs/configuration.md"]
    assert {each.name for each in fields(Config) if each.compare and each.name.replace("_", "-") not in page} == set()
    project = (readme.ROOT / "pyproject.toml").read_text()
    extras = re.findall(
        r"^(\w+) = \[", project.split("[project.optional-dependencies]")[1].split("[project.scripts]")[0], re.M
    )
    installed = set(extras) - {"test", "slow", "docs", "oracles"}
    assert {name for name in installed if f"`ckptdoctor[{name}]`" not in page} == set()


def test_set_up_commands_are_one_line_each():
    """There are two set-up commands, each complete in itself: it makes the environment it needs."""
    lines = re.findall(r"^\$ (python3 -m venv .*)$", TEXT, re.MULTILINE)
    assert len(lines) == 2
    assert all(re.search(r"/pip install (--no-compile )?-c constraints\.txt ", line) for line in lines)


def test_python_examples_are_true():
    """The Python examples use names and arguments that the package has, and every function has its place."""
    import inspect

    page = PAGES["docs/python.md"]
    block, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)  # the others are about scripts and tests
    calls = re.findall(r"ckptdoctor\.(\w+)\((.*?)\)", block)
    assert {name for name, _ in calls} == {"open", "check", "fix", "load", "load_state_dict"}
    for name, arguments in calls:
        keywords = set(re.findall(r"(\w+)=", arguments))
        assert keywords <= set(inspect.signature(getattr(ckptdoctor, name)).parameters)
    functions = {name for name in ckptdoctor.__all__ if inspect.isfunction(getattr(ckptdoctor, name))}
    assert {name for name in functions if not re.search(rf"[`.]{name}\b", page)} == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_eighty_columns(command):
    """The help of each command says what it does and fits a terminal of 80 columns."""
    result = CliRunner().invoke(cli, [command, "--help"], terminal_width=80)
    assert result.exit_code == 0
    assert all(len(line) <= 80 for line in result.output.split("\n"))


def test_hook_and_configuration_are_documented():
    """The pre-commit hook of the docs is one that the project offers."""
    hooks = (readme.ROOT / ".pre-commit-hooks.yaml").read_text()
    assert "id: ckptdoctor-check" in hooks and "id: ckptdoctor-check" in PAGES["docs/configuration.md"]


def test_the_project_has_one_address():
    """Reports, pages of rules, the metadata of the package and the hook of the docs name the same one."""
    (documented,) = re.findall(r'^Documentation = "(.*?)#', (readme.ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    (hooked,) = re.findall(r"- repo: (\S+)", PAGES["docs/configuration.md"])
    assert documented == hooked == sarif.HOME
    assert f"{sarif.HOME}/blob/main/docs/rules" == framework.PAGES
    assert framework.PAGES.endswith(readme.REFERENCE["rules"].relative_to(readme.ROOT).as_posix())


LINKS = re.compile(r"(?<!`)\]\(([^()\s]+)\)")


@pytest.mark.parametrize("page", [*PAGES, *OTHERS])
def test_links_of_a_page_lead_somewhere(page):
    """Every page, picture and heading that is linked to is there."""
    for link in LINKS.findall({**PAGES, **OTHERS}[page]):
        if "://" in link:
            continue
        name, _, place = link.partition("#")
        target = Path(os.path.normpath(readme.ROOT / page / ".." / name)) if name else readme.ROOT / page
        assert target.is_file(), f"{page} links to {link}"
        if place:
            assert place in {marking.slug(each) for each in re.findall(r"^#+ (.*)", target.read_text(), re.MULTILINE)}


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    """Of a built site: a page and a heading that are not there, and what would be loaded from the network."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "index.html").write_text("<h1 id=top>x</h1><a href='../'>up</a>")
    (tmp_path / "index.html").write_text(
        "<a href='sub/#top'>a</a><a href='sub/#gone'>b</a><a href='gone/'>c</a><a href='https://pytorch.org'>d</a>"
        "<script src='https://cdn.example/x.js'></script>"
    )
    assert list(links.mistakes(tmp_path)) == [
        "index.html loads https://cdn.example/x.js from the network",
        "index.html links to sub/#gone, which is not there",
        "index.html links to gone/, which is not there",
    ]


def test_the_site_has_every_page(tmp_path):
    """What the generator reads: the pages that were written, and one for each command, rule and message."""
    docs.assemble(tmp_path / "source")
    found = {path.relative_to(tmp_path / "source").as_posix() for path in (tmp_path / "source").rglob("*.md")}
    assert {name.removeprefix("docs/") for name in PAGES if name.startswith("docs/")} <= found
    assert {f"rules/{code}.md" for code in RULES} <= found
    assert {f"messages/{messages.name_of(message.says[0])}.md" for message in recognise.messages()} <= found
    assert "ckptdoctor check [OPTIONS] PATH..." in (tmp_path / "source/commands/check.md").read_text()


def typed(folder, *words):
    """What a command says, typed into a shell."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def forked(folder, *words):
    """The same in a process that need not import torch, with ranks that need not either."""
    process = Forked(_command, words[1:], cwd=folder)
    said, complaint = process.communicate(timeout=60)
    return subprocess.CompletedProcess(words, process.returncode, said, complaint)


def _command(words):
    fork_ranks()
    return run(list(words))


@pytest.mark.parametrize(
    ("network", "first_key", "entered"),
    [
        # the smallest network instead of that of the docs
        ("foonet", "linears.0.weight", forked),
        pytest.param("lenet", "features.0.weight", typed, marks=pytest.mark.slow),
    ],
)
def test_the_two_minute_tour_goes_as_it_says(network, first_key, entered, tmp_path):
    """Its commands, typed one after another: train, a check that finds both diseases, one repair, and it loads."""
    import torch

    first, second = re.findall(r"^\$ (ckptdoctor (?:train|fix) .*tour.*)$", PAGES["docs/tour.md"], re.MULTILINE)
    train, examine = first.replace(" lenet ", f" {network} ").split(" && ")
    assert entered(tmp_path, *shlex.split(train)).returncode == 0
    said = entered(tmp_path, *shlex.split(examine))
    assert said.returncode == 1
    assert "N401" in said.stdout and "D601" in said.stdout
    assert entered(tmp_path, *shlex.split(second)).returncode == 0
    keys = torch.load(tmp_path / "tour/epoch-0002/wrapped.fixed.pt", weights_only=True)
    assert next(iter(keys)) == first_key
