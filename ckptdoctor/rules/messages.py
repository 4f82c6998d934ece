"""What programs print when a rule's problem keeps a checkpoint from loading: each rule names these messages itself.

``explain`` looks for them in texts. ``MESSAGES`` in the module of a rule holds them, and ``SIGNS`` the keys that give
it away in an error of ``load_state_dict``; what follows the classes here is shared by several rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import Enum, IntEnum

from ckptdoctor.noun import noun


class Weight(IntEnum):
    """How much a message tells of the cause; the lower, the more."""

    CAUSE = 0
    """It names the cause."""

    OUTCOME = 1
    """It tells what came of another failure, or only warns; alone it is explained all the same."""

    ECHO = 2
    """It says so little that next to any other message it is not mentioned."""


@noun
class Way:
    """One thing to do: a label ("load it with") and code or a command. FILE stands for the file's name."""

    label: str
    command: str


@noun
class Message:
    """A message: the words that it always has, and a pattern for those that follow at once.

    Blanks in ``says`` and ``then`` stand for nothing: they are compared with text that has none. ``says`` are other
    wordings of one message. ``meaning`` and ``ways`` may name the groups of ``then`` in braces. ``near`` are words of
    which one has to stand close by, always; ``among``: wherever there is a traceback to look in. ``also`` are other
    rules that the same words may mean. Of several messages at one place the least ``general`` is meant.
    ``code`` is that of the rule whose module names the message, "" where no rule is about it.
    """

    says: tuple[str, ...]
    meaning: str
    ways: tuple[Way, ...] = ()
    then: str = ""
    also: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    among: tuple[str, ...] = ()
    weight: Weight = Weight.CAUSE
    holds: Callable[[dict[str, str]], bool] | None = None  # what the groups of ``then`` have to be, beyond the pattern
    general: int = 0
    code: str = ""


class Repair(Enum):
    """What ``fix --auto`` with an error of ``load_state_dict`` as its target does about a cause."""

    SAFE = "renames"
    LOSS = "drops or computes something, with --unsafe-fixes"
    BY_HAND = "nothing; the cause names what does"
    NONE = "nothing, and nothing else does either"


@noun
class Sign:
    """Keys that give a problem away in an error of ``load_state_dict``: missing ones, unexpected ones, or both at once.

    Of several signs the least ``general`` takes its keys first.
    """

    meaning: str
    repair: Repair = Repair.NONE
    ways: tuple[Way, ...] = ()
    missing: str = ""  # a pattern of whole keys, "" for none
    unexpected: str = ""
    both: bool = False
    without: bool = False  # the model does without what is missing
    lonely: bool = False  # only keys of layers whose other keys fit
    beside: tuple[str, ...] = ()  # leaves of which the same layer must have one in the list
    general: int = 0

    def among_missing(self, keys: list[str]) -> list[str]:
        """The missing keys that show it."""
        return self._among(keys, self.missing)

    def among_unexpected(self, keys: list[str]) -> list[str]:
        """The unexpected keys that show it."""
        return self._among(keys, self.unexpected)

    def _among(self, keys: list[str], pattern: str) -> list[str]:
        if not pattern:
            return []
        found = [key for key in keys if re.fullmatch(pattern, key) is not None]
        if self.beside:
            there = set(keys)
            found = [key for key in found if any(f"{key.rpartition('.')[0]}.{leaf}" in there for leaf in self.beside)]
        if not self.lonely:
            return found
        others = {key.rpartition(".")[0] for key in set(keys).difference(found)}
        return [key for key in found if key.rpartition(".")[0] not in others]

    def enough(self, missing: list[str], unexpected: list[str]) -> bool:
        """Whether these keys are enough of a sign."""
        return bool(missing and unexpected) if self.both else bool(missing or unexpected)


def leaf(names: str) -> str:
    """The pattern of keys whose last tokens are these."""
    return rf"(?:.*\.)?(?:{names})"


