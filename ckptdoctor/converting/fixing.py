"""Does what ``fix`` is asked for: plans, writes in whatever container is wanted, and keeps the map of names."""

from __future__ import annotations

from ckptdoctor.errors import UsageError
from ckptdoctor.inplace.guards import require_safe
from ckptdoctor.repair import map_file, name_map
from ckptdoctor.repair.name_map import NameMap, UnfitError
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import Outcome, repair
from ckptdoctor.repair.request import FixRequest


def fix(request: FixRequest, *, dry: bool = False) -> Outcome:
    """Repair as the request says; ``dry`` writes nothing but the map, where one is asked for.

    Where no chain of repairs makes the file fit its target, the map that is written is the draft of what is uncertain.
    Raises what ``plan``, ``repair`` and ``carry_out`` raise.
    """
    if request.in_place:
        if request.output is not None:
            raise UsageError("--in-place changes the file itself, and -o writes another: leave one of them out.")
        require_safe(request.path, force=request.force)
    try:
        planned = plan(request)
    except UnfitError as error:
        if request.write_map is not None and error.draft is not None:
            map_file.require_room(request.write_map, None, force=request.force)
            map_file.write(request.write_map, error.draft, force=request.force)
        raise
    if request.write_map is not None:
        map_file.require_room(request.write_map, planned.output, force=request.force)
    if dry:
        outcome = Outcome(planned)
    elif request.in_place:
        from ckptdoctor.repair.in_place import repair_in_place  # most repairs write a new file

        outcome = repair_in_place(planned)
    elif planned.converts is None:
        outcome = repair(planned)
    else:
        from ckptdoctor.converting.repaired import carry_out  # most repairs convert nothing

        outcome = carry_out(planned)
    if request.write_map is not None:
        map_file.write(request.write_map, name_map.of_steps(planned.steps), force=request.force)
    return outcome


def read_map(path: str | None, reverse: bool) -> NameMap | None:
    """Return the map of names in a file; None without one. Raises UsageError for ``reverse`` alone."""
    if path is None:
        if reverse:
            raise UsageError("--reverse applies a map backwards: add --map JSON.")
        return None
    found = map_file.read(path)
    return found.reversed() if reverse else found
