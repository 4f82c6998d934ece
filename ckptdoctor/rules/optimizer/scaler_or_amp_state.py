"""The state of the gradient scaler shows overflowing gradients, or needs a package that is no longer maintained.

Meaning
    ``GradScaler`` halves its scale whenever gradients overflow, and doubles it after 2,000 good steps. A scale below 1
    means that they overflowed again and again. ``amp`` is the state of NVIDIA's apex, from before torch had its own.

Why it matters
    With a scale of 0 or infinity every gradient is NaN or zero: training continues but learns nothing. Only apex can
    load apex state.

Symptoms
    Nothing, or losses of NaN.

Detection
    The scale is a plain number in the state, near the top of the file. A warning where it is 0, infinite or NaN; info
    where it is below 1, and for apex state. A normal scale is not reported.

Repair
    None: resume without the scaler's state, from a checkpoint before gradients began to overflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, show_path
from ckptdoctor.facts.optimizers import scalers, top
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.when import more_than_weights

_APEX = "loss_scaler"  # loss_scaler0, loss_scaler1


def _saved(scale: float) -> dict[str, object]:
    state = {"scale": scale, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 0}
    return {"model": {"fc.weight": T((2, 4))}, "scaler": state}


MESSAGES = (
    Message(
        ("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler",),
        "the checkpoint was saved with mixed precision off, so the state of its GradScaler is empty; the "
        "scaler can safely start fresh",
        (
            Way(
                "load it only if there is one",
                'if checkpoint["scaler"]: scaler.load_state_dict(checkpoint["scaler"])',
            ),
        ),
    ),
    Message(
        (
            "KeyError: 'scaler'",
            "KeyError: 'scaler_state_dict'",
            "KeyError: 'grad_scaler'",
            "KeyError: 'amp'",
            "KeyError: 'amp_scaler'",
        ),
        "the checkpoint holds no state of a GradScaler: it was saved without mixed precision, or released "
        "without the training state. The scaler can safely start fresh",
        (Way("see what it holds", "ckptdoctor show FILE"),),
        also=("O754",),
    ),
)
SICK = (
    Example("a scale of zero", _saved(0.0)),
    Example("a small scale", _saved(2.0**-20)),
    Example(
        "state of apex",
        {"model": {"fc.weight": T((2, 4))}, "amp": {"loss_scaler0": {"loss_scale": 65536.0, "unskipped": 3}}},
    ),
)
HEALTHY = (
    Example("a normal scale", _saved(65536.0)),
    Example("a scaler that was switched off", {"model": {"fc.weight": T((2, 4))}, "scaler": {}}),
)


@rule("O760", "scaler-or-amp-state", Severity.INFO, when=more_than_weights)
def scaler_or_amp_state(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report scalers in trouble, and those of apex."""
    for path, scale in scalers(checkpoint):
        if not isfinite(scale) or scale < 1:
            yield _scaled(path, scale)
    amp = top(checkpoint).get("amp")
    if isinstance(amp, Mapping) and any(isinstance(part, str) and part.startswith(_APEX) for part, _ in amp.entries):
        yield Problem(
            message="amp is the state of apex, which torch.amp does not accept",
            cause="It was saved by NVIDIA's apex; GradScaler.load_state_dict requires its own kind of state.",
            advice="Resume without it: torch.amp.GradScaler finds its scale again within a few hundred steps.",
            keys=(("amp",),),
            location=Location(path=("amp",)),
        )


def _scaled(path: KeyPath, scale: float) -> Problem:
    dead = not isfinite(scale) or scale <= 0
    return Problem(
        message=f"{show_path(path)} has a scale of {scale:g}",
        cause="With it every gradient is NaN or zero: nothing is learned."
        if dead
        else "It is halved whenever gradients overflow: they overflowed again and again.",
        advice="Resume without the scaler's state, from a checkpoint before gradients began to overflow.",
        keys=(path,),
        location=Location(path=path),
        severity=Severity.WARNING if dead else Severity.INFO,
    )
