"""Numbers of float64 rounded once: to the nearest that a dtype has, ties to even."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def rounded(numbers: torch.Tensor, dtype: str) -> torch.Tensor:
    """The nearest numbers of ``dtype``.

    torch casts float64 to a half by way of float32, and so rounds twice. Here the float32 on the way has an odd last
    bit wherever it is not the number itself, which leaves the second rounding as it would be without it (S. Boldo and
    G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
    """
    import torch

    kind: torch.dtype = getattr(torch, dtype)
    if dtype in ("float64", "float32"):
        return numbers.to(kind)
    near = numbers.to(torch.float32)
    rest = numbers - near.double()
    even = near.view(torch.int32) & 1 == 0
    toward = torch.where(rest > 0, float("inf"), float("-inf")).to(torch.float32)
    return torch.where(even & (rest != 0) & ~rest.isnan(), torch.nextafter(near, toward), near).to(kind)
