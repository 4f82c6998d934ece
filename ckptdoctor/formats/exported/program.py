"""From an exported program to the nouns of a checkpoint: the tree is its state dict.

The constants are an attribute of that dict. Where an archive holds several models, each has a dict of its own.
"""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, Container, KeyPath, Mapping, Node, Part, Source, Special
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.formats.archives import Archive, insisted, order_notes
from ckptdoctor.formats.asides import of_records
from ckptdoctor.formats.exported.places import Place, places_of
from ckptdoctor.formats.exported.weights import Listed

_JSON = ".json"
_ORDERED = "collections.OrderedDict"


def read_program(source: Source, container: Container) -> Checkpoint:
    """The state dict and the constants. Raises DamagedError when their lists cannot be read."""
    archive = insisted(source, container.head)
    places = places_of(archive)
    lists: list[Listed] = []
    trees: list[tuple[Part, Node]] = []
    for place in places:
        path: KeyPath = (place.model,) if len(places) > 1 else ()
        trees.append((place.model, _model(source, archive, place, path, lists)))
    tree = trees[0][1] if len(trees) == 1 else Mapping("dict", tuple(trees))
    read = frozenset[str]().union(*[each.read for each in lists])
    others = [each for each in archive.records if each.name not in read]
    return Checkpoint(
        path=source.path,
        format=container.format,
        size=source.size,
        tree=tree,
        tensors=tuple([tensor for each in lists for tensor in each.tensors]),
        storages=tuple([storage for each in lists for storage in each.storages]),
        state_dicts=find_state_dicts(tree),
        globals=tuple([use for each in lists for use in each.globals]),
        notes=(*order_notes(source, archive, places[0].folder), *[note for each in lists for note in each.notes]),
        identity=source.identity,
        bytes_read=source.bytes_read,
        container=container,
        asides=(*[aside for each in lists for aside in each.asides], *of_records(source, others)),
    )


def _model(source: Source, archive: Archive, place: Place, path: KeyPath, lists: list[Listed]) -> Mapping:
    weights = _listed(source, archive, place.weights, path, lists)
    constants = _listed(source, archive, place.constants, (*path, Special(".constants")), lists)
    beside: list[tuple[Part, Node]] = [("constants", Mapping("dict", constants))] if constants else []
    return Mapping(_ORDERED, weights, Mapping("dict", tuple(beside)) if beside else None)


def _listed(
    source: Source, archive: Archive, name: str, path: KeyPath, lists: list[Listed]
) -> tuple[tuple[Part, Node], ...]:
    """The entries of a list of weights, or of a file of torch.save that holds them in a dict."""
    if not name:
        return ()
    listed = Listed(source, archive, path)
    lists.append(listed)
    if name.endswith(_JSON) and not name.rpartition("/")[2].startswith("serialized_"):
        listed.take(name)
        return tuple(listed.entries.items())
    found = listed.file(name, path)
    return found.entries if isinstance(found, Mapping) else ()
