"""Text in cells of the terminal: some characters take two, some none."""

from __future__ import annotations

from rich.cells import cell_len, chop_cells, set_cell_size


def taken(text: str) -> int:
    """The cells that ``text`` takes: as ``cell_len``, which is slow for many different texts."""
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, width: int, *, right: bool = False) -> str:
    """``text`` in exactly ``width`` cells: filled with spaces, or cut with … where it is too long."""
    if width <= 0:
        return ""
    cells = taken(text)
    if cells > width:
        return set_cell_size(text, width - 1) + "…"
    return " " * (width - cells) + text if right else text + " " * (width - cells)


def fit_middle(text: str, width: int) -> str:
    """The same, with the middle left out: the end of a name tells most."""
    cells = taken(text)
    if cells <= width or width < 8:
        return fit(text, width)
    keep = (width - 1) * 2 // 3
    tail = text[-keep:]
    while cell_len(tail) > keep:
        tail = tail[1:]
    head = set_cell_size(text, width - 1 - cell_len(tail))
    if not text.startswith(head):  # a space stands for half a character
        head = head[:-1]
    return fit(f"{head}…{tail}", width)


def marked(name: str, mark: str, width: int) -> str:
    """A name with a mark right behind it, which stays where the name is cut."""
    room = width - len(mark)
    return fit(fit_middle(name, min(room, cell_len(name))) + mark, width)


def broken(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` cells, broken behind spaces and between the parts of names."""
    lines: list[str] = []
    width = max(width, 8)
    while taken(text) > width:
        piece = chop_cells(text, width)[0]
        at = max([piece.rfind(sign) + 1 for sign in " ,./_"])
        at = piece.rfind(" ") + 1 or at  # a word is only broken where it has no room on a line of its own
        at = at if at > width // 3 else len(piece)
        lines.append(text[:at].rstrip(" "))
        text = text[at:].lstrip(" ")
    return [*lines, text]
