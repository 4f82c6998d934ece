"""``ckptdoctor setup`` prints or installs the completion of command lines for a shell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import click

from ckptdoctor.cli.command import Choice, Command
from ckptdoctor.cli.console import emit, narrate, succeed
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import quiet
from ckptdoctor.errors import UsageError, WriteError
from ckptdoctor.noun import noun
from ckptdoctor.shell import quote

_SHELLS = ("bash", "zsh", "fish")
_MARK = "  # completion of ckptdoctor"

_EXAMPLES = (
    ("Print the script for a shell", "ckptdoctor setup completion zsh"),
    ("Install it for the shell that you use", "ckptdoctor setup completion --install"),
)


@noun
class _Home:
    """Where a shell has the script, and the line in its own file that loads it; "" if it finds the script itself."""

    script: str
    settings: str = ""
    line: str = ""


@click.command("setup", cls=Command, examples=_EXAMPLES)
@click.argument("what", type=Choice(["completion"]), metavar="completion")
@click.argument("shell", type=Choice(_SHELLS), required=False)
@click.option("--install", is_flag=True, help="Write the script to your home folder, and have the shell load it.")
@quiet
def command(what: str, shell: str | None, install: bool) -> ExitStatus:
    """Set up shell completion.

    The Tab key then completes commands, options and their values, rules and files in bash, zsh or fish. The script
    is printed, or with --install written to your home folder. For bash and zsh, a line that loads it is added to
    ~/.bashrc or ~/.zshrc. What was written is reported, and nothing is written twice. The default shell is that of the
    SHELL variable.

    Exit status: 0 printed or installed, 2 invalid usage, or a file that cannot be written.
    """
    shell = shell or _own_shell(os.environ)
    script = _script(click.get_current_context(), shell)
    if not install:
        emit(script)
        narrate(f"Install it: ckptdoctor setup completion {shell} --install")
        return ExitStatus.CLEAN
    home = _home(shell, os.environ)
    done = list(_installed(home, script))
    loads = f", and {_short(home.settings)} loads it" if home.settings else ""
    for line in done or [f"Nothing to do: {_short(home.script)} is up to date{loads}."]:
        succeed(line)
    if done:
        succeed(f"Open a new shell to use it, or run: source {quote(home.script)}")
    return ExitStatus.CLEAN


def _own_shell(environ: Mapping[str, str]) -> str:
    name = os.path.basename(environ.get("SHELL", ""))
    if name not in _SHELLS:
        raise UsageError("Unknown shell. Name it: ckptdoctor setup completion bash, or zsh, or fish")
    return name


def _script(context: click.Context, shell: str) -> str:
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    script = made(context.find_root().command, {}, "ckptdoctor", "_CKPTDOCTOR_COMPLETE").source().strip()
    # what is offered may have commas in it: codes of rules, and sentences about commands
    return script.replace('string split ","', 'string split --max 1 ","')


def _home(shell: str, environ: Mapping[str, str]) -> _Home:
    home = os.path.expanduser("~")
    if shell == "fish":
        folder = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
        return _Home(os.path.join(folder, "fish", "completions", "ckptdoctor.fish"))
    data = environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    script = os.path.join(data, "ckptdoctor", f"completion.{shell}")
    loading = f". {quote(script)}"
    if shell == "zsh":
        # the script registers itself with zsh's own completion, which not every .zshrc has begun
        loading = f"{{ (( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}; {loading} }}"
        settings = os.path.join(environ.get("ZDOTDIR") or home, ".zshrc")
    else:
        settings = os.path.join(home, ".bashrc")
    return _Home(script, settings, f"[ -f {quote(script)} ] && {loading}{_MARK}")


def _installed(home: _Home, script: str) -> Iterator[str]:
    """Write what is not there yet; a sentence for each thing that was done. Raises WriteError."""
    if _read(home.script) != f"{script}\n":
        _write(home.script, f"{script}\n", "w")
        yield f"Wrote {_short(home.script)}"
    if home.settings:
        known = _read(home.settings)
        if home.line not in known.splitlines():
            _write(home.settings, f"{'' if not known or known.endswith(chr(10)) else chr(10)}{home.line}\n", "a")
            yield f"Added a line to {_short(home.settings)}: {home.line}"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise WriteError(f"{path} cannot be read: {error.strerror}. Nothing was written to it.") from error


def _write(path: str, text: str, mode: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise WriteError(f"{path} cannot be written: {error.strerror}.") from error


def _short(path: str) -> str:
    """Return the path as people write it: ``~/.bashrc``."""
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path.startswith(f"{home}{os.sep}") else path
