"""What is on the screen can be read: dark and light."""

from __future__ import annotations

import pytest
from textual.command import CommandList
from textual.filter import DimFilter

from tests.tui import WIDE, walk
from tests.tui.pairs import save_pair

READABLE = 4.5  # WCAG 2.2, 1.4.3: of text, 4.5 to 1


def faint(app):
    """Texts whose colour is too near to that of their background, with the ratio of the two."""
    found = {}
    for strip in app.screen._compositor.render_strips():
        found |= faint_of(app, strip)
    return found


def faint_of(app, strip):
    """Those of one line."""
    found = {}
    for text, style, _ in strip.apply_filter(DimFilter(), app.screen.background_colors[1]):
        if style is not None and any(sign.isalnum() for sign in text):
            front, back = style.color.get_truecolor(), style.bgcolor.get_truecolor(foreground=False)
            front, back = (back, front) if style.reverse else (front, back)
            if ratio(front, back) < READABLE:
                found[text.strip()] = round(ratio(front, back), 1)
    return found


def faint_commands(app):
    """The same, of the list of commands alone: the screen below it is faint on purpose."""
    region = app.screen.query_one(CommandList).region
    found = {}
    for line, strip in enumerate(app.screen._compositor.render_strips()):
        if region.y <= line < region.bottom:
            found |= faint_of(app, strip.crop(region.x, region.right))
    return found


def ratio(one, other):
    """The contrast of two colours."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour):
    """How bright a colour is, 0 to 1."""
    parts = [part / 255 for part in colour]
    red, green, blue = [each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [pytest.param("ckptdoctor-dark", marks=pytest.mark.slow), "ckptdoctor-light"])
def test_everything_can_be_read(theme, library):
    """On every kind of screen, with the cursor on it and without; what lies behind a dialogue is faint on purpose."""
    save_pair(library)
    stages = [("down", "down", "down"), ("shift+tab",), ("tab", "t"), ("e",), ("f", "down")]
    found = walk("resnet.pt", *stages, look=faint, theme=theme)
    found += walk("resnet.pt", ("t", "enter"), look=faint, theme=theme, size=WIDE)
    found += walk("a.pt", ("v", "o", "home"), ("c",), look=faint, theme=theme, other="b.pt")
    found += walk("cut.pt", (), look=faint, theme=theme)
    found += walk(".", (), look=faint, theme=theme)
    found += walk("resnet.pt", ("colon",), ("down",), ("text:f",), look=faint_commands, theme=theme)
    assert {text: told for each in found for text, told in each.items()} == {}
