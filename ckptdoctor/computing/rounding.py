"""Numbers of float64 rounded once: to the nearest that a dtype has, ties to even."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# the lower bits of a float32, without the highest of those that a half lacks: 0 wherever it lies between two halves
_LOWER = {"bfloat16": 0x7FFF, "float16": 0x0FFF}


def rounded(numbers: torch.Tensor, dtype: str) -> torch.Tensor:
    """The nearest numbers of ``dtype``.

    torch casts float64 to a half by way of float32, and so rounds twice, which is another number only where the first
    rounding ends half way between two halves. There the float32 gets an odd last bit, which leaves the second rounding
    as it would be without the first (S. Boldo and G. Melquiond, "Emulation of FMA and correctly rounded sums: proved
    algorithms using rounding to odd", 2008).
    """
    import torch

    kind: torch.dtype = getattr(torch, dtype)
    if dtype not in _LOWER:
        return numbers.to(kind)
    near = numbers.to(torch.float32)
    made = near.to(kind)
    between = ((near.view(torch.int32) & _LOWER[dtype]) == 0).view(-1).nonzero().view(-1)
    if between.numel():
        exact, first = numbers.reshape(-1)[between], near.view(-1)[between]
        rest = exact - first.double()
        toward = torch.where(rest > 0, float("inf"), float("-inf")).to(torch.float32)
        odd = torch.where((rest != 0) & ~rest.isnan(), torch.nextafter(first, toward), first)
        made.view(-1)[between] = odd.to(kind)
    return made
