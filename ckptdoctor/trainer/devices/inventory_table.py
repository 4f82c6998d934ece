"""The table of ``--devices`` for people: what this machine can train on, and why not on the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.trainer.devices.inventory import DeviceRow, rows

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_GIB = 2**30


def table() -> Table:
    """The devices of this machine; fits 80 columns, and is plain text where there is no terminal."""
    # rich is wanted for this one table, and every rank of a run would pay for it
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, pad_edge=False, leading=1)
    shown.add_column("device", no_wrap=True)
    shown.add_column("what it is", max_width=28)
    shown.add_column("what runs on it")
    for row in rows():
        shown.add_row(*_cells(row))
    return shown


def _cells(row: DeviceRow) -> list[Text]:
    """The cells as Text, not as str: a name with brackets in it would be taken for markup."""
    from rich.text import Text

    if row.missing is not None:
        return [Text(cell, style="dim") for cell in (row.label, "not here", row.missing)]
    physical = "" if row.physical is None else f"\nGPU {row.physical[:12]}"
    return [
        Text(row.label + physical, style="bold"),
        Text(f"{row.name}\n{_memory(row)}"),
        Text(f"{row.good_for}\n{row.runs}"),
    ]


def _memory(row: DeviceRow) -> str:
    if row.total is None:
        return "memory not known"
    total = f"{row.total / _GIB:.1f} GiB"
    return total if row.free is None else f"{row.free / _GIB:.1f} of {total} free"
