"""Learns a reference from a Hugging Face ``config.json``, through transformers if installed; never online."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from ckptdoctor.checkpoint.missing import offer
from ckptdoctor.checkpoint.progress import begin
from ckptdoctor.crash import require_torch_installed
from ckptdoctor.errors import UnreadableError, UsageError
from ckptdoctor.noun import replace
from ckptdoctor.shell import quote
from ckptdoctor.target import Reference, hub_cache
from ckptdoctor.target.blame import in_words
from ckptdoctor.target.building import TooManyError, build
from ckptdoctor.target.mapping import from_module

NAME = "config.json"
_LARGEST = 16 * 2**20  # bytes: the largest configs that exist (long label lists) have one or two MB
_MOST_TENSORS = 1_000_000
_MOST_LAYERS = 100_000
_COUNTS = re.compile(r"layer|depth|expert", re.IGNORECASE)
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def from_config(path: str) -> Reference:
    """Return the expectation of the architecture that ``path`` (a config.json, or a folder with one) names.

    A name of the Hugging Face Hub (``org/name``) stands for what is in its local cache; nothing is downloaded.
    dtypes are left open: transformers takes those of the weights. ``from_pretrained`` is what loads it, which ties what
    is tied: ``save_pretrained`` leaves all but one name of it out. Raises UnreadableError when it cannot be read, and
    UsageError when it names no architecture that transformers itself has, or transformers is not installed.
    """
    file = hub_cache.file_of(path, NAME) or (os.path.join(path, NAME) if os.path.isdir(path) else path)
    config = read_config(file)
    name = _architecture(file, config)
    with offline(), redirect_stdout(sys.stderr):
        model_class = _model_class(library(file), name, file)
        found = built(lambda: model_class(model_class.config_class.from_dict(config)), name, file)
    return replace(found, option=f"--config {quote(path)}")


def built(make: Callable[[], Any], name: str, file: str) -> Reference:
    """Return the expectation of a model of transformers, whatever its dtypes.

    ``file`` is where its settings come from.
    """
    try:
        found = from_module(build(make, _MOST_TENSORS), f"{name} ({file})")
    except UsageError:
        raise
    except TooManyError as error:
        raise UsageError(f"{file} describes a model of more than {_MOST_TENSORS:,} tensors.") from error
    except Exception as error:
        raise UsageError(f"transformers cannot build the {name} of {file}: {in_words(error)}.") from error
    tensors = {key: replace(each, dtype=None) for key, each in found.tensors.items()}
    return replace(found, tensors=tensors, retied=True)


def read_config(file: str) -> dict[str, Any]:
    """Return the settings in a config.json. Raises UnreadableError, and UsageError for a file of another kind."""
    try:
        with open(file, "rb") as stream:
            data = stream.read(_LARGEST + 1)
    except OSError as error:
        raise UnreadableError(f"{file} cannot be read: {error.strerror or error}.{offer(file)}") from error
    try:
        config = json.loads(data) if len(data) <= _LARGEST else None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not JSON: --config takes the config.json of a Hugging Face model.") from error
    if not isinstance(config, dict):
        raise UsageError(f"{file} holds no settings: --config takes the config.json of a Hugging Face model.")
    return config


def _architecture(file: str, config: dict[str, Any]) -> str:
    """Return the class that the config names, where transformers can build it from the config alone."""
    if config.get("auto_map"):
        raise UsageError(
            f"{file} needs code that comes with the model (auto_map), which ckptdoctor never runs. If you trust it, "
            "import the class yourself: --model 'path/to/modeling.py:Class(…)'."
        )
    require_plain(file, config)
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise UsageError(
            f'{file} names no model class ("architectures"). Add it, such as "architectures": ["BertModel"], or use '
            "--model or --like."
        )
    return names[0]


def require_plain(file: str, config: dict[str, Any]) -> None:
    """Raise UsageError for settings that do not tell the keys, or that no model has."""
    if config.get("quantization_config"):
        raise UsageError(
            f"{file} describes a quantized model: its keys exist only while transformers loads it, and the "
            "config does not list them. Compare with a file that loads: --like."
        )
    if "_class_name" in config:
        raise UsageError(f"{file} is a diffusers config; --config reads those of transformers. Use --model or --like.")
    _bounded(file, config)


def _bounded(file: str, config: dict[str, Any]) -> None:
    """Raise UsageError for numbers of layers that no model has: building them would take for ever."""
    stack: list[tuple[str, Any]] = list(config.items())
    while stack:
        key, value = stack.pop()
        if isinstance(value, dict):
            stack.extend(value.items())
        elif isinstance(value, list):
            stack.extend([(key, each) for each in value])
        elif isinstance(value, int) and value > _MOST_LAYERS and _COUNTS.search(key):
            raise UsageError(f"{file} cannot be right: its {key} is {value:.3g}.")


def library(file: str) -> Any:
    """Return the library, by name and not by an import statement: type checkers would read all of it.

    ``file`` wants it.

    Raises MissingPackageError where torch is not installed: without it the library has the names of models and no more.
    """
    require_torch_installed(*(() if importlib.util.find_spec("transformers") else ("transformers",)))
    if "transformers" not in sys.modules:
        begin("loading torch…" if "torch" not in sys.modules else "loading transformers…")
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "transformers":
            other = "" if file.startswith("transformers:") else "--model with the class, or "
            raise UsageError(
                f"{file} can be read only with transformers, which is not installed: pip install "
                f"transformers. Or use {other}--like with a file that loads."
            ) from error
        raise UsageError(f"transformers cannot be imported: {in_words(error)}.") from error


def _model_class(transformers: Any, name: str, file: str) -> Any:
    try:
        found = getattr(transformers, name, None) if name.isidentifier() else None
    except Exception as error:
        raise UsageError(f"transformers cannot import {name}: {in_words(error.__cause__ or error)}.") from error
    is_class = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    if is_class and getattr(found, "config_class", None) is not None:
        return found
    raise UsageError(
        f'transformers {transformers.__version__} has no model class "{name}", which {file} names. A newer '
        "one may: pip install --upgrade transformers. Or use --model with the class."
    )


@contextmanager
def offline() -> Iterator[None]:
    """Fetch nothing, even where a config names weights or a backbone of the hub."""
    before = {name: os.environ.get(name) for name in _OFFLINE}
    constants = sys.modules.get("huggingface_hub.constants")  # it has read the environment when it was imported
    known = before["HF_HUB_OFFLINE"] if constants is None else getattr(constants, "HF_HUB_OFFLINE", None)
    os.environ.update(dict.fromkeys(_OFFLINE, "1"))
    if constants is not None:
        constants.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        constants = sys.modules.get("huggingface_hub.constants")
        if constants is not None:
            constants.HF_HUB_OFFLINE = known in (True, "1", "ON", "YES", "TRUE")  # type: ignore[attr-defined]
