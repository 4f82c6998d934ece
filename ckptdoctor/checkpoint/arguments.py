"""What stands behind ``--`` on the command line: the arguments of the code that ``--model`` names."""

from __future__ import annotations

from contextvars import ContextVar

# what the user's code finds as its command line, behind the name of its file
ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("arguments", default=())


def complete(command: str) -> str:
    """The command with these arguments at its end, where it names a model: it would not do the same without them."""
    theirs = ARGUMENTS.get()
    if not theirs or " --model " not in command:
        return command
    from shlex import join

    return f"{command} -- {join(theirs)}"
