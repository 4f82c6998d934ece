"""How much of a reference a checkpoint fits, as it is and after each fix."""

from __future__ import annotations

from ckptdoctor.checkpoint.keypath import KeyPath
from ckptdoctor.noun import noun


@noun
class CoverageStep:
    """Coverage of a reference after one fix: keys and parameters (elements) that then fit."""

    title: str
    code: str
    keys: int
    parameters: int


@noun
class Coverage:
    """How much of a reference the checkpoint fits: keys with the right shape, and elements; before and after fixes.

    ``option`` names the reference on the command line; "" where it was not named there, or where the steps alone do
    not decide everything. ``retied`` of the keys are not in the file, and tied to one that is when it is loaded.
    ``told`` says what of the reference was taken from the file itself, or from beside it.
    """

    reference: str
    state_dict: KeyPath
    total_keys: int
    total_parameters: int
    keys: int
    parameters: int
    steps: tuple[CoverageStep, ...] = ()
    option: str = ""
    retied: int = 0
    told: str = ""
