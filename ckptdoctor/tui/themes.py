"""The two themes, dark and light, and which of all themes is used."""

from __future__ import annotations

import os

from textual.theme import BUILTIN_THEMES, Theme

from ckptdoctor.errors import UsageError
from ckptdoctor.wording import not_one_of

DARK_THEME = Theme(
    name="ckptdoctor-dark",
    primary="#5fb3d4",
    secondary="#5fb3d4",
    accent="#5fb3d4",
    foreground="#d4d7dc",
    background="#14171c",
    surface="#14171c",
    panel="#20252d",
    success="#7fbf7f",
    warning="#e0b050",
    error="#f58080",
    dark=True,
    variables={"border-blurred": "#3a424e", "block-cursor-text-style": "none"},
)
LIGHT_THEME = Theme(
    name="ckptdoctor-light",
    primary="#0a6389",
    secondary="#0a6389",
    accent="#0a6389",
    foreground="#24292f",
    background="#fcfcfa",
    surface="#fcfcfa",
    panel="#ecece8",
    success="#256a29",
    warning="#7a4f00",
    error="#b3261e",
    dark=False,
    variables={
        "border-blurred": "#c4c4bc",
        "block-cursor-text-style": "none",
        "foreground-muted": "#24292fb3",  # Textual's 60 % can be read on a dark background alone
    },
)


def preferred() -> str:
    """Return the theme for this terminal, as far as it says what its background is (COLORFGBG); dark otherwise."""
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT_THEME.name if background in ("7", "15") else DARK_THEME.name


def named(name: str | None) -> str:
    """Return what Textual calls a theme of ours, or any of its own; None is the one that is ``preferred``.

    Raises UsageError where there is none of that name.
    """
    return theme_named(name).name


def theme_named(name: str | None) -> Theme:
    """Return a theme by what ``--theme`` calls it. Raises UsageError where there is none of that name."""
    by_name = {"dark": DARK_THEME, "light": LIGHT_THEME, **BUILTIN_THEMES}
    own = {each.name: each for each in (DARK_THEME, LIGHT_THEME)}
    found = {**by_name, **own}.get(preferred() if name is None else name)
    if found is None:
        raise UsageError(not_one_of("--theme", str(name), list(by_name)))
    return found
