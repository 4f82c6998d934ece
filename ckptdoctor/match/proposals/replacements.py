"""Proposes to undo a careless text replacement: done to the wanted names, it gives the ones that are here."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.match.moves import Gap, Move, move

# N403: key.replace("module.", ""), which every second answer recommends, also takes it out of "mlp_module.layer0"
# N415: replacements that transformers made anywhere in a name, not only in its last token
_REPLACED = (
    ("N403", 'put back "module."', "module.", ""),
    ("N415", "original0 → weight_g", "weight_g", "parametrizations.weight.original0"),
    ("N415", "original1 → weight_v", "weight_v", "parametrizations.weight.original1"),
    ("N415", "weight → gamma", "gamma", "weight"),
    ("N415", "bias → beta", "beta", "bias"),
)


def propose(gap: Gap) -> Iterator[Move]:
    """Yield each replacement that explains some keys."""
    loose = set(gap.loose)
    for code, pattern, old, new in _REPLACED:
        pairs = [(damaged, key) for key in gap.open if (damaged := key.replace(old, new)) != key and damaged in loose]
        found = move(code, pattern, gap, pairs)
        if found is not None and not _only_leaves(found, old):
            yield found


def _only_leaves(found: Move, old: str) -> bool:
    """Return whether only last tokens differ: those have rules of their own."""
    return all(new.rpartition(".")[2] == old for new in found.names.values())