CHECK = Way("see what is wrong", "ckptdoctor check FILE")
DEEP = Way("see what is damaged", "ckptdoctor check FILE --deep")
SAFE = Way("repair it", "ckptdoctor fix FILE")
SHOW = Way("see what it holds", "ckptdoctor show FILE")
STRIP = Way("repair it", "ckptdoctor fix FILE --strip-module")
# where keys or shapes do not fit, only the target tells which repair is meant
COMPARE = Way("see what is wrong", "ckptdoctor check FILE --model MODULE:CLASS")
AUTO = Way("or repair it for your model", "ckptdoctor fix FILE --auto --model MODULE:CLASS")

AGAIN = Way("then", "copy or download it again, and compare its size with the source's")
BASE_MODEL = Way("see which base model and which layers the adapter is for", "ckptdoctor check FILE")
CONFIG_BESIDE = Way("compare it with the configuration beside it", "ckptdoctor check FILE")
START_OVER = Way("or begin anew", "load the model's weights only, and let the optimizer start from nothing")
ON_CPU = Way("load it with", 'torch.load(path, map_location="cpu")')
TO_CPU = Way("or repair it", "ckptdoctor fix FILE --to-cpu")

# torch/_weights_only_unpickler.py
NOT_ALLOWED = r"(?P<global>[\w.<>]{1,300}?)wasnotanallowedglobal"

# parameters whose shapes agree and which torch could not copy: torch.nn.modules.module.Module._load_from_state_dict
# says why behind "an exception" (torch 1.12 to 2.13; before it named the dimensions only)
COPYING = ("While copying the parameter named", "While swapping the parameter named")
COPIED = r"[\"']?(?P<key>[^\"']{1,1000}?)[\"']?,whosedimensionsinthemodelare.{1,400}?anexceptionoccurred:"

# shapes that do not match, in a text that is cut off before it tells them: the key alone says what they are of
# (the same function, torch 0.4 to 2.13)
MISMATCH = ("size mismatch for",)
CUT = (
    r":copyingaparam(?!withshapetorch\.Size\(\[[\d,]{0,200}\]\)fromcheckpoint,"
    r"theshapeincurrentmodelistorch\.Size\(\[[\d,]{0,200}\]\))"
)
CUT_OFF = "the text is cut off before the shapes"
SEE_SHAPES = (Way("see the shapes", "ckptdoctor check FILE --model MODULE:CLASS"),)


def first_byte(byte: int, meaning: str, ways: tuple[Way, ...]) -> Iterator[Message]:
    """Of a file that is no pickle torch names the first byte, as a character or as a number."""
    quoted = chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"  # as the pickle module shows it
    yield Message((f"invalid load key, '{quoted}'",), meaning, ways)
    yield Message((f"Unsupported operand {byte}",), meaning, ways, then=r"(?!\d)")


# programs that run models, and name the first key that they do not know: vLLM 0.4 to 0.11 models/*.py and SGLang 0.4
# srt/models/*.py (params_dict[name])
KEY_ERROR = "KeyError: '"
# vllm/model_executor/models/utils.py AutoWeightsLoader since 0.6.4
NO_MODULE = "There is no module or parameter named '"
# llama.cpp convert_hf_to_gguf.py (convert-hf-to-gguf.py before June 2024), Model.map_tensor_name
NOT_MAPPED = "Can not map tensor '"
NO_PLACE = "the model that the program built has no place for it"
NOT_QUANTISED = (
    "the program does not know that the checkpoint is quantised, or not this way (quantization_config in config.json)"
)


def unknown_key(
    key: str,
    meaning: str,
    ways: tuple[Way, ...] = (CHECK,),
    also: tuple[str, ...] = (),
    general: int = 0,
    says: tuple[str, ...] = (KEY_ERROR, NO_MODULE, NOT_MAPPED),
) -> Iterator[Message]:
    """A program that runs models does not know a key; ``key`` is a pattern of the whole of it."""
    for words in says:
        yield Message((words,), meaning, ways, rf"(?P<key>{key})'", also, general=general)
