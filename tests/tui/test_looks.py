"""The colours of pieces of text."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest
from textual.app import App
from textual.color import Color
from textual.css.stylesheet import Stylesheet
from textual.theme import BUILTIN_THEMES
from textual.widget import Widget

from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.themes import DARK_THEME, LIGHT_THEME
from ckptdoctor.tui.widgets.looks import LOOKS, Looks
from ckptdoctor.tui.widgets.tree_view import TreeView
from tests.tui import press, settled
from tests.tui.pairs import save_pair

# as a style sheet says it
SHEET = {
    "plain": "color: $foreground;",
    "level": "color: $foreground; text-style: bold;",
    "dim": "color: $foreground-muted;",
    "soft": "color: $foreground 80%;",
    "accent": "color: $accent;",
    "name": "color: $accent; text-style: bold;",
    "error": "color: $error; text-style: bold;",
    "warning": "color: $warning;",
    "alarm": "color: $warning; text-style: bold;",
    "info": "color: $foreground 70%;",
    "success": "color: $success;",
    "cursor": "background: $accent 22%;",
    "cursor-blurred": "background: $panel;",
}


class Sample(Looks):
    """A widget whose looks are in the style sheet as well."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"look--{name}" for name in SHEET}


class SampleApp(App[None]):
    """On a panel that lets the screen shine through."""

    CSS = "Sample { background: $panel 60%; }" + "".join(
        [f"Sample > .look--{name} {{ {rule} }}" for name, rule in SHEET.items()]
    )

    def compose(self):
        yield Sample()


def test_a_browser_begins_in_its_theme_without_reading_style_sheets_again(library, monkeypatch):
    """They are read again for another theme."""
    reparse, times = Stylesheet.reparse, []

    def counted(self):
        times.append(self)
        reparse(self)

    async def run():
        app = BrowserApp("resnet.pt", theme=LIGHT_THEME.name)
        async with app.run_test() as pilot:
            await settled(pilot)
            assert (len(times), app.screen.styles.background) == (0, Color.parse(LIGHT_THEME.background))
            app.theme = DARK_THEME.name
            await settled(pilot)
            assert (len(times), app.screen.styles.background) == (1, Color.parse(DARK_THEME.background))

    monkeypatch.setattr(Stylesheet, "reparse", counted)
    asyncio.run(run())


@pytest.mark.parametrize("theme", [DARK_THEME, LIGHT_THEME, *BUILTIN_THEMES.values()], ids=lambda theme: theme.name)
def test_looks_are_what_a_style_sheet_makes_of_them(theme):
    """In each theme, ours and Textual's."""

    async def run():
        app = SampleApp()
        app.register_theme(theme)
        app.theme = theme.name
        async with app.run_test():
            sample = app.query_one(Sample)
            assert SHEET.keys() == LOOKS.keys()
            for name in SHEET:
                ours, sheet = sample.look(name), sample.get_component_rich_style(f"look--{name}")
                assert ours.bgcolor == sheet.bgcolor, name
                if not LOOKS[name].behind:
                    assert (ours.color, bool(ours.bold)) == (sheet.color, bool(sheet.bold)), name

    asyncio.run(run())


def test_another_theme_draws_everything_again_and_another_focus_only_the_cursor():
    """What has been drawn is kept as long as it has the right colours."""

    async def run():
        app = BrowserApp("resnet.pt", theme=DARK_THEME.name)
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(pilot)
            tree, drawn = app.screen.query_one(TreeView), []
            draw = tree.draw
            tree.draw = lambda number, width: drawn.append(number) or draw(number, width)
            before = _colours(tree)
            await pilot.press("tab")
            await settled(pilot)
            assert not drawn
            app.theme = LIGHT_THEME.name
            await settled(pilot)
            assert drawn
            assert not before & _colours(tree)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "other", "keys"),
    [
        ("resnet.pt", None, ()),
        ("resnet.pt", None, ("n",)),
        ("resnet.pt", None, ("slash", "q", "q", "q")),
        ("a.pt", "b.pt", ("v", "o", "home")),
        ("cut.pt", None, ()),
    ],
    ids=["item", "finding", "how to filter", "comparison", "damaged"],
)
def test_texts_that_were_written_before_have_the_colours_of_another_theme(library, path, other, keys):
    """Nothing stays light on light until the cursor moves."""
    save_pair(library)

    async def run():
        app = BrowserApp(path, theme=DARK_THEME.name, other=other)
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(pilot)
            await press(pilot, *keys)
            dark = _shown(app)
            app.theme = LIGHT_THEME.name
            await settled(pilot)
            assert len(dark) > 2 and not dark & _shown(app)

    asyncio.run(run())


def _shown(app):
    """The colours of all that is written on the screen."""
    strips = app.screen._compositor.render_strips()
    return {style.color for strip in strips for text, style, _ in strip if style and style.color and text.strip()}


def _colours(widget: Widget):
    """The colours of the text and of what is behind it, apart from the line with the cursor."""
    strips = [widget.render_line(y) for y in range(1, 5)]
    return {each for strip in strips for _, style, _ in strip for each in (style.color, style.bgcolor)}
