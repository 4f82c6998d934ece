"""Learns a reference from the text of an error of ``load_state_dict``: what the model said that it misses.

The error names the keys that do not fit; all others of the file do. Shapes of missing keys are not in it: a missing
key gets the shape of the unexpected key that ends alike, and is left out where there is none, or no telling which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ckptdoctor.checkpoint import Checkpoint, StateDict, Tensor
from ckptdoctor.checkpoint.expectation import is_extra_state
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.errors import UsageError
from ckptdoctor.explaining.confirm import names_at_top
from ckptdoctor.explaining.load_error import load_errors, words_of
from ckptdoctor.explaining.reading import is_text, read_text
from ckptdoctor.explaining.text import cleaned
from ckptdoctor.noun import noun, replace
from ckptdoctor.rules.incompatible_keys import IncompatibleKeys, LoadError
from ckptdoctor.rules.kit.names_in_errors import same_tensors
from ckptdoctor.rules.kit.weight_forms import changes
from ckptdoctor.shell import quote
from ckptdoctor.target import Expected, Reference

# torch.nn.modules.batchnorm._NormBase: a layer with running stats counts its batches, since torch 0.4.1
_STAT, _COUNTER = "running_mean", "num_batches_tracked"

# how to name the target on the command line where the text does not tell enough of it
_INSTEAD = "--model MODULE:CLASS"

_NAMED = 3  # errors of one text that a message names

_TAIL = 2  # last tokens that two keys must share at least, unless one is the whole end of the other
_DEEPEST = 16  # tokens from the end of a key that are compared


@noun
class FromError:
    """The reference, which of its shapes were taken from another key (missing → unexpected), and what was left out."""

    reference: Reference
    guessed: dict[str, str]
    left_out: tuple[str, ...]
    complete: bool


def from_error(text: str, source: str = "the error") -> LoadError:
    """Return the misfits that the text of an error names.

    Raises UsageError when it is not one of ``load_state_dict``, or several that differ.
    """
    errors = load_errors(cleaned(text))
    if not errors:
        raise UsageError(
            f"{source} does not contain an error of load_state_dict: it names no missing or unexpected keys."
        )
    if len(errors) > 1:
        # what one model calls unexpected another may need: the target would be none of them
        named = "; ".join(map(words_of, errors[:_NAMED]))
        more = f"; and {len(errors) - _NAMED:,} more" if len(errors) > _NAMED else ""
        raise UsageError(
            f"{source} contains {len(errors):,} different errors of load_state_dict. They are: {named}{more}. "
            "Save the one that is about this file in a file of its own, and name that with --error."
        )
    return errors[0]


def read_error(source: str) -> LoadError:
    """Return the error in a file, on standard input for "-", or in ``source`` itself where that is a text.

    Raises UnreadableError or UsageError.
    """
    if is_text(source):
        return from_error(source, "the text given with --error")
    return replace(from_error(read_text(source), "standard input" if source == "-" else source), file=source)


def as_reference(error: LoadError, checkpoint: Checkpoint, source: str = "the model of the error") -> FromError:
    """Return the expectation of the model, as far as error and checkpoint tell. Raises UsageError without weights."""
    whole, state_dict = loaded(error, checkpoint)
    if whole:
        return _of_whole_file(error, state_dict, source)
    here = {tensor.key: tensor for tensor in state_dict.tensors}
    # torch.nn.utils.spectral_norm asks files without versions for the plain weight as well, which its models lack
    asked = set(error.missing)
    error = replace(error, missing=tuple([key for key in error.missing if f"{key}_orig" not in asked]))
    other = {*error.unexpected, *[each.key for each in error.mismatched]}
    expected = {key: Expected(tensor.shape) for key, tensor in here.items() if key not in other}
    expected |= {each.key: Expected(each.there) for each in error.mismatched}
    guessed: dict[str, str] = {}
    unexpected = set(error.unexpected)
    ends = _Ends([tensor for key, tensor in here.items() if key in unexpected])
    partners = _partners(error)
    for key in dict.fromkeys((*error.missing, *partners)):
        tensor = here.get(partners[key]) if key in partners else ends.like(key)
        if tensor is not None and key not in expected:
            guessed[key] = tensor.key
            expected[key] = Expected(tensor.shape)
        elif key.rpartition(".")[2] == _COUNTER:
            expected[key] = Expected(())
    expected |= dict.fromkeys(_unasked(guessed, here), Expected(()))
    # what is no tensor, and yet not refused, the program does not mind
    extra = {*filter(is_extra_state, here), *state_dict.others}.difference(error.unexpected)
    return _told(error, Reference(source, expected, state_dict.path, extra=frozenset(extra)), guessed)


def _partners(error: LoadError) -> dict[str, str]:
    """Return missing keys that are unexpected ones under another name, where the names allow no other reading."""
    found = same_tensors(IncompatibleKeys(error, error.missing, error.unexpected, error.mismatched))
    for change in changes(error.missing, error.unexpected):
        found |= change.names
    return found


def _told(error: LoadError, reference: Reference, guessed: dict[str, str]) -> FromError:
    """Return the findings, and what is not known; the extra state of modules has no shape that could be told."""
    extra = reference.extra.union(filter(is_extra_state, error.missing))
    left_out = tuple([key for key in error.missing if key not in reference.tensors and key not in extra])
    enough = error.file and error.complete and not left_out
    option = f"--error {quote(error.file)}" if enough else _INSTEAD
    return FromError(replace(reference, option=option, extra=extra), guessed, left_out, error.complete)


def _unasked(guessed: dict[str, str], here: Mapping[str, Tensor]) -> Iterator[str]:
    """Yield counters of norm layers, which torch does not call missing where ``_metadata`` does not list them."""
    for key, ours in guessed.items():
        if key.endswith(_STAT) and ours.endswith(_STAT) and ours[: -len(_STAT)] + _COUNTER in here:
            yield key[: -len(_STAT)] + _COUNTER


def loaded(error: LoadError, checkpoint: Checkpoint) -> tuple[bool, StateDict]:
    """Return whether the file was loaded as a whole, although its state dict is deeper, and that state dict.

    Then the unexpected keys are not those of the state dict. Raises UsageError without weights.
    """
    state_dict, top = _meant(error, checkpoint), names_at_top(checkpoint)
    below = bool(state_dict.path) and not _named(error) & {*state_dict.keys}
    return below and bool(top.intersection(error.unexpected)), state_dict


def _of_whole_file(error: LoadError, state_dict: StateDict, source: str) -> FromError:
    """Of a file loaded whole nothing fits: the model is what is missing, as far as the state dict has it."""
    ends = _Ends(list(state_dict.tensors))
    found = {key: tensor for key in error.missing if (tensor := ends.like(key)) is not None}
    expected = {key: Expected(tensor.shape) for key, tensor in found.items()}
    guessed = {key: tensor.key for key, tensor in found.items()}
    expected |= dict.fromkeys(_unasked(guessed, {tensor.key: tensor for tensor in state_dict.tensors}), Expected(()))
    return _told(error, Reference(source, expected), guessed)


def _meant(error: LoadError, checkpoint: Checkpoint) -> StateDict:
    """Return the state dict that was loaded: the one with most of the keys that the error names."""
    named = _named(error)
    candidates = weights_among(checkpoint.state_dicts)
    if not candidates:
        raise UsageError(f"{checkpoint.path} has no weights that the error could be about.")
    return max(candidates, key=lambda each: (len(named.intersection(each.keys)), len(each.tensors)))


def _named(error: LoadError) -> set[str]:
    """Return the keys that the error says the file has."""
    return {*error.unexpected, *[each.key for each in error.mismatched]}


class _Ends:
    """Tensors by the ends of their keys, to find the one whose key ends like another."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._by_end: dict[str, list[Tensor]] = {}
        for tensor in tensors:
            for end in _ends_of(tensor.key):
                self._by_end.setdefault(end, []).append(tensor)

    def like(self, key: str) -> Tensor | None:
        """Return the only tensor with the longest end in common, or one of several of the same shape.

        It is None for none.
        """
        for end in _ends_of(key):
            found = self._by_end.get(end, [])
            whole = [each for each in found if end in (key, each.key)]
            if not whole and end.count(".") + 1 < _TAIL:
                return None
            if found:
                chosen = whole or found
                return chosen[0] if len({each.shape for each in chosen}) == 1 else None
        return None


def _ends_of(key: str) -> list[str]:
    """Return ``a.b.c``, ``b.c``, ``c``: the longest first; of a very deep key the last sixteen."""
    tokens = key.split(".")
    return [".".join(tokens[start:]) for start in range(max(len(tokens) - _DEEPEST, 0), len(tokens))]
