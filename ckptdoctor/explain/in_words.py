"""What is said of an error of ``load_state_dict``: its keys, its line, and the rules that it may be about besides."""

from __future__ import annotations

from ckptdoctor.explain.load_error import LoadError
from ckptdoctor.explain.text import Text
from ckptdoctor.wording import and_so_on, plural

_SHOWN = 3
_QUOTED = 130  # characters of a warning


def also_of(code: str) -> tuple[str, ...]:
    """The rules that the same keys may mean, beside the one of this code."""
    return {
        "W301": ("W302",),
        "W304": ("W301",),
        "N401": ("N404", "N405", "N411"),
        "N402": ("N403",),
        "N409": ("N408", "N410"),
        "N411": ("N409", "N428"),
        "N423": ("N410", "N424", "N426"),
        "N424": ("N423",),
        "L906": ("L901", "L902", "L909"),
        "A702": ("R005",),
        "R005": ("A703",),
    }.get(code, ())


def some_keys(keys: list[str]) -> str:
    """How many keys, and the first of them."""
    return f"{plural(len(keys), 'key')} ({and_so_on(keys, _SHOWN)})"


def line_of(error: LoadError, text: Text) -> str:
    """The line of a warning, abridged."""
    line = " ".join(text.lines[text.line_at(error.offset)].split())
    return line if len(line) <= _QUOTED else f"{line[:_QUOTED]} …"


def words_of(error: LoadError) -> str:
    """The error in one line, in torch's words, abridged."""
    parts = [
        f"{name} key(s) in state_dict: {and_so_on(keys, _SHOWN)}"
        for name, keys in (("Missing", error.missing), ("Unexpected", error.unexpected))
        if keys
    ]
    parts += [f"size mismatch for {each.key}" for each in error.mismatched[:1] if not parts]
    model = f"Error(s) in loading state_dict for {error.model_class}: " if error.model_class else ""
    return model + "; ".join(parts)
