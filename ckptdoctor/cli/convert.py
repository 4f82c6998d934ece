"""``ckptdoctor convert`` writes the same tensors into another container."""

from __future__ import annotations

import click

from ckptdoctor.cli.console import complain, emit, paint, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import SHORT_HELP, as_json, color
from ckptdoctor.cli.progress import NOTHING_WRITTEN, drawn
from ckptdoctor.converting.request import KINDS, ConvertRequest
from ckptdoctor.errors import CkptDoctorError, UnreadableError, UsageError


@click.command("convert", context_settings=SHORT_HELP)
@click.argument("path")
@click.argument("output")
@click.option("--shard-size", metavar="SIZE", help="Write a folder of files of at most this size each: 5GB.")
@click.option("--to", type=click.Choice(KINDS), help="What to write, whatever OUTPUT is called; dcp is a folder.")
@click.option("--root", metavar="KEY", help='Only the part of the file under this key, such as "state_dict".')
@click.option("--flatten", is_flag=True, help="Every tensor, under its whole path: optimizer/state/0/exp_avg.")
@click.option(
    "--keep-ties",
    type=click.Choice(["owner", "clone"]),
    default="owner",
    show_default=True,
    help="Of tied tensors write one, and note its other names; or write each.",
)
@click.option("--force", is_flag=True, help="Replace an existing output.")
@as_json
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
    """Write a checkpoint in another container.

    OUTPUT's suffix says which: .pt, .pth, .ckpt or .bin, .safetensors, or a folder of safetensors shards with their
    index; --to dcp makes a folder of torch.distributed.checkpoint. PATH is anything that check can read. What are no
    tensors goes into OUTPUT.extra.json where safetensors has no place for it, and what cannot be kept is refused with a
    list. The output is verified before it gets its name.
    Exit status: 0 converted, 1 refused, 2 the request makes no sense, or the path cannot be read.
    """
    size, clone = shard_size_of(shard_size), keep_ties == "clone"
    request = ConvertRequest((path,), output, size, root, flatten=flatten, clone=clone, force=force, to=to)
    return carried_out(request, style, color)


def shard_size_of(text: str | None) -> int | None:
    """``--shard-size`` in bytes."""
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
        emit(shown.render(report, paint(color), width()))
    return ExitStatus.CLEAN
