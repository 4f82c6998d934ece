"""Draws the screens, one a file, and says from which size on one is of which class, which app.tcss lays out."""

from __future__ import annotations

WIDTHS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]
HEIGHTS = [(0, "-low"), (30, "-tall")]
STACKED = [(0, "-tiny"), (16, "-low"), (30, "-tall")]  # of a screen with panes above each other
CROWDED = [(0, "-tiny"), (20, "-low"), (30, "-tall")]  # of one that has lines of its own above and below them
