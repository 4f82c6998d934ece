"""How torch words its refusal to work in place on tensors of two shapes."""

from __future__ import annotations

from itertools import zip_longest

from ckptdoctor.rules import wording

Shape = tuple[int, ...]


def refusal(output: Shape, other: Shape) -> str | None:
    """What ``output.add_(other)`` says; None where it works (at::infer_size, TensorIteratorBase::compute_shape)."""
    rank = max(len(output), len(other))
    together = []
    for back, (one, two) in enumerate(zip_longest(reversed(output), reversed(other), fillvalue=1), 1):
        if one != two and 1 not in (one, two):
            text = f"The size of tensor a ({one}) must match the size of tensor b ({two})"
            return f"{text} at non-singleton dimension {rank - back}"
        together.append(two if one == 1 else one)
    broadcast = tuple(reversed(together))
    if broadcast == output:
        return None
    shapes = f"{wording.shape(output)} doesn't match the broadcast shape {wording.shape(broadcast)}"
    return f"output with shape {shapes}"
