"""Reads the ``adapter_config.json`` next to an adapter, and compares it with what its tensors say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ckptdoctor.checkpoint import Checkpoint, StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.weights import top_weights
from ckptdoctor.facts.adapters import LEAD, Adapter, adapter_in
from ckptdoctor.facts.names import ADAPTER_CONFIG, ADAPTER_FILES
from ckptdoctor.facts.siblings import Config, folder_of, read_config
from ckptdoctor.noun import noun

# fields with which ranks are counted in another way
_OTHER_RANKS = ("target_parameters", "use_bdlora", "arrow_config", "use_qalora")
_DEPTH, _LENGTH = 32, 1024  # tokens of a name that are looked at; longer ones are nobody's
_PLAIN = re.compile(r"[\w.\-]+")


@noun
class AdapterConfigDisagreement:
    """A field, what it says, and what it would have to be; ``modules`` are those that show it, ``tensors`` theirs."""

    field: str
    said: object
    found: object
    modules: tuple[str, ...]
    tensors: tuple[Tensor, ...]


@cached_by_identity
def adapter_config_beside(checkpoint: Checkpoint) -> Config | None:
    """Return the config of the adapter, or None where there is none, or none that can be read."""
    folder = folder_of(checkpoint.path)
    if folder.name and folder.name not in ADAPTER_FILES:
        return None
    return read_config(folder, ADAPTER_CONFIG)


def text_of(config: Config | None, field: str) -> str:
    """Return a field that is text, or "" for anything else."""
    value = config.fields.get(field) if config is not None else None
    return value if isinstance(value, str) else ""


def config_disagreements(checkpoint: Checkpoint, config: Config) -> Iterator[AdapterConfigDisagreement]:
    """Yield where the config of a LoRA adapter and its tensors say different things."""
    state_dict = top_weights(checkpoint)
    adapter = adapter_in(state_dict) if state_dict is not None else None
    if state_dict is None or adapter is None or adapter.wrapped or config.fields.get("peft_type") != "LORA":
        return
    ranks = dict(_ranks(adapter, state_dict))
    if not any(config.fields.get(name) for name in _OTHER_RANKS):
        yield from _rank(ranks, config)
    yield from _targets(ranks, config)


def _ranks(adapter: Adapter, state_dict: StateDict) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensor that shows the rank of each module (its first size), by the module's name in the base."""
    for part, tensor in adapter.factors(state_dict.tensors):
        if part.parameter.endswith("A") and len(tensor.shape) >= 2 and tensor.numel and len(part.module) < _LENGTH:
            yield part.module.removeprefix(LEAD), tensor


def _rank(ranks: Mapping[str, Tensor], config: Config) -> Iterator[AdapterConfigDisagreement]:
    said, pattern = config.fields.get("r"), config.fields.get("rank_pattern") or {}
    if type(said) is not int or not isinstance(pattern, dict) or not _all_plain(list(pattern)):
        return
    own = {module: tensor.shape[0] for module, tensor in ranks.items()}
    named = dict(_named(own, pattern))
    wrong = tuple([module for module, rank in own.items() if named.get(module, said) != rank])
    if not wrong:
        return
    usual = Counter(own.values()).most_common(1)[0][0]
    tensors = tuple([ranks[module] for module in wrong])
    if usual != said:
        yield AdapterConfigDisagreement("r", said, usual, wrong, tensors)
    if any(named.get(module, usual) != rank for module, rank in own.items()):
        exceptions = {module: rank for module, rank in own.items() if rank != usual}
        yield AdapterConfigDisagreement("rank_pattern", pattern, exceptions, wrong, tensors)


def _named(modules: Iterable[str], pattern: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield the first pattern that is the module's name or its last tokens (``peft.utils.other.get_pattern_key``)."""
    order = {name: number for number, name in enumerate(pattern)}
    for module in modules:
        found = [each for each in _endings(module) if each in order]
        if found:
            yield module, pattern[min(found, key=order.__getitem__)]


def _targets(ranks: Mapping[str, Tensor], config: Config) -> Iterator[AdapterConfigDisagreement]:
    """Yield modules that no target names.

    See ``peft.tuners.tuners_utils.check_target_module_exists`` for a list of names.
    """
    said = config.fields.get("target_modules")
    if not isinstance(said, list) or not said or not _all_plain(said) or config.fields.get("target_parameters"):
        return
    if "all-linear" in said:
        return
    known = frozenset(said)
    unnamed = {module: tensor for module, tensor in ranks.items() if not _is_target(module, known)}
    if unnamed:
        wanted = sorted({*known, *[module.rpartition(".")[2] for module in unnamed]})
        yield AdapterConfigDisagreement("target_modules", said, wanted, tuple(unnamed), tuple(unnamed.values()))


def _is_target(module: str, targets: frozenset[str]) -> bool:
    return any(each in targets for each in _endings(module))


def _endings(module: str) -> Iterator[str]:
    """Yield the name of a module, and what is left of it without its first tokens."""
    tokens = module.split(".")[-_DEPTH:]
    for index in range(len(tokens)):
        yield ".".join(tokens[index:])


def _all_plain(patterns: list[object]) -> bool:
    """Return whether these are names, and no regular expressions."""
    return all(isinstance(each, str) and _PLAIN.fullmatch(each) for each in patterns)
