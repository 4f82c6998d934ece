"""Knows where the weights of an exported program are, by the layouts that torch.export has had.

Sources: ``torch.export.pt2_archive._package`` of torch 2.13 (a JSON list and one record for each weight, before that
one file of torch.save for each model), and ``torch.export.save`` of torch 2.1 to 2.7 (``serialized_state_dict.pt``).
"""

from __future__ import annotations

from typing import NamedTuple

from ckptdoctor.formats.zip_archives import Archive

_WEIGHTS, _CONSTANTS = "data/weights/", "data/constants/"
_WEIGHTS_CONFIG, _CONSTANTS_CONFIG = "_weights_config.json", "_constants_config.json"
_MODELS = "models/"
_OLD_PROGRAM = ("serialized_exported_program.json", "serialized_state_dict.pt", "serialized_state_dict.json")
_OLD_CONSTANTS = ("serialized_constants.pt", "serialized_constants.json", "serialized_tensor_constants.pt")


class Place(NamedTuple):
    """One model: the records that list or hold its weights and constants ("": none), with their files in ``folder``."""

    model: str
    folder: str
    weights: str
    constants: str


def places_of(archive: Archive) -> list[Place]:
    """Return the models of an archive that have weights; none where it is not an exported program."""
    folder = archive.folder("archive_format")
    if folder is not None:
        return _by_model(archive, folder)
    folder = archive.folder(_OLD_PROGRAM[0])
    if folder is None:
        return []
    return [Place("model", folder, _first(archive, folder, _OLD_PROGRAM[1:]), _first(archive, folder, _OLD_CONSTANTS))]


def _by_model(archive: Archive, folder: str) -> list[Place]:
    found = []
    for name in archive.found:
        if not name.startswith(f"{folder}{_MODELS}") or not name.endswith(".json"):
            continue
        model = name[len(folder) + len(_MODELS) : -len(".json")]
        weights = _first(archive, f"{folder}{_WEIGHTS}", (f"{model}{_WEIGHTS_CONFIG}", f"{model}.pt"))
        constants = _first(archive, f"{folder}{_CONSTANTS}", (f"{model}{_CONSTANTS_CONFIG}", f"{model}.pt"))
        if weights or constants:
            found.append(Place(model, folder, weights, constants))
    return found


def _first(archive: Archive, folder: str, names: tuple[str, ...]) -> str:
    return next((f"{folder}{name}" for name in names if f"{folder}{name}" in archive.found), "")
