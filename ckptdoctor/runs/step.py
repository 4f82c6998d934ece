"""Reads how far training was when it saved: from the contents first, then from the name.

A modification time is never a step. It decides only between checkpoints of which neither contents nor names say
anything that can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Mapping as Texts
from contextlib import closing
from struct import unpack

from ckptdoctor.checkpoint import Checkpoint, FileSource, Mapping, Node, Source, Tensor
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.facts.optimizers import as_number
from ckptdoctor.noun import noun
from ckptdoctor.remote import open_remote
from ckptdoctor.remote.addresses import is_address

Key = tuple[int, int, tuple[int, ...]]

# a number in a name, and the word that it follows
_NUMBER = re.compile(r"([A-Za-z]*)([-_=. ]*)(\d+\.\d+|\d+)")
_STEPS = frozenset(
    {"step", "steps", "globalstep", "iter", "iters", "iteration", "iterations", "it", "itr", "update", "updates"}
)
_EPOCHS = frozenset({"epoch", "epochs", "ep"})
# words that do not say what is counted
_ANYTHING = frozenset(
    {"", "checkpoint", "checkpoints", "ckpt", "chkpt", "cp", "model", "weights", "net", "snapshot", "state", "save"}
    | {"optim", "optimizer"}
)
_VERSION = "v"  # Lightning adds -v1, -v2 where a name is taken
_MOST_DIGITS = 18


@noun
class Numbers:
    """The numbers in a name: ``others`` are those that do not say what they count.

    ``template`` is the name without them. ``version`` is that of files that would have had one name.
    """

    template: str
    step: int | None = None
    epoch: int | None = None
    others: tuple[int, ...] = ()
    version: int = 0

    @property
    def any(self) -> bool:
        """Whether there is one that orders checkpoints."""
        return self.step is not None or self.epoch is not None or bool(self.others)

    @property
    def key(self) -> Key:
        """The numbers alone, in the order in which they count."""
        return (
            -1 if self.epoch is None else self.epoch,
            -1 if self.step is None else self.step,
            self.others,
        )


def numbers_in(stem: str) -> Numbers:
    """Return the numbers in a name without its suffix. Those after any other word, such as fold2, stay in its text."""
    step = epoch = None
    version, others, template, end = 0, [], [], 0
    for match in _NUMBER.finditer(stem):
        word, number = match[1].lower(), match[3]
        template.append(stem[end : match.start(3)])
        end = match.end(3)
        if "." in number or len(number) > _MOST_DIGITS:  # a loss or an accuracy
            template.append("~")
        elif word in _STEPS and step is None:
            step = int(number)
            template.append("#")
        elif word in _EPOCHS and epoch is None:
            epoch = int(number)
            template.append("#")
        elif word == _VERSION:
            version = int(number)
            template[-1] = template[-1].removesuffix(match[1] + match[2]).removesuffix("-")
        elif word in _ANYTHING:
            others.append(int(number))
            template.append("#")
        else:
            template.append(number)
    return Numbers("".join([*template, stem[end:]]), step, epoch, tuple(others), version)


@noun
class Position:
    """How far training was. ``total``: the step counts from the beginning of the run, not of its epoch.

    ``source`` is where it was read: the name of a value or a file, "" for the name of the checkpoint.
    """

    step: int | None = None
    epoch: float | None = None
    total: bool = False
    source: str = ""

    @property
    def known(self) -> bool:
        """Whether anything is known."""
        return self.step is not None or self.epoch is not None

    def __str__(self) -> str:
        epoch = "" if self.epoch is None else f"epoch {self.epoch:g}"
        step = "" if self.step is None else f"step {self.step}"
        return ", ".join([each for each in (epoch if not self.total or not step else "", step) if each])


def of_name(numbers: Numbers) -> Position:
    """Return what a name says of itself; a lone number that does not say what it counts is taken for a step."""
    step = numbers.step
    if step is None and numbers.epoch is None and numbers.others:
        step = numbers.others[-1]
    return Position(step, numbers.epoch)


# ---- the contents


# names of counters at the top of a checkpoint, the surest first: Lightning and the Trainer, DeepSpeed, Megatron,
# nanoGPT, and what scripts call them
_TOTAL = ("global_step", "global_steps", "iteration", "iter_num", "num_updates")
_MAYBE = ("step", "steps", "iter", "it", "current_step", "train_step", "num_steps")
_COUNTED = ("epoch", "epochs", "current_epoch")
# where they are one level deeper: torchtitan, and what scripts call the rest
_DEEPER = ("train_state", "trainer", "trainer_state", "training_state", "progress", "meta", "metadata", "state")
_FEW = 64  # entries of a mapping that is not a state dict


def of_state(state: dict[str, object] | None, source: str) -> Position:
    """Return what a JSON file such as ``trainer_state.json`` says."""
    if state is None:
        return Position()
    step, epoch = state.get("global_step"), state.get("epoch")
    return Position(
        step if isinstance(step, int) and not isinstance(step, bool) else None,
        float(epoch) if isinstance(epoch, (int, float)) and not isinstance(epoch, bool) else None,
        total=True,
        source=source,
    )


def of_contents(checkpoint: Checkpoint) -> Position:
    """Return what the counters in a checkpoint say; nothing is read except scalars that are tensors."""
    for name, entries in _places(checkpoint.tree):
        counter = next((each for each in (*_TOTAL, *_MAYBE) if _count(entries.get(each)) is not None), "")
        counted = next((each for each in _COUNTED if scalar(entries.get(each)) is not None), "")
        if counter or counted:
            step = _count(entries[counter]) if counter else None
            epoch = scalar(entries[counted]) if counted else None
            return Position(step, epoch, counter in _TOTAL, f"{name}{counter or counted}")
    return _of_metadata(checkpoint.metadata or {})


# what scripts write into the header of safetensors: kohya's, and counters under their usual names
_IN_METADATA = (*_TOTAL, *_MAYBE, "ss_steps")
_COUNTED_IN_METADATA = (*_COUNTED, "ss_epoch")


def _of_metadata(metadata: Texts[str, str]) -> Position:
    said = {name: int(text) for name, text in metadata.items() if text.isascii() and text.isdigit() and len(text) <= 18}
    step = next((each for each in _IN_METADATA if each in said), "")
    epoch = next((each for each in _COUNTED_IN_METADATA if each in said), "")
    return Position(said.get(step), said.get(epoch), step in _TOTAL, step or epoch)


def _places(tree: Node) -> Iterator[tuple[str, dict[str, Node]]]:
    """Yield the mappings that may hold counters, the outer one first: of Megatron and DeepSpeed that of any rank."""
    if not isinstance(tree, Mapping):
        return
    top = {part: node for part, node in tree.entries if isinstance(part, str)}
    yield "", top
    for name in _DEEPER:
        yield from _inside(name, top.get(name))
    for name, node in top.items():
        if name.startswith(("mp_rank_", "zero_pp_rank_")):
            yield from _inside(name, node)


def _inside(name: str, node: Node) -> Iterator[tuple[str, dict[str, Node]]]:
    if isinstance(node, Mapping) and len(node.entries) <= _FEW:
        yield f"{name}/", {part: each for part, each in node.entries if isinstance(part, str)}


def _count(node: Node) -> int | None:
    number = scalar(node)
    return int(number) if number is not None and number == number // 1 and 0 <= number < 10**_MOST_DIGITS else None


def scalar(node: Node) -> float | None:
    """Return a number, also one that was saved as a tensor; None for anything else."""
    return _scalar(node) if isinstance(node, Tensor) else as_number(node)


def _scalar(tensor: Tensor) -> float | None:
    """Return a number that was saved as a tensor: torchtitan does so with its step, Lightning with its scores."""
    storage = tensor.storage
    if tensor.shape not in ((), (1,)) or storage is None or storage.extent is None or tensor.dtype.kind not in _KINDS:
        return None
    width = tensor.dtype.bits // 8
    at = storage.extent.offset + tensor.offset * width
    try:
        with closing(_opened(storage.extent.file)) as source:
            data = source.read(at, width)
    except CkptDoctorError:
        return None
    if tensor.dtype.kind == "float":
        return float(unpack(_FLOATS[width], data)[0]) if tensor.dtype.name in ("float32", "float64") else None
    return float(int.from_bytes(data, "little", signed=tensor.dtype.kind == "int"))


_KINDS = ("int", "uint", "float")
_FLOATS = {4: "<f", 8: "<d"}


def _opened(path: str) -> Source:
    return open_remote(path) if is_address(path) else FileSource(path)


# ---- which of two is newer


def disagree(said: Position, numbers: Numbers) -> bool:
    """Return whether contents contradict the name; counters that begin at 0 or 1 are one apart."""
    if numbers.step is not None and said.step is not None and said.total:
        return abs(numbers.step - said.step) > 1
    if numbers.epoch is not None and said.epoch is not None:
        return abs(numbers.epoch - said.epoch) > 1
    if numbers.step is not None and said.step is not None:
        return abs(numbers.step - said.step) > 1
    if numbers.others and said.known and numbers.step is None and numbers.epoch is None:
        counted = [each for each in (said.step, said.epoch) if each is not None]
        return all(abs(numbers.others[-1] - each) > 1 for each in counted)
    return False


def compared(one: Position, other: Position) -> int:
    """Return a positive number where the first is newer, a negative one for the second, 0 where nothing says which."""
    if one.known != other.known:
        return 1 if one.known else -1
    if one.step is not None and other.step is not None and one.total and other.total:
        return one.step - other.step
    if one.epoch is not None and other.epoch is not None:
        by_epoch = (one.epoch > other.epoch) - (one.epoch < other.epoch)
        if by_epoch or one.step is None or other.step is None:
            return by_epoch
    if one.step is not None and other.step is not None:
        return one.step - other.step
    return 0
