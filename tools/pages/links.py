"""What a built site links to: every page, picture and place in a page is there, and nothing comes from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"script", "img", "iframe", "source", "video", "audio", "object"}
_LOADED_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "shortcut icon"}


class _Page(HTMLParser):
    """The names of places in a page, what it links to, and what a browser loads with it."""

    def __init__(self) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.linked: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take down one tag."""
        given = dict(attrs)
        if given.get("id"):
            self.places.add(str(given["id"]))
        address = given.get("href") or given.get("src") or given.get("data")
        if address and (tag in _LOADED or (tag == "link" and given.get("rel") in _LOADED_LINKS)):
            self.loaded.append(address)
        if address and (tag in _LOADED or tag in ("a", "link")):
            self.linked.append(address)


def mistakes(site: Path) -> Iterator[str]:
    """What is wrong with the links of all pages below ``site``, one sentence each."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        yield from (f"{name} loads {each} from the network" for each in page.loaded if urlsplit(each).netloc)
        for address in dict.fromkeys(page.linked):
            if not _leads(site, path, address, pages):
                yield f"{name} links to {address}, which is not there"


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _leads(site: Path, path: Path, address: str, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return True
    target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
    if target.is_dir():
        target /= "index.html"
    if not target.is_file() or not target.is_relative_to(site.resolve()):
        return False
    return not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].places
