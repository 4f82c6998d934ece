"""Takes a filter: a line to type in, what is wrong with it, and how much it lets through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import Input, Static

from ckptdoctor.errors import UsageError
from ckptdoctor.filters.language import parse
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.messages import FilterChanged

_PAUSE = 0.08  # seconds without a key before the filter is applied
_SIGNS = ("slash", "question_mark", "colon", "asterisk")  # keys that are signs without being called so
HINT = "name, *.weight, dtype:bf16, shape:64x*, >1MB, finding:N401, is:tied, !not"


class FilterInput(Input):
    """A line to type in, which says so of every key that is a sign: what it takes, the footer does not offer."""

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Return whether the key would be typed."""
        return key in _SIGNS or super().check_consume_key(key, character)


class FilterBar(Horizontal):
    """Hidden until it is wanted, and again when it is left empty."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("escape", "clear", "show all", "Clear the filter and show everything", show=True),
        key("up", "again(-1)", "filter before", "The previous filter", display="↑"),
        key("down", "again(1)", "filter after", "The next filter, or into the results", display="↓"),
    ]

    def __init__(
        self,
        leave: Callable[[], object],
        id: str | None = None,
        check: Callable[[str], object] = parse,
        hint: str = HINT,
    ) -> None:
        """Make a bar that is not shown yet; ``leave`` gives the keys to what the filter narrows."""
        super().__init__(id=id)
        self._leave = leave
        self._check = check
        self._hint = hint
        self._timer: Timer | None = None
        self.text = ""
        self._typed: list[str] = []  # what was entered so far
        self._at = 0  # of these, the one that is in the line; behind the last there is the draft
        self._draft = ""  # what was being typed when one of these was put into the line

    def compose(self) -> Iterator[Static | Input]:
        """Yield a slash, the line, and what there is to say."""
        yield Static("/", id="slash")
        yield FilterInput(placeholder=self._hint, compact=True, id="filter-input")
        yield Static("", markup=False, id="filter-said")

    def open(self) -> None:
        """Show it, ready for typing."""
        self.display = True
        self._at = len(self._typed)
        self.screen.set_focus(self.query_one(Input))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Apply it once typing pauses."""
        event.stop()
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(_PAUSE, self._apply)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Apply the filter and go back to what it lets through."""
        event.stop()
        self._enter()

    def _enter(self) -> None:
        self._apply()
        self._remember()
        if not self.text:
            self.display = False
        self._leave()

    def action_clear(self) -> None:
        """Forget the filter and hide, and go back to the contents."""
        self.forget()
        self._leave()

    def action_again(self, by: int) -> None:
        """Put another filter that was typed into the line; behind the last is what is being typed, then the results."""
        line = self.query_one(Input)
        if self._at == len(self._typed):
            if by > 0:
                self._enter()
                return
            self._draft = line.value
        self._at = max(0, min(len(self._typed), self._at + by))
        line.value = self._typed[self._at] if self._at < len(self._typed) else self._draft
        line.action_end()

    def _remember(self) -> None:
        if self.text and self.text not in self._typed[-1:]:
            self._typed.append(self.text)
        self._at = len(self._typed)

    def forget(self) -> None:
        """Forget the filter and hide."""
        self._remember()
        self.query_one(Input).value = ""
        self._apply()
        self.display = False

    def say(self, text: str, *, wrong: bool = False) -> None:
        """Say how much is let through, or what is wrong."""
        said = self.query_one("#filter-said", Static)
        said.update(text)
        said.set_class(wrong, "-wrong")

    def _apply(self) -> None:
        text = self.query_one(Input).value.strip()
        if text == self.text:
            return
        try:
            self._check(text)
        except UsageError as error:
            self.say(error.message, wrong=True)
            return
        self.text = text
        self.post_message(FilterChanged(text))
