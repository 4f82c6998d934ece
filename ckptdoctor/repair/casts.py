"""Chooses the tensors that ``--dtype`` casts, and measures what casting loses before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Source, StateDict, Storage, Tensor, progress, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME, cast_loses_values
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.edits import Cast, Edit, Fix, Safety
from ckptdoctor.edits.applied.compacting import Piece, kept_pieces
from ckptdoctor.edits.casts import FLOAT8, alike, can_be_cast, cast_in
from ckptdoctor.edits.elements import Converted, Elements, joined, nbytes, seen
from ckptdoctor.edits.elements import views as views_of
from ckptdoctor.edits.fix import Change
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.quantization import quantized_in
from ckptdoctor.findings import Finding
from ckptdoctor.formats.fresh.reading import Place, bytes_of
from ckptdoctor.noun import replace
from ckptdoctor.rules.framework import Rule
from ckptdoctor.wording import and_more

if TYPE_CHECKING:
    from ckptdoctor.casting.loss import Loss

LOSS = "cast-loss"
_LARGEST = {"float16": 65_504.0, "bfloat16": 3.389_531_4e38, "float32": 3.402_823_5e38}
BY_VALUES = ("T554",)  # rules whose fixes only the values tell
_SHOWN = 3  # tensors that a message names


def dtype_edits(checkpoint: Checkpoint, dtype: str) -> list[Edit]:
    """Return the edit that casts the weights, or [] where they are of this dtype already.

    Raises RefusedError without any.

    Weights are the floating-point tensors of models and averaged models, buffers among them. What optimizers keep, the
    states of random generators and what belongs to quantised layers stays as it is.
    """
    weights = weights_among(checkpoint.state_dicts)
    found = [tensor for state_dict in weights for tensor in _floats(state_dict)]
    if not found:
        raise RefusedError("--dtype casts the floating-point weights of a model, and this file has none.")
    paths = [tensor.path for tensor in found if tensor.dtype.name != dtype]
    return [Cast(tuple(dict.fromkeys(paths)), dtype)] if paths else []


def _floats(state_dict: StateDict) -> Iterator[Tensor]:
    layers = quantized_in(state_dict).layers
    kept = {key for layer in layers for key in layer.keys}
    scaled = bool(layers) or any("scale" in key for key in state_dict.keys)  # then float8 may be no weight by itself
    for tensor in state_dict.tensors:
        if can_be_cast(tensor) and tensor.key not in kept and not (scaled and tensor.dtype.name in FLOAT8):
            yield tensor


def values_fixes(checkpoint: Checkpoint, source: Source, rules: Iterable[Rule]) -> list[tuple[Finding, Fix]]:
    """Return the safe fixes that only the values tell (T554), where such a rule was selected: reads every value."""
    wanted = [rule for rule in rules if rule.code in BY_VALUES]
    if not wanted:
        return []
    from ckptdoctor.values.distinct import bytes_to_read
    from ckptdoctor.values.examine import examine_values

    with progress.phase("values", bytes_to_read(checkpoint)) as work:
        values = examine_values(checkpoint, source, work, sums=False)
    found = [finding for rule in wanted for finding in rule.run(values)]
    return [(each, each.fix) for each in found if each.fix is not None and each.fix.safety is Safety.SAFE]


def lost(
    original: Checkpoint, after: Checkpoint, made: Mapping[str, Elements], edit: Cast, unsafe: bool
) -> Loss | None:
    """Read what was cast, and tell what the edit loses that gave ``after``; None where dtypes alone show no loss.

    ``made`` is what new storages hold. Raises RefusedError where the edit must be exact and is not, and for values that
    become infinite unless ``unsafe``.
    """
    narrowed = dict(_narrowed(original, after, made, edit))
    with progress.phase("measuring the loss", sum([nbytes(holds.parts[0]) for holds, _ in narrowed.values()])):
        losses = dict(_losses(narrowed))
    total = _sum(losses.values())
    if total is not None and edit.exact and total.changed:
        which = "1 value is" if total.changed == 1 else f"{total.changed:,} values are"
        raise RefusedError(f"{which} not exact in {edit.dtype}, so nothing was cast.")
    if total is not None and total.infinite and not unsafe:
        raise _overflow(losses, edit)
    return total


def _narrowed(
    original: Checkpoint, after: Checkpoint, made: Mapping[str, Elements], edit: Cast
) -> Iterator[tuple[str, tuple[Converted, dict[str, Place]]]]:
    """Yield the first tensor of each storage that the edit narrows: its numbers, and where their bytes are."""
    storages = {storage.key: storage for storage in original.storages}
    wanted, met = set(edit.paths), set()
    shown = {} if formats.is_written(original.format) else kept_pieces(after.tensors, made)
    for tensor in after.tensors:
        key = tensor.storage.key if tensor.storage is not None else ""
        if tensor.path not in wanted or key in met:
            continue
        met.add(key)
        holds = cast_in(made[key]) if key in made else None
        if holds is None or not cast_loses_values(BY_NAME[holds.kind], BY_NAME[holds.dtype]):
            continue
        holds = _viewed(holds, shown[key]) if key in shown else holds
        used = [storages[view.source] for view in views_of(holds) if view.held is None]
        _require_bytes(tensor, used)
        places = {storage.key: Place(storage) for storage in used}
        yield show_path(tensor.path), (holds, places)


def _require_bytes(tensor: Tensor, storages: Iterable[Storage]) -> None:
    for storage in storages:
        extent = storage.extent
        if storage.nbytes and (extent is None or (extent.length < storage.nbytes and not storage.compressed)):
            raise RefusedError(
                f"{show_path(tensor.path)} is not completely in the file, so it cannot be cast: see ckptdoctor salvage."
            )


def _losses(narrowed: Mapping[str, tuple[Converted, dict[str, Place]]]) -> Iterator[tuple[str, Loss]]:
    """Yield what tensors lose; small ones together, under the name of the first, unless values become infinite."""

    def measured(some: list[str]) -> tuple[list[str], Loss]:
        return some, _loss([narrowed[name] for name in some])

    for some, loss in progress.in_order(measured, alike(narrowed, lambda name: narrowed[name][0])):
        if loss.infinite and len(some) > 1:  # whose they are is what people ask
            yield from ((name, _loss([narrowed[name]])) for name in some)
        else:
            yield some[0], loss


def _loss(several: Sequence[tuple[Converted, Mapping[str, Place]]]) -> Loss:
    from ckptdoctor.casting.loss import loss_of

    first = several[0][0]
    parts = [each.parts[0] for each, _ in several]
    places = {name: place for _, each in several for name, place in each.items()}
    return loss_of(bytes_of(parts, places), first.kind, first.dtype)


def _viewed(holds: Converted, pieces: Iterable[Piece]) -> Converted:
    """Return the numbers in these ranges of the new storage.

    The header of a NumPy array, which is in it too, is not a number.
    """
    counts = [(start // holds.width, length // holds.width) for start, length in pieces]
    if sum([count for _, count in counts]) == prod(holds.shape):
        return holds
    found = [seen(holds.parts[0], start, (count,), (1,)) for start, count in counts]
    parts = [each for each in found if each is not None]
    if not parts or len(parts) < len(found):
        return holds
    part = joined(parts, 0)
    return replace(holds, parts=(part,), shape=part.shape)


def _sum(losses: Iterable[Loss]) -> Loss | None:
    found: Loss | None = None
    for each in losses:
        found = each if found is None else found + each
    return found


def loss_change(loss: Loss) -> Change:
    """Return the same for people."""
    counts = [(loss.values, "value"), (loss.changed, "value rounded")]
    counts += [(loss.infinite, "value made infinite")] if loss.infinite else []
    counts += [(loss.zero, "value made 0")] if loss.zero else []
    error = f"{loss.relative:.2%}" if loss.relative >= 1e-4 else f"{loss.relative:.2g}"
    pairs = (("largest relative error", error),) if loss.changed else ()
    return Change(LOSS, pairs, tuple(counts))


def _overflow(losses: Mapping[str, Loss], edit: Cast) -> RefusedError:
    worst = sorted([(loss.largest, name) for name, loss in losses.items() if loss.infinite], reverse=True)
    count = sum([loss.infinite for loss in losses.values()])
    names = and_more([f"{name} (up to {size:,.8g})" for size, name in worst], _SHOWN)
    limit = f"{_LARGEST.get(edit.dtype, 0):,.8g}"
    which = "1 value becomes" if count == 1 else f"{count:,} values become"
    other = "--dtype bfloat16 holds them" if edit.dtype == "float16" else "--dtype float32 may hold them"
    return RefusedError(
        f"{which} infinite: {edit.dtype} ends at {limit}\n  in {names}\n"
        f"  choose: {other}, or --unsafe-fixes to cast anyway"
    )
