"""``ckptdoctor fix`` repairs a checkpoint without losing anything."""

from __future__ import annotations

from typing import Any

import click

from ckptdoctor import config as settings
from ckptdoctor.checkpoint import process
from ckptdoctor.cli.command import Choice
from ckptdoctor.cli.console import complain, emit, narrate, paint, succeed, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import WithModel, as_json, codes, color, files, quiet, reference_options
from ckptdoctor.cli.progress import NOTHING_WRITTEN, drawn
from ckptdoctor.diagnose.selection import Selection, of_project
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.errors import CkptDoctorError, UnreadableError, UsageError
from ckptdoctor.examine.targets import read_reference
from ckptdoctor.findings import RepairReport
from ckptdoctor.match.shapes.projections import QKV_LAYOUTS
from ckptdoctor.noun import noun, replace
from ckptdoctor.repair.request import (
    EXPERT_LAYOUTS,
    ORTHOGONAL_MAPS,
    FixRequest,
    cast_target,
    substitution,
)

_EXAMPLES = (
    ("Every safe repair of what check finds", "ckptdoctor fix model.pt"),
    (
        "Move everything to the CPU, and cast the weights to bfloat16",
        "ckptdoctor fix epoch=9.ckpt --to-cpu --dtype bf16 -o half.pt",
    ),
    ("Make it fit what another checkpoint fits", "ckptdoctor fix model.pt --like base.pt -o fitting.pt"),
)
_GROUPS = {
    "Names": ("strip_module", "strip_prefixes", "add_prefix", "renames", "map_file", "reverse", "write_map"),
    "Device and pickle": ("to_cpu", "weights_only_safe"),
    "Size and dtype": ("dtype", "drop", "keep", "slim", "root", "clone_shared", "tie"),
    "Adapter and optimizer": ("merge_adapter", "remap_optimizer"),
    "Target": (
        *("auto", "model", "config", "like", "error"),
        *("qkv_layout", "expert_layout", "heads", "orthogonal_map"),
    ),
    "Safety": ("select", "unsafe", "diff"),
    "Output": ("output", "in_place", "force", "style", "quiet", "color"),
}


@click.command("fix", cls=WithModel, examples=_EXAMPLES, groups=_GROUPS)
@click.argument("path", shell_complete=files)
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    shell_complete=files,
    help="The file to write, or a directory; the suffix decides the format.  [default: PATH.fixed.EXT]",
)
@click.option(
    "--in-place",
    is_flag=True,
    help="Change the file itself, or a folder's shards and index, without copying; ckptdoctor undo PATH restores it.",
)
@click.option("--strip-module", is_flag=True, help='Strip prefixes that training wrappers add: "module." and others.')
@click.option("--strip-prefix", "strip_prefixes", multiple=True, metavar="P", help="Strip this prefix from keys.")
@click.option("--add-prefix", metavar="P", help="Add this prefix to keys.")
@click.option("--rename", "renames", multiple=True, metavar="REGEX=REPL", help="Replace in keys.")
@click.option(
    "--merge-adapter",
    metavar="FROM",
    shell_complete=files,
    help="Add a LoRA or IA3 adapter to the weights: its folder or file; for an adapter inside PATH, its "
    "adapter_config.json or alpha=N.",
)
@click.option("--to-cpu", is_flag=True, help="Move every tensor to the CPU.")
@click.option("--weights-only-safe", is_flag=True, help="Convert objects that torch.load rejects into plain data.")
@click.option("--clone-shared", is_flag=True, help="Give tensors that share memory storages of their own.")
@click.option(
    "--remap-optimizer", is_flag=True, help="Renumber optimizer states to match --model, --like or the weights."
)
@click.option("--tie", is_flag=True, help="Re-tie weights with identical bytes so they share storage.")
@click.option("--dtype", metavar="DTYPE", help="Cast the weights to float32, bf16, fp16 or float64.")
@click.option("--drop", multiple=True, metavar="PATTERN", help="Drop what matches: a key, or a path such as optimizer.")
@click.option("--keep", multiple=True, metavar="PATTERN", help="Keep only what matches.")
@click.option("--slim", is_flag=True, help="Drop what only resuming needs: optimizers, schedulers and the like.")
@click.option("--root", metavar="KEY", help='Make one part the whole contents, such as "state_dict".')
@click.option(
    "--auto",
    is_flag=True,
    help="Apply every repair that makes it fit a target; --model, --config, --like and --error imply it.",
)
@reference_options
@click.option(
    "--error",
    metavar="TEXT",
    shell_complete=files,
    help="The target is what this load_state_dict error expects: its text, or a file with it.",
)
@click.option("--qkv-layout", type=Choice(QKV_LAYOUTS), help="How fused queries, keys and values are laid out.")
@click.option(
    "--expert-layout",
    type=Choice(EXPERT_LAYOUTS),
    help="The layout of the slices of stacked experts: outputs × inputs, or inputs × outputs.",
)
@click.option("--heads", type=int, metavar="N", help="Number of attention heads, if no config has it.")
@click.option("--orthogonal-map", type=Choice(ORTHOGONAL_MAPS), help="The map of orthogonal parametrizations.")
@click.option(
    "--write-map",
    metavar="JSON",
    shell_complete=files,
    help="Write which key became which, or what is uncertain, for --map.",
)
@click.option(
    "--map", "map_file", metavar="JSON", shell_complete=files, help="Rename as this file from --write-map describes."
)
@click.option("--reverse", is_flag=True, help="With --map: rename in reverse.")
@codes("--select", "Apply only the repairs of these rules: codes, names or prefixes, separated by commas.")
@click.option("--unsafe-fixes", "unsafe", is_flag=True, help="Also apply repairs that change or drop something.")
@click.option("--diff", is_flag=True, help="Show every name that would change, and write nothing.")
@click.option("--force", is_flag=True, help="Replace an existing output, even the original itself.")
@as_json
@quiet
@color
def command(path: str, diff: bool, style: str, color: str, **asked: Any) -> ExitStatus:
    """Repair a checkpoint without losing anything.

    Without options, every safe repair of what check finds is applied. With options, just those: first --root, then
    --map, --drop and --keep, --slim, --strip-module, --strip-prefix, --rename, --add-prefix, --merge-adapter, --to-cpu,
    --weights-only-safe, --clone-shared, --tie, --auto, --remap-optimizer, --dtype, and last --select. The output is
    verified before it gets its name, and the original is never touched, except with --in-place or --force.

    Exit status: 0 repaired and verified, or nothing to repair, and nothing prevents loading; 1 something was refused or
    is still wrong; 2 invalid usage or an unreadable path.
    """
    from ckptdoctor.converting.fixing import fix

    voice = _Voice(path, style, color, diff)
    request = request_of(path, **asked)
    try:
        with drawn(NOTHING_WRITTEN):
            outcome = fix(request, dry=diff)
    except KeyboardInterrupt as interrupt:
        voice.refuse_json(str(interrupt))
        raise
    except (UsageError, UnreadableError):
        raise
    except CkptDoctorError as error:
        voice.refuse(error)
        return ExitStatus.FINDINGS
    process.keep(outcome)
    report = outcome.report
    remains = asked["select"] and report.left
    status = ExitStatus.FINDINGS if remains or (report.blocked and not diff) else ExitStatus.CLEAN
    voice.tell(report, status)
    return status


