"""Learns a reference from a class of transformers or a name of its Hub: ``--model transformers:Bert…``."""

from __future__ import annotations

import os
import re
import sys
from contextlib import redirect_stdout
from typing import Any

from ckptdoctor.errors import UsageError
from ckptdoctor.noun import replace
from ckptdoctor.remote.addresses import is_address, shown
from ckptdoctor.shell import word
from ckptdoctor.target import Reference, hub_cache
from ckptdoctor.target.blame import in_words
from ckptdoctor.target.config import NAME, built, from_config, library, offline, read_config, require_plain
from ckptdoctor.target.target import NamedTarget, parse_target

_LIBRARY = "transformers:"
_CLASS = re.compile(r"\s*[A-Z]\w*\s*(\(.*\))?\s*", re.DOTALL)


def is_meant(text: str) -> bool:
    """Return whether ``text`` names a class of transformers (``transformers:BertModel``) or a model of the Hub."""
    name = text.removeprefix(_LIBRARY)
    if name == text:
        return hub_cache.is_name(text)
    return _CLASS.fullmatch(name) is not None or hub_cache.is_name(name) or hub_cache.folder_of(name) is not None


def from_transformers(text: str, path: str | None = None) -> Reference:
    """Return the expectation of the model, built without its weights and without the network.

    The settings of a class are those of the ``config.json`` next to the file at ``path``, or where there is none the
    class's own, which ``Reference.told`` says; ``transformers:BertModel(num_hidden_layers=2)`` changes some. A name of
    the Hub is looked up in its cache. Raises UsageError, and UnreadableError for a config that cannot be read.
    """
    name = text.removeprefix(_LIBRARY)
    option = f"--model {word(text)}"
    if _CLASS.fullmatch(name) is None:
        return replace(from_config(name), option=option)
    target = parse_target(text)
    if target.arguments:
        raise UsageError(
            f"{target.place} takes its settings by name, such as {target.place}(num_hidden_layers=2); the "
            f"others come from the {NAME} next to the checkpoint."
        )
    file = _beside(path)
    with offline(), redirect_stdout(sys.stderr):
        transformers = library(text)
        model_class = _named(transformers, target, file)
        config = None if file is None else read_config(file)
        if config is not None and file is not None:
            require_plain(file, config)
            config = _own_part(model_class.config_class, config, file, target)
        settings = {**(config or {}), **dict(target.keywords)}
        place = file or "its default configuration"
        config_class = model_class.config_class
        found = built(lambda: model_class(config_class.from_dict(settings)), model_class.__name__, place)
    told = "" if file is not None else _by_default(target, path, config_class.__name__)
    return replace(found, option=option, told=told, by_file=True)


def _beside(path: str | None) -> str | None:
    """Return the config.json next to the file, or in the folder."""
    if path is None or is_address(path):
        return None
    file = os.path.join(path if os.path.isdir(path) else os.path.dirname(path), NAME)
    return file if os.path.isfile(file) else None


def _by_default(target: NamedTarget, path: str | None, config: str) -> str:
    where = "" if path is None else f" next to {shown(path)}"
    return f"there is no {NAME}{where}: settings of {target.place} that you do not give have the defaults of {config}"


def _named(transformers: Any, target: NamedTarget, file: str | None) -> Any:
    """Return the class of a model. Raises UsageError where transformers has none of this name."""
    (name,) = target.attributes
    try:
        found = getattr(transformers, name, None)
        auto = getattr(found, "_model_mapping", None)
        if auto is not None:
            found = _chosen(transformers, auto, target, file)
        is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
        if is_model and getattr(found, "config_class", None) is not None:
            return found
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"transformers cannot import {name}: {in_words(error.__cause__ or error)}.") from error
    raise UsageError(
        f'transformers {transformers.__version__} has no model class "{name}". A newer one may: pip install '
        "--upgrade transformers."
    )


def _chosen(transformers: Any, auto: Any, target: NamedTarget, file: str | None) -> Any:
    """Return the class that an Auto class stands for, by the type of model that the config names."""
    kind = read_config(file).get("model_type") if file is not None else None
    if not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        raise UsageError(
            f"{target.place} chooses its class by the model_type of a {NAME} next to the checkpoint, and "
            "there is none: name the class itself, such as transformers:BertForMaskedLM."
        )
    found = auto.get(transformers.CONFIG_MAPPING[kind], None)
    return found[0] if isinstance(found, (tuple, list)) else found


def _own_part(config_class: Any, config: dict[str, Any], file: str, target: NamedTarget) -> dict[str, Any]:
    """Return the settings for this class: all of them, or those of one tower, as ``from_pretrained`` takes them."""
    kind, wanted = config.get("model_type"), getattr(config_class, "model_type", "")
    part = config.get(getattr(config_class, "base_config_key", "") or "")
    if kind == wanted or not kind or not wanted:
        return config
    if isinstance(part, dict) and part.get("model_type", wanted) == wanted:
        return part
    raise UsageError(
        f"{file} describes a model of the type {kind}, and {target.place} accepts {wanted}: name a class for "
        f"{kind}, or move that {NAME} away to compare with the default settings."
    )
