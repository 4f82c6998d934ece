"""As much of a terminal as rich needs: enough to see what a person would see."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|\r|\n|[^\x00-\x1f\x7f]+")


class Emulator:
    """A screen of fixed size with everything that has scrolled out of it. Refuses what it does not understand."""

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.lines = [""]
        self.row = self.column = 0
        self.cursor_visible = True
        self.styles = set()

    def feed(self, text):
        """Obey the characters of ``text``."""
        at = 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            assert token, f"not understood: {text[at : at + 10]!r}"
            self._obey(token)
            at = token.end()

    @property
    def scrollback(self):
        """Everything, from the first line on."""
        return "\n".join(line.rstrip() for line in self.lines).rstrip("\n")

    @property
    def top(self):
        """The first line that can still be seen."""
        return max(0, len(self.lines) - self.height)

    @property
    def screen(self):
        """What can be seen, as text."""
        return "\n".join(line.rstrip() for line in self.lines[self.top :]).rstrip("\n")

    def _obey(self, token):
        char = token[0]
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self._down()
        elif token[3]:
            self._control(token[1], token[2], token[3])
        else:
            self._put(char)

    def _down(self):
        self.row += 1
        self.column = 0  # the line discipline of a terminal makes \n return as well
        if self.row == len(self.lines):
            self.lines.append("")

    def _put(self, text):
        while text:
            if self.column == self.width:
                self._down()
            part, text = text[: self.width - self.column], text[self.width - self.column :]
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + part + line[self.column + len(part) :]
            self.column += len(part)

    def _control(self, private, number, letter):
        if letter == "m":
            self.styles.add(number)
        elif letter == "A":
            self.row = max(self.top, self.row - int(number or 1))
        elif (letter, number) == ("K", "2"):
            self.lines[self.row] = ""
        elif private and number == "25" and letter in "hl":
            self.cursor_visible = letter == "h"
        else:
            raise AssertionError(f"not understood: ESC [ {private}{number}{letter}")
