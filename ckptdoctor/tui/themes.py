"""Two themes. Colour means something: red an error, yellow a warning, dim what matters less, one accent."""

from __future__ import annotations

import os

from textual.theme import Theme

DARK = Theme(
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
    error="#f07070",
    dark=True,
    variables={"border-blurred": "#3a424e", "footer-key-foreground": "#5fb3d4", "block-cursor-text-style": "none"},
)
LIGHT = Theme(
    name="ckptdoctor-light",
    primary="#0b6e99",
    secondary="#0b6e99",
    accent="#0b6e99",
    foreground="#24292f",
    background="#fcfcfa",
    surface="#fcfcfa",
    panel="#ecece8",
    success="#2f7d32",
    warning="#8a5a00",
    error="#b3261e",
    dark=False,
    variables={"border-blurred": "#c4c4bc", "footer-key-foreground": "#0b6e99", "block-cursor-text-style": "none"},
)


def preferred() -> str:
    """The theme for this terminal, as far as it says what its background is (COLORFGBG); dark otherwise."""
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT.name if background in ("7", "15") else DARK.name
