"""Finds the engine that ``--engine`` names.

``local`` examines in processes of this machine, ``ray`` on a cluster. Others may register under the entry-point group
``ckptdoctor.engines`` a function that takes the address after ``=`` (or None) and the number of jobs (or None), and
returns an ``Engine``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from ckptdoctor.errors import UsageError
from ckptdoctor.stores.engines.engine import Engine
from ckptdoctor.stores.engines.local import LocalEngine
from ckptdoctor.wording import not_one_of

GROUP = "ckptdoctor.engines"


def engine_named(name: str, jobs: int | None) -> Engine:
    """Return the engine that ``--engine`` names: ``local``, ``ray``, ``ray=address``, or one that is installed.

    Raises UsageError for an unknown one.
    """
    kind, _, address = name.partition("=")
    if kind == "local" and not address:
        return LocalEngine(jobs)
    if kind == "ray":
        from ckptdoctor.stores.engines.ray import RayEngine

        return RayEngine(address or None, jobs)
    known = {each.name: each for each in entry_points(group=GROUP)}
    if kind not in known:
        names = sorted({"local", "ray", *known})
        raise UsageError(not_one_of("--engine", kind, names))
    make: Callable[[str | None, int | None], Engine] = known[kind].load()
    return make(address or None, jobs)
