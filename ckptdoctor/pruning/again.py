"""Lists the stores of an inventory once more before anything moves: what has begun to name a checkpoint keeps it.

A training that goes on after the audit makes links, writes which checkpoint is the last one, and saves new checkpoints
that name an older one as the best, or need it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ckptdoctor.checkpoint.progress import phase
from ckptdoctor.errors import UnreadableError
from ckptdoctor.noun import noun
from ckptdoctor.pruning.inventory import Holdings
from ckptdoctor.pruning.plan import Pin, Plan
from ckptdoctor.pruning.trash import FOLDER
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.runs.validity import examined
from ckptdoctor.stores.examine import references
from ckptdoctor.stores.listing import Walk
from ckptdoctor.wording import system_says


@noun
class ListedAgain:
    """What a second listing showed: ``pins`` are all that names a checkpoint by now.

    ``unfinished`` are checkpoints that are not complete by now, by their paths, and ``unlisted`` the stores of which a
    folder cannot be listed, each with why.
    """

    pins: tuple[Pin, ...]
    unfinished: dict[str, str]
    unlisted: dict[str, str]


def listed_again(found: Holdings, made: Plan) -> ListedAgain:
    """List the stores of an inventory again, and read what is new in them for what it names."""
    pins: list[Pin] = []
    unfinished: dict[str, str] = {}
    unlisted: dict[str, str] = {}
    going = {each.path for each in made.going}
    with phase("listing", 0, "folders") as told:
        for store in found.stores:
            if is_address(store) or not any(is_in(path, store) for path in going):
                continue
            walk = Walk(store, lambda: told.advance(1))
            try:
                for unit in walk.units():
                    path = unit.candidate.path
                    if unit.candidate.unfinished:
                        unfinished[path] = unit.candidate.unfinished
                    elif found.signatures.get(path) != unit.signature:
                        contents = examined(unit.candidate).checkpoints
                        pins += [Pin(path, target) for _, target in references(unit, contents)]
                pins += _links(walk.store, going)
            except UnreadableError as error:
                unlisted[store] = error.message
            pins += [Pin(each.source, each.target) for each in walk.links]
            for folder, why in walk.unlisted[:1]:
                unlisted[store] = f"{folder} might have something that needs it: {why}"
    return ListedAgain(tuple(pins), unfinished, unlisted)


def is_in(path: str, store: str) -> bool:
    """Return whether a path is a store, or in it."""
    return path == store or path.startswith(store.rstrip(os.sep) + os.sep)


def _links(store: str, going: set[str]) -> Iterator[Pin]:
    """Yield the links that lead into what may go, wherever they are: hidden ones, and those in other checkpoints.

    Of a store that is a file, these are the links next to it. Raises UnreadableError where a folder cannot be listed.
    """
    for link in _all_links(store):
        target = os.path.realpath(link)
        meant = next((path for path in around(target) if path in going), None)
        if meant is not None and not is_in(link, meant):
            yield Pin(link, target)


def _all_links(store: str) -> Iterator[str]:
    waiting = [store if os.path.isdir(store) else os.path.dirname(store)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                for each in found:
                    if each.is_symlink():
                        yield each.path
                    elif each.is_dir() and each.name != FOLDER and os.path.isdir(store):
                        waiting.append(each.path)
        except FileNotFoundError:  # removed meanwhile
            continue
        except OSError as error:
            raise UnreadableError(f"{error.filename} cannot be listed: {system_says(error)}") from error


def around(path: str) -> Iterator[str]:
    """Yield a path, and every folder that it is in."""
    yield path
    while (outer := os.path.dirname(path)) != path:
        yield outer
        path = outer
