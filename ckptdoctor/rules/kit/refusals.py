"""torch 2.13 and safetensors 0.8 word their refusals in these lines."""

from __future__ import annotations

from ckptdoctor.checkpoint import Container, GlobalName
from ckptdoctor.facts.globals import NEEDS_IMPORT, modern

TENSOR_PARALLEL = "torch.distributed.tensor"
HEADER = "Error while deserializing header: "  # how safetensors begins each refusal

# modules that torch refuses even where the user allows them
BLOCKED_MODULES = frozenset({"sys", "os", "posix", "nt"})


# the opcodes of torch._weights_only_unpickler.Unpickler.load
_TORCH_OPCODES = b"().GJKMNQRUX]abcehjqrstu}\x80\x81\x85\x86\x87\x88\x89\x8a\x8f"
# the opcodes of every pickle protocol (pickletools.opcodes)
_PICKLE_OPCODES = b"().012BCFGIJKLMNPQRSTUVX]abcdeghijlopqrstu}" + bytes(range(0x80, 0x99))


def is_safetensors_name(container: Container) -> bool:
    """Return whether people would open the file with safetensors."""
    return container.path.lower().endswith(".safetensors")


def torch_says(container: Container) -> tuple[str, ...]:
    """Return how the library that the file's name calls for refuses a file that is not a checkpoint: by its first byte.

    Nothing where that byte is an opcode: then the message depends on what follows.
    """
    if is_safetensors_name(container):
        return (f"{HEADER}header too large",)
    if not container.head:
        return ()
    first = container.head[0]
    # with weights_only=True (the default since torch 2.6), and with weights_only=False
    strict = () if first in _TORCH_OPCODES else (f"Unsupported operand {first}",)
    return strict if first in _PICKLE_OPCODES else (*strict, f"invalid load key, '{_escaped(first)}'.")


def _escaped(byte: int) -> str:
    """Return a byte as ``pickle`` shows it: itself, or ``\\x1f``."""
    return chr(byte) if 0x20 <= byte < 0x7F and chr(byte) not in "'\\" else f"\\x{byte:02x}"


def torch_shows(path: str) -> str:
    """Return a full name as torch words it in its refusal: without ``builtins.``."""
    return path.removeprefix("builtins.")


# the names of Python 2 that torch 2.13 reads as those of Python 3; Python itself knows many more
_TORCH_MODULES = frozenset(
    {
        *("__builtin__", "copy_reg", "Queue", "repr", "_abcoll", "UserDict", "UserList", "UserString", "whichdb"),
        *("StringIO", "cStringIO"),
    }
)
_TORCH_NAMES = frozenset(
    {
        *[f"itertools.{name}" for name in ("izip", "imap", "ifilter", "ifilterfalse", "izip_longest")],
        "exceptions.StandardError",
    }
)


def torch_reads(name: GlobalName) -> str:
    """Return the full name under which torch looks for a class: an exception stays ``exceptions.ValueError``."""
    return ".".join(_read_by_torch(name))


def _read_by_torch(name: GlobalName) -> tuple[str, str]:
    known = name.module in _TORCH_MODULES or name.full in _TORCH_NAMES
    return modern(name.module, name.name) if known else (name.module, name.name)


def unsupported_global(name: GlobalName) -> str:
    """Return how ``torch.load(weights_only=True)`` refuses a class or function that the file names."""
    path = torch_reads(name)
    if path in NEEDS_IMPORT:
        what = "nested jagged tensors (NJTs)" if NEEDS_IMPORT[path] != TENSOR_PARALLEL else "DTensors"
        modules = f"``{TENSOR_PARALLEL}``" if what == "DTensors" else "``torch.nested`` and ``torch._dynamo``"
        return f"{modules} must be imported to load {what}"
    module, _ = _read_by_torch(name)
    if module in BLOCKED_MODULES:
        return f"Trying to load unsupported GLOBAL {path} whose module {module} is blocked."
    return f"Unsupported global: GLOBAL {torch_shows(path)} was not an allowed global by default."


def not_importable(path: str) -> str:
    """Return what ``pickle`` says, with weights_only=False, where the class does not exist."""
    module, _, name = path.rpartition(".")
    if module == "__main__":
        return f"Can't get attribute '{name}' on <module '__main__'"
    return f"No module named '{module.partition('.')[0]}'"
