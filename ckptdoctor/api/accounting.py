"""What ``verify(path, against=source)`` gives; apart, because it brings NumPy."""

from __future__ import annotations

from ckptdoctor.against.report import AgainstReport
from ckptdoctor.api.arguments import in_a_screen
from ckptdoctor.noun import noun


@noun
class Accounted(AgainstReport):
    """What ``verify`` gives of an export: its ``repr`` is what the command prints, cut to a screen."""

    def __str__(self) -> str:
        from ckptdoctor.rendering import against

        return against.rendered(self)

    __repr__ = in_a_screen
