"""``ckptdoctor convert`` writes the same tensors into another container."""

from __future__ import annotations

import click

from ckptdoctor.cli.command import Choice, Command
from ckptdoctor.cli.console import complain, emit, paint, succeed, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json, color, files, quiet
from ckptdoctor.cli.progress import NOTHING_WRITTEN, drawn
from ckptdoctor.converting.request import KINDS, ConvertRequest
from ckptdoctor.errors import CkptDoctorError, UnreadableError, UsageError

_EXAMPLES = (
    ("To safetensors", "ckptdoctor convert base.pt model.safetensors"),
    ("To a folder of safetensors shards with an index", "ckptdoctor convert base.pt shards --shard-size 5GB"),
)


@click.command("convert", cls=Command, examples=_EXAMPLES)
@click.argument("path", shell_complete=files)
@click.argument("output", shell_complete=files)
@click.option("--shard-size", metavar="SIZE", help="Write a folder of files of at most this size each, such as 5GB.")
@click.option("--to", type=Choice(KINDS), help="The output's format, whatever its name; dcp is a folder.")
@click.option("--root", metavar="KEY", help='Convert only the part under this key, such as "state_dict".')
@click.option("--flatten", is_flag=True, help="Write every tensor under its whole path: optimizer/state/0/exp_avg.")
@click.option(
    "--keep-ties",
    type=Choice(["owner", "clone"]),
    default="owner",
    show_default=True,
    help="Write one of each group of tied tensors and note its other names, or write them all.",
)
@click.option("--force", is_flag=True, help="Replace an existing output.")
@as_json
@quiet
@color
def command(
    path: str,
    output: str,
    shard_size: str | None,
    to: str | None,
    root: str | None,
    flatten: bool,
    keep_ties: str,
    force: bool,
    style: str,
    color: str,
) -> ExitStatus:
    """Convert a checkpoint to another format.

    OUTPUT's suffix decides the format: .pt, .pth, .ckpt, .bin or .safetensors; a folder gets safetensors shards and
    their index, and --to dcp writes a torch.distributed.checkpoint folder. PATH is anything that check can read.
    Non-tensor values go to OUTPUT.extra.json, since safetensors cannot hold them; what cannot be kept is refused with
    a list. The output is verified before it gets its name.

    Exit status: 0 converted, 1 refused, 2 invalid usage or an unreadable path.
    """
    size, clone = shard_size_of(shard_size), keep_ties == "clone"
    request = ConvertRequest((path,), output, size, root, flatten=flatten, clone=clone, force=force, to=to)
    return carried_out(request, style, color)


def shard_size_of(text: str | None) -> int | None:
    """Return ``--shard-size`` in bytes."""
    if text is None:
        return None
    from ckptdoctor.converting.request import size_of

    return size_of(text)


def carried_out(request: ConvertRequest, style: str, color: str) -> ExitStatus:
    """Convert, and say what became of it."""
    from ckptdoctor.converting.conversion import convert
    from ckptdoctor.rendering import conversion as shown

    try:
        with drawn(NOTHING_WRITTEN):
            report = convert(request)
    except KeyboardInterrupt as interrupt:
        if style == "json":
            from ckptdoctor import __version__

            emit(shown.refused_as_json(request.paths, str(interrupt), __version__, "interrupted"))
        raise
    except (UsageError, UnreadableError):
        raise
    except CkptDoctorError as error:
        if style == "json":
            from ckptdoctor import __version__

            emit(shown.refused_as_json(request.paths, error.message, __version__))
            complain(error.message.split("\n")[0])
        else:
            emit(shown.refused(error.message, paint(color)))
        return ExitStatus.FINDINGS
    if style == "json":
        from ckptdoctor import __version__

        emit(shown.as_json(report, __version__))
    else:
        succeed(shown.render(report, paint(color), width()))
    return ExitStatus.CLEAN
