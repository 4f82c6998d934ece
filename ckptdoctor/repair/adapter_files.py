"""Reads an adapter and what is known of it: from a file of its own, or from the checkpoint that holds it as well."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, FileSource, StateDict, Tensor
from ckptdoctor.checkpoint.missing import offer
from ckptdoctor.edits.elements import View
from ckptdoctor.errors import RefusedError, UsageError
from ckptdoctor.facts.adapters import Adapter, AdapterPart, adapter_in
from ckptdoctor.facts.names import ADAPTER_CONFIG, ADAPTER_FILES
from ckptdoctor.facts.siblings import Config, folder_of, read_config
from ckptdoctor.formats.advice import converted_first
from ckptdoctor.noun import noun, replace
from ckptdoctor.repair.adapter_strength import IA3, Strength, strength_of
from ckptdoctor.shell import quote
from ckptdoctor.wording import and_so_on, plural

OPTION = "--merge-adapter"
_FACTORS = frozenset({"lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B"})
_VECTORS = frozenset({"ia3_l"})
_SHOWN = 4  # names in a refusal
_CACHED = re.compile(r"models--(.+?)/snapshots/")


@noun
class Wanted:
    """``FROM[,alpha=N][,rslora][,name=ADAPTER]``; ``path`` is "" where nothing but what follows it was given."""

    text: str
    path: str
    alpha: float | None = None
    by_root: bool = False
    name: str = ""


def read_wanted(text: str) -> Wanted:
    """Return what the option says. Raises UsageError for an invalid value."""
    path, *words = text.split(",")
    if path.startswith(("alpha=", "name=")) or path == "rslora":
        path, words = "", [path, *words]
    found = Wanted(text, path)
    for word in words:
        name, _, value = word.partition("=")
        if name == "alpha":
            found = replace(found, alpha=_number(value))
        elif name == "name" and value:
            found = replace(found, name=value)
        elif word == "rslora":
            found = replace(found, by_root=True)
        else:
            raise UsageError(
                f'{OPTION}: "{word}" is not valid. Give an adapter\'s folder, its file, or its '
                f"{ADAPTER_CONFIG}, and optionally alpha=N, rslora or name=ADAPTER, such as "
                '"adapter,alpha=16".'
            )
    return found


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < abs(found) < float("inf"):
        raise UsageError(f'{OPTION}: "{text}" is not a number. Use alpha=16, for example.')
    return found


@noun
class FileBytes:
    """The bytes of a file, read when they are asked for: ``data[begin:end]``."""

    path: str

    def __getitem__(self, place: slice) -> bytes:
        with FileSource(self.path) as source:
            return source.read(place.start, place.stop - place.start)


@noun(eq=False)
class Donor:
    """The adapter that is merged: its tensors by module and parameter, and how strongly they work.

    ``all_keys`` are those of every adapter there, this one's and others'.
    """

    path: str
    by_module: Mapping[str, dict[str, Tensor]]
    strength: Strength
    all_keys: frozenset[str]

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that it sits on, as its keys call them."""
        return tuple(self.by_module)

    def view(self, tensor: Tensor) -> View:
        """Return the view of the file that a tensor is. Raises RefusedError where the file does not simply hold it."""
        storage = tensor.storage
        if (
            storage is None
            or storage.extent is None
            or storage.compressed
            or tensor.layout != "strided"
            or tensor.parts
        ):
            raise RefusedError(
                f"{tensor.key} of {self.path} is not a plain tensor, so it cannot be used in computations."
            )
        width, extent = max(1, tensor.dtype.bits // 8), storage.extent
        name = f"{extent.file} at {extent.offset}"
        start = extent.offset + tensor.offset * width
        return View(name, start, width, tensor.shape, tensor.stride, FileBytes(extent.file))


def donor_in(checkpoint: Checkpoint, state_dict: StateDict, wanted: Wanted) -> Donor:
    """Return the adapter that is in the checkpoint next to its base. Raises RefusedError."""
    config = None if not wanted.path else _config(wanted.path)
    if wanted.path and not wanted.path.endswith(".json") and _file(wanted.path):
        raise RefusedError(
            f"{checkpoint.path} has an adapter in it, and {wanted.path} is another one: merge one at a time. "
            f"For the one in it name its config, the file {ADAPTER_CONFIG}, or give the numerator: {OPTION} "
            "alpha=N"
        )
    adapter = adapter_in(state_dict)
    assert adapter is not None
    if adapter.copies:
        first = next(iter(adapter.copies.values())).module
        raise RefusedError(
            f"{first} is in the file twice, as it was and as it was trained with the adapter. Keep one of "
            "the two first, with the command that check prints (L906): ckptdoctor check "
            f"{quote(checkpoint.path)}"
        )
    return _donor(checkpoint, state_dict, adapter, _strength(config, wanted, adapter, checkpoint.path), wanted)


def donor_of(base: Checkpoint, wanted: Wanted) -> Donor:
    """Return the adapter in a file of its own. Raises RefusedError, and what opening it raises."""
    if not wanted.path:
        raise RefusedError(f"{base.path} has no adapter in it. Name the folder of one: {OPTION} FOLDER")
    file = _file(wanted.path)
    if not file:
        raise RefusedError(f"{wanted.path} does not hold an adapter ({' or '.join(sorted(ADAPTER_FILES))}).")
    with formats.opened(file) as (source, container):
        checkpoint = formats.read(source, container)
    if checkpoint.big_endian:
        why = f"The values of {file} are big-endian, so they cannot be used in computations."
        raise RefusedError(f"{why} {converted_first(file)}")
    state_dict = next((each for each in checkpoint.state_dicts if adapter_in(each) is not None), None)
    adapter = adapter_in(state_dict) if state_dict is not None else None
    if state_dict is None or adapter is None:
        raise RefusedError(f"{file} does not hold an adapter as peft's save_pretrained writes it.")
    others = [tensor.key for tensor in state_dict.tensors if tensor.key not in adapter.parts]
    if others:
        raise RefusedError(_beside(file, others))
    config = _config(wanted.path)
    strength = _strength(config, wanted, adapter, file)
    _require_base(base, strength, wanted)
    return _donor(checkpoint, state_dict, adapter, strength, wanted)


def _donor(
    checkpoint: Checkpoint, state_dict: StateDict, adapter: Adapter, strength: Strength, wanted: Wanted
) -> Donor:
    names = tuple(dict.fromkeys([part.adapter for part in adapter.parts.values()]))
    if wanted.name and wanted.name not in names:
        raise RefusedError(f'{checkpoint.path} has no adapter "{wanted.name}". It has {_quoted(names)}.')
    if len(names) > 1 and not wanted.name:
        rest = wanted.text.rstrip(",")
        ways = [f"  {name or 'the one without a name'}: {OPTION} {rest},name={name}" for name in names if name]
        lines = [
            f"{checkpoint.path} holds {len(names)} adapters, {_quoted(names)}: one is merged, and the others are "
            "dropped."
        ]
        raise RefusedError("\n".join([*lines, *ways]))
    by_module: dict[str, dict[str, Tensor]] = {}
    known = _VECTORS if strength.method == IA3 else _FACTORS
    for tensor in state_dict.tensors:
        part = adapter.parts.get(tensor.key)
        if part is None or (wanted.name and part.adapter != wanted.name):
            continue
        if part.parameter not in known or tensor.key.endswith(".bias"):
            raise RefusedError(_unknown(part, tensor, strength))
        by_module.setdefault(part.module, {})[part.parameter] = tensor
    return Donor(checkpoint.path, by_module, strength, frozenset(adapter.parts))


def _unknown(part: AdapterPart, tensor: Tensor, strength: Strength) -> str:
    what = "DoRA's magnitudes" if "magnitude" in part.parameter else f"{part.parameter} of {part.module}"
    kind = "a bias" if tensor.key.endswith(".bias") else what
    plain = "IA3" if strength.method == IA3 else "LoRA"
    return (
        f"The adapter has {kind} ({tensor.key}): that is not a plain {plain}, so ckptdoctor does not merge "
        "it. Merge it with peft: PeftModel.from_pretrained, and merge_and_unload() on the result."
    )


def _beside(file: str, others: list[str]) -> str:
    return (
        f"{file} holds {plural(len(others), 'tensor')} besides the adapter, layers or biases that were "
        f"trained in full ({and_so_on(others, _SHOWN, end=' …')}): ckptdoctor does not merge these. Merge it "
        "with peft: PeftModel.from_pretrained(model, FOLDER).merge_and_unload()."
    )


def _file(path: str) -> str:
    """Return the file of the adapter that is meant, or "" where there is none."""
    if not os.path.isdir(path):
        return "" if path.endswith(".json") else path
    there = [name for name in sorted(ADAPTER_FILES, reverse=True) if os.path.exists(os.path.join(path, name))]
    return os.path.join(path, there[0]) if there else ""


def _config(path: str) -> Config | None:
    folder = folder_of(path)
    return read_config(folder, os.path.basename(path) if path.endswith(".json") else ADAPTER_CONFIG)


def _strength(config: Config | None, wanted: Wanted, adapter: Adapter, path: str) -> Strength:
    """Return what the config says, and the person where it is said by hand."""
    parameters = {part.parameter for part in adapter.parts.values()}
    said = None if config is None else strength_of(config.fields, config.path)
    if wanted.alpha is not None:
        made = said or Strength(OPTION)
        return replace(
            made, alpha=wanted.alpha, by_root=wanted.by_root, rank=None, ranks={}, alphas={}, base="", source=OPTION
        )
    if said is not None:
        return said
    if parameters <= _VECTORS:
        return Strength(OPTION, IA3)
    if wanted.path and not os.path.exists(wanted.path):
        raise RefusedError(f"{OPTION}: {wanted.path} does not exist.{offer(wanted.path)}")
    where = wanted.path or os.path.dirname(path) or "."
    raise RefusedError(
        f"The adapter's lora_alpha is not in any tensor, and there is no {ADAPTER_CONFIG} in {where}. "
        f"Specify it: {OPTION} {f'{wanted.path},' if wanted.path else ''}alpha=N"
    )


def _require_base(base: Checkpoint, strength: Strength, wanted: Wanted) -> None:
    """Raise RefusedError where the base has a name, and the adapter is said to be for another one."""
    names = list(_names_of(base.path))
    if strength.base and names and _last(strength.base) not in map(_last, names):
        raise RefusedError(
            f"According to {strength.source} the adapter is for {strength.base}, and {base.path} is "
            f"{names[0]}. Their shapes are the same. Give the base that it was trained on; or, if both are "
            f"one model, correct base_model_name_or_path, or specify the numerator yourself: {OPTION} "
            f"{wanted.path},alpha=N"
        )


def _names_of(path: str) -> Iterator[str]:
    """Yield the names of the base: from the config next to it, and from the hub's cache."""
    config = read_config(folder_of(path), "config.json")
    name = config.fields.get("_name_or_path") if config is not None else None
    if isinstance(name, str) and name:
        yield name
    cached = _CACHED.search(os.path.abspath(path))
    if cached is not None:
        yield cached[1].replace("--", "/")


def _last(name: str) -> str:
    return name.replace("\\", "/").rstrip("/").rpartition("/")[2].casefold()


def _quoted(names: Iterable[str]) -> str:
    return " and ".join(f'"{name}"' if name else "one without a name" for name in names)