def request_of(
    path: str,
    select: tuple[str, ...] | None,
    renames: tuple[str, ...],
    map_file: str | None,
    reverse: bool,
    like: str | None,
    model: str | None,
    config: str | None,
    error: str | None,
    **asked: Any,
) -> FixRequest:
    """Return the request of a command line.

    Where it names no change at all, the project's configuration says which rules matter.
    """
    with drawn(NOTHING_WRITTEN):
        reference = read_reference(Settings(like=like, model=model, config=config, error=error), path)
    if reference is not None and reference.told:
        narrate(f"note: {reference.told}")
    if (reference is not None or error is not None) and not asked["remap_optimizer"]:
        asked["auto"] = True  # what else would a target be for
    if asked["qkv_layout"] is not None and not asked["auto"]:
        raise UsageError("--qkv-layout is for a repair towards a target: add --like OTHER or --model MODULE:NAME.")
    if asked["expert_layout"] is not None and not asked["auto"]:
        raise UsageError("--expert-layout is for a repair towards a target: add --like OTHER or --model MODULE:NAME.")
    if asked["orthogonal_map"] is not None and not asked["auto"]:
        raise UsageError("--orthogonal-map is for a repair towards a target: add --like OTHER or --model MODULE:NAME.")
    from ckptdoctor.converting.fixing import read_map

    name_map = read_map(map_file, reverse)
    asked["dtype"] = None if asked["dtype"] is None else cast_target(asked["dtype"])
    request = FixRequest(
        path,
        renames=tuple(map(substitution, renames)),
        selection=Selection(select),
        reference=reference,
        error=error,
        name_map=name_map,
        **asked,
    )
    if request.named or request.auto or select is not None:
        return request
    return replace(request, selection=of_project(settings.load()))


@noun(frozen=False)
class _Voice:
    """Says what became of the repair, in one style."""

    path: str
    style: str
    color: str
    diff: bool

    def tell(self, report: RepairReport, status: ExitStatus) -> None:
        from ckptdoctor.rendering import fix_json, fix_text

        if self.style == "json":
            from ckptdoctor import __version__

            emit(fix_json.render(report, __version__))
        elif self.diff:
            emit(fix_text.difference(report, paint(self.color)))
        elif status is ExitStatus.CLEAN:
            succeed(fix_text.outcome(report, paint(self.color), width()))
        else:
            emit(fix_text.outcome(report, paint(self.color), width()))

    def refuse(self, error: CkptDoctorError) -> None:
        from ckptdoctor.rendering import fix_text

        if self.style == "json":
            self.refuse_json(error.message, "refused")
            complain(error.message.split("\n")[0])
        else:
            emit(fix_text.refused(error.message, paint(self.color)))

    def refuse_json(self, message: str, status: str = "interrupted") -> None:
        from ckptdoctor.rendering import fix_json

        if self.style == "json":
            from ckptdoctor import __version__

            emit(fix_json.refused(self.path, message, __version__, status))
