"""Names of classes and functions as protocol 2 writes them: those of Python 2, which readers translate back."""

from __future__ import annotations

# how Python 2 calls the modules and built-ins that Python 3 renamed and checkpoints name
_MODULES = {"builtins": "__builtin__", "copyreg": "copy_reg"}
_BUILTINS = {"range": "xrange", "str": "unicode", "int": "long", "chr": "unichr"}


def written_in_protocol_2(module: str, name: str) -> tuple[str, str] | None:
    """Module and name for GLOBAL; None where readers would take them for another, or cannot read them."""
    from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

    if "." in name or not f"{module}{name}".isascii() or not f"{module}{name}".isprintable():
        return None
    written = _MODULES.get(module, module), _BUILTINS.get(name, name) if module == "builtins" else name
    back = NAME_MAPPING.get(written, (IMPORT_MAPPING.get(written[0], written[0]), written[1]))
    return written if back == (module, name) else None
