"""Writes what README and docs show of the program: ``python tools/readme.py``; with ``--check`` only compares.

The output of every console example comes from running it, the marked blocks from the code, and each page in docs/rules
and docs/messages from the rule or the message that it is about. The manual page is made of the help of the commands.
"""

from __future__ import annotations

import inspect
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
# what this tree says is written down, and not what may be installed: so the path comes before the imports
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from ckptdoctor.cli.exit_status import ExitStatus  # noqa: E402
from ckptdoctor.cli.main import cli  # noqa: E402
from ckptdoctor.formats import registry  # noqa: E402
from ckptdoctor.rules.registry import find_rule  # noqa: E402
from ckptdoctor.runs.validity import FAULTS  # noqa: E402
from ckptdoctor.stores.schema import SCHEMA  # noqa: E402
from ckptdoctor.wording import format_name  # noqa: E402
from tools.pages import examples, manual, messages, rules  # noqa: E402

README = ROOT / "README.md"
REFERENCE = {"rules": ROOT / "docs" / "rules", "messages": ROOT / "docs" / "messages"}

_BLOCK = re.compile(r"(<!-- begin: (\w+) -->\n).*?(<!-- end: \2 -->)", re.DOTALL)


def statuses() -> str:
    """The exit statuses with their meanings, from the docstrings of ``ExitStatus``."""
    source = inspect.getsource(ExitStatus)
    meanings = re.findall(r'= (\d+)\n    """(.*?)"""', source, re.DOTALL)
    assert len(meanings) == len(ExitStatus)
    return "\n".join(f"- **{number}** {' '.join(text.split())}".replace("``", "`") for number, text in meanings)


def formats() -> str:
    """What reports call the formats, and what each of them is: the first sentence of its module."""
    rows = []
    for module in (*registry.built_in(), *registry.folder_formats()):
        sentence = " ".join((inspect.getdoc(module) or "").split("\n")[0].split()).replace("``", "`")
        rows.append(f"| {format_name(module.NAME)} | {sentence} |")
    return "\n".join(["| in reports | what it is |", "|---|---|", *rows])


def commands() -> str:
    """Every command with the first sentence of its help, linked to its page."""
    context = click.Context(cli)
    lines = []
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        said = inspect.cleandoc((command and command.help) or "").split("\n\n")[0]
        lines.append(f"- [`{name}`]({name}.md): {' '.join(said.split())}")
    return "\n".join(lines)


def faults() -> str:
    """The rules that make a checkpoint of a run invalid, with the level that it does not reach then."""
    rows = []
    for fault in FAULTS:
        rule = find_rule(fault.code)
        assert rule is not None
        rows.append(f"| {fault.level.value} | [{fault.code}](rules/{fault.code}.md) {rule.name} | {fault.why} |")
    return "\n".join(["| level | rule | why |", "|---|---|---|", *rows])


def tables() -> str:
    """The tables and views of an inventory, as they are made."""
    return f"```sql\n{SCHEMA.strip()}\n```"


BLOCKS: dict[str, Callable[[], str]] = {
    "statuses": statuses,
    "formats": formats,
    "commands": commands,
    "faults": faults,
    "tables": tables,
}


def generated(text: str) -> str:
    """A page with every marked block made anew, and every example run anew."""
    blocks = _BLOCK.sub(lambda match: f"{match[1]}\n{BLOCKS[match[2]]()}\n\n{match[3]}", text)
    if not any(each.runs for each in examples.examples(blocks)):
        return blocks
    with tempfile.TemporaryDirectory() as folder:
        examples.prepare(Path(folder))
        return examples.rerun(blocks, Path(folder))


def reference(samples: bool = True) -> dict[Path, str]:
    """Every page of the reference: of each rule and each message.

    Without ``samples`` the pages of rules do not show what check prints of a file, which takes longest to find out.
    """
    about = rules.pages(messages.leading(), dict(rules.samples()) if samples else {})
    made = {"rules": about, "messages": messages.pages()}
    return {REFERENCE[kind] / f"{name}.md": text for kind, pages in made.items() for name, text in pages}


def main() -> None:
    """Write the pages, or with ``--check`` say which of them are not what would be written."""
    wanted = {page: generated(page.read_text(encoding="utf-8")) for page in examples.PAGES} | reference()
    wanted[manual.PAGE] = manual.page()
    kept = {page for folder in REFERENCE.values() for page in folder.glob("*.md")}
    stale = [page for page, text in wanted.items() if not page.exists() or page.read_text(encoding="utf-8") != text]
    stale += sorted(kept - wanted.keys())
    if "--check" in sys.argv[1:]:
        if stale:
            names = ", ".join([page.relative_to(ROOT).as_posix() for page in stale])
            sys.exit(f"not what the program prints: {names}. Run python tools/readme.py")
        return
    for page in stale:
        if page not in wanted:
            page.unlink()
            continue
        page.parent.mkdir(exist_ok=True)
        page.write_text(wanted[page], encoding="utf-8")


if __name__ == "__main__":
    main()
