"""The file was pickled with a newer protocol than torch uses.

Meaning
    ``torch.save`` uses protocol 2 unless another is requested (``pickle_protocol=4``).

Why it matters
    torch's ``weights_only`` reader, the default since 2.6, knows only the opcodes of protocols 2 and 3: it rejects
    every file with protocol 4 or 5. Python before 3.8 cannot read protocol 5 either.

Symptoms
    Unsupported operand 149
    Detected pickle protocol 4 in the checkpoint, which was not the default pickle protocol used by `torch.load` (2).
    unsupported pickle protocol: 5

Detection
    The first bytes of the pickle. Protocol 3 loads, with a warning, so that is only info.

Repair
    ``ckptdoctor fix FILE --select P211`` writes the same values with protocol 2; a file in torch's old format becomes
    an archive. Safe: no value changes. There is no repair where protocol 2 cannot express a value, such as a frozenset
    or a nested class.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.first_bytes import pickle_protocol
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.pickle.repickling import can_be_repickled, repickle_fix
from ckptdoctor.rules.when import newer_pickle_protocol

_DEFAULT = 2  # torch.serialization.DEFAULT_PROTOCOL
_KNOWN = 3  # the newest that weights_only reads


def _dumped(protocol: int) -> bytes:
    """Return what torch.save writes of an epoch in the old format, all of it with this protocol."""
    import pickle

    parts: tuple[object, ...] = (
        0x1950A86A20F9469CFC6C,
        1001,
        {"protocol_version": 1001, "little_endian": True},
        {"epoch": 3},
        [],
    )
    return b"".join([pickle.dumps(part, protocol) for part in parts])


MESSAGES = (
    Message(
        ("unsupported pickle protocol:",),
        "the file was pickled with protocol {protocol}, which this Python is too old to read",
        (Way("save it with", "torch.save(weights, path, pickle_protocol=2)"),),
        then=r"(?P<protocol>\d{1,3})",
    ),
)
SICK = (
    Example("protocol 4", {}, damage=lambda data: _dumped(4)),
    Example("protocol 3", {}, damage=lambda data: _dumped(3)),
)
HEALTHY = (
    Example("the protocol of torch", {"w": T((3,))}),
    Example("the protocol of torch in its old format", {"w": T((3,))}, "torch legacy"),
)


@rule("P211", "compat-protocol", Severity.ERROR, when=newer_pickle_protocol)
def compat_protocol(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report a protocol that weights_only does not read."""
    protocol = pickle_protocol(checkpoint.container)
    if protocol is None or protocol <= _DEFAULT:
        return
    refused = protocol > _KNOWN
    warned = f"Detected pickle protocol {protocol} in the checkpoint, which was not the default pickle protocol used by"
    yield Problem(
        message=f"it was pickled with protocol {protocol}, where torch.save uses {_DEFAULT}",
        cause=(
            "Saved with pickle_protocol=…; torch.load rejects it by default since 2.6 (weights_only=True)."
            if refused
            else "Saved with pickle_protocol=3. torch.load reads it, with a warning since 2.6."
        ),
        torch_says=("Unsupported operand 149", warned) if refused else (warned,),
        advice="Save it with the default protocol next time.",
        severity=Severity.ERROR if refused else Severity.INFO,
        fix=repickle_fix(checkpoint, "write it with protocol 2", "P211") if can_be_repickled(checkpoint) else None,
    )
