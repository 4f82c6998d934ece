"""Nothing that a pickle names is imported, looked up or called."""

from __future__ import annotations

import pickle

import pytest

from tests.pickles.children import run

# Ends the child at once when anything but computing happens once the files have been read.
GUARD = """
import copyreg, os
forbidden = ("import", "exec", "compile", "open", "os.", "subprocess.", "socket.", "pickle.", "marshal.", "ctypes.",
             "object.__getattr__", "object.__setattr__", "code.__new__", "function.__new__", "shutil.", "builtins.")
copyreg.add_extension("os", "system", 240)
import _pickle
_pickle.loads(b"\\x82\\xf0.")  # the cache is warm: unpicklers call the function without asking anybody
def guard(event, arguments, write=os.write, leave=os._exit):
    noun = event == "object.__setattr__" and arguments[1] == "__class__" and type(arguments[0]).__module__
    if noun and noun.startswith("ckptdoctor."):
        return  # a noun of ours that has just been made, and is frozen now
    if event.startswith(forbidden):
        write(2, f"{event} {arguments}".encode())
        leave(3)
sys.addaudithook(guard)
"""

COMMAND = b"X\x05\0\0\0touch"

CANARIES = {
    "GLOBAL": b"cos\nsystem\n.",
    "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    "STACK_GLOBAL with dots": b"\x80\x04\x8c\x02os\x8c\x08path.sep\x93.",
    "REDUCE": b"cos\nsystem\n(" + COMMAND + b"tR.",
    "INST": b"(" + COMMAND + b"ios\nsystem\n.",
    "OBJ": b"(cos\nsystem\n" + COMMAND + b"o.",
    "OBJ and POP": b"(cos\nsystem\n" + COMMAND + b"o0N.",
    "NEWOBJ": b"\x80\x02cos\nsystem\n(" + COMMAND + b"t\x81.",
    "NEWOBJ_EX": b"\x80\x04cos\nsystem\n(" + COMMAND + b"t}\x92.",
    "BUILD": b"cos\nsystem\n(" + COMMAND + b"tR}" + COMMAND + b"Nsb.",
    "BUILD of a class": b"cos\nstat_result\n}" + COMMAND + b"Nsb.",
    "PERSID": b"Pos.system\n.",
    "BINPERSID": b"cos\nsystem\n(" + COMMAND + b"tRQ.",
    "EXT1": b"\x80\x02\x82\xf0(" + COMMAND + b"tR.",
    "EXT2": b"\x80\x02\x83\xf0\0(" + COMMAND + b"tR.",
    "EXT4": b"\x80\x02\x84\xf0\0\0\0(" + COMMAND + b"tR.",
    "APPEND to a call": b"cos\nsystem\n(" + COMMAND + b"tRNa.",
    "a call as key": b"}cos\nsystem\n(" + COMMAND + b"tRNs.",
    "a call in a frame": b"\x80\x04\x95\x02\0\0\0\0\0\0\0(cos\nsystem\n(" + COMMAND + b"tRt.",
    "text of every kind": pickle.dumps(["é\U0001f600\\\n", b"\xff", 1.5, 10**40, {"a": (1,)}], 0),
    "strings of Python 2": b"(S'\\xff'\nU\x01\xffT\x01\0\0\0\xfft.",
    "buffers": b"\x80\x05\x97\x98\x96\x01\0\0\0\0\0\0\0a\x86.",
}


def test_nothing_a_pickle_names_is_run(tmp_path):
    """Under an audit hook that ends the process at any import, call to the system or look-up, all canaries live."""
    said = run(tmp_path, CANARIES.values(), after=GUARD)
    assert len(said) == len(CANARIES)
    assert all(outcome[0] not in ("DamagedError", "TruncatedError") for outcome, _, _ in said)


@pytest.mark.parametrize("name", ["GLOBAL", "REDUCE", "EXT1"])
def test_the_guard_notices_what_pickle_does(tmp_path, name):
    """The same hook ends the process when the standard unpickler reads the canary."""
    with pytest.raises(AssertionError, match=r"^(pickle\.find_class|os\.system) "):
        run(
            tmp_path,
            [CANARIES[name]],
            after=GUARD + "\npickle_loads = _pickle.loads; decode = lambda data: pickle_loads(data)",
        )
