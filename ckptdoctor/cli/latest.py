"""``ckptdoctor latest`` prints the path of the newest valid checkpoint of a run."""

from __future__ import annotations

import click

from ckptdoctor.cli.command import Command
from ckptdoctor.cli.console import complain, emit, narrate
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json, files, quiet
from ckptdoctor.cli.progress import drawn

_EXAMPLES = (
    ("The newest checkpoint that training can resume from", "ckptdoctor latest run --resumable"),
    ("The newest one with every byte and value intact", "ckptdoctor latest run --verified"),
)


@click.command("latest", cls=Command, examples=_EXAMPLES)
@click.argument("run", shell_complete=files)
@click.option(
    "--resumable",
    is_flag=True,
    help="It must have what training needs to resume: optimizer, scheduler, random state, every rank.",
)
@click.option(
    "--verified",
    is_flag=True,
    help="Read every byte: checksums must match, and no weights may be NaN, infinite, or all zero.",
)
@click.option("--json", "json", is_flag=True, help="The same as --format json.")
@as_json
@quiet
def command(run: str, resumable: bool, verified: bool, json: bool, style: str) -> ExitStatus:
    """Print the path of the newest valid checkpoint of a run.

    RUN is the folder of a training run: of transformers, Lightning, accelerate, DeepSpeed, Megatron, torchtitan,
    ckptdoctor train, or anything else that numbers its files. It may be an address such as s3://bucket/runs/x.

    Only the path is on stdout: train.py --resume "$(ckptdoctor latest RUN --resumable)". stderr shows what was
    proven about it, and why each newer checkpoint was passed over. One that is still being written is never printed.
    Steps in the contents decide the order, then the numbers in names.

    Exit status: 0 there is one, 1 there is none, 2 invalid usage, or a folder that cannot be listed.
    """
    from ckptdoctor.rendering import latest as shown
    from ckptdoctor.runs.latest import search

    with drawn("Interrupted: no checkpoint was chosen."):
        found = search(run, needs_resumable=resumable, verified=verified)
    if json or style == "json":
        from ckptdoctor import __version__

        emit(shown.as_json(found, __version__))
        return ExitStatus.CLEAN if found.found is not None else ExitStatus.FINDINGS
    if found.found is not None or found.passed_over:
        narrate(shown.told(found))
    if found.found is None:
        complain(shown.nothing(found))
        return ExitStatus.FINDINGS
    emit(found.found.path)
    return ExitStatus.CLEAN
