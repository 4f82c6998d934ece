"""Builds the documentation: ``python tools/docs.py [FOLDER]`` writes the site to FOLDER, or to build/site.

It is made of the pages in docs/, with the help of each command added to its page; those of rules and messages are kept
up to date by ``tools/readme.py``. Any warning of the generator ends the build, and so does a link that leads nowhere.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# what this tree says is written down, and not what may be installed: so the path comes before the imports
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from tools.pages import commands, links  # noqa: E402

WRITTEN = ROOT / "docs"


def assemble(folder: Path) -> None:
    """Copy everything that the generator reads to ``folder``."""
    shutil.copytree(WRITTEN, folder)
    for name in commands.names():
        page = folder / "commands" / f"{name}.md"
        page.write_text(commands.generated(name, page.read_text(encoding="utf-8")), encoding="utf-8")


def build(site: Path) -> None:
    """The site in ``site``. Ends the process with the generator's words where anything is wrong."""
    site = site.resolve()
    source = site.with_name(f"{site.name}.source")
    for folder in (source, site):
        shutil.rmtree(folder, ignore_errors=True)
    assemble(source)
    line = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", "-j", "auto", "-b", "dirhtml"]
    ended = subprocess.run([*line, str(source), str(site)], check=False)
    wrong = list(links.mistakes(site))
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    if ended.returncode or wrong:
        sys.exit("the documentation has mistakes: see above")
    print(f"{len(list(site.rglob('*.html')))} pages in {site}")


if __name__ == "__main__":
    build(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build" / "site")
