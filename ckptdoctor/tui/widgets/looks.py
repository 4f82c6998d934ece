"""Gives pieces of text their styles by name: colours of the theme, over what is behind the widget.

Textual has component classes for that, and matches each of them with every rule of all style sheets again whenever a
widget gets or loses the keys: with eleven of them in each pane, that was a large part of what a change of focus took.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.style import Style
from textual.color import Color
from textual.widget import Widget

LookOf = Callable[[str], Style]


@dataclass(frozen=True, slots=True)
class _Ink:
    """A colour of the theme, by the name that it has in style sheets; of ``opacity`` 1 nothing shows through."""

    colour: str = "foreground"
    opacity: float = 1.0
    bold: bool = False
    behind: bool = False  # what is behind the text has this colour, and not the text


LOOKS = {
    "plain": _Ink(),
    "level": _Ink(bold=True),
    "dim": _Ink("foreground-muted"),
    "soft": _Ink(opacity=0.8),  # what is dim elsewhere, and could not be read on the line with the cursor
    "accent": _Ink("accent"),
    "name": _Ink("accent", bold=True),
    "error": _Ink("error", bold=True),
    "warning": _Ink("warning"),
    "alarm": _Ink("warning", bold=True),
    "info": _Ink(opacity=0.7),
    "success": _Ink("success"),
    "cursor": _Ink("accent", 0.22, behind=True),
    "cursor-blurred": _Ink("panel", behind=True),
}


class Looks(Widget):
    """Mixed into widgets that draw text in several colours."""

    _looks: dict[str, Style]
    _ground: tuple[str, Color] | None = None  # the theme, and what is behind the widget
    _has_looked = False  # whether that has been looked at since styles were updated last

    def look(self, name: str) -> Style:
        """Return the style of a piece of text, by a name in ``LOOKS``."""
        self.keep_looks()
        if name not in self._looks:
            self._looks[name] = self._mixed(LOOKS[name])
        return self._looks[name]

    def keep_looks(self) -> None:
        """Forget what was made with other colours, if there are others now."""
        if self._has_looked:
            return
        ground = self.app.theme, self.background_colors[1]
        if ground != self._ground:
            self._ground = ground
            self.forget_looks()
        self._has_looked = True

    def forget_looks(self) -> None:
        """Colours are others now. Widgets that keep more than styles forget that, too."""
        self._looks = {}

    def notify_style_update(self) -> None:
        """Look again whether colours are others, when the next one is asked for: another focus has the same."""
        self._has_looked = False
        super().notify_style_update()

    def _mixed(self, ink: _Ink) -> Style:
        ground = self.background_colors[1]
        colour = _parsed(self.app.theme_variables[ink.colour]).multiply_alpha(ink.opacity)
        if ink.behind:
            return Style(bgcolor=(ground + colour).rich_color)
        return Style(bold=ink.bold or None, color=(ground + colour).rich_color, bgcolor=ground.rich_color)


def _parsed(said: str) -> Color:
    """Return a colour as style sheets may say it: “ansi_default 50%” as well as “#5fb3d4”."""
    name, _, opacity = said.partition(" ")
    colour = Color.parse(name)
    return colour.multiply_alpha(float(opacity.rstrip("%")) / 100) if opacity.endswith("%") else colour
