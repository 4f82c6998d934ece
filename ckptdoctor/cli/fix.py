"""``ckptdoctor fix`` repairs a checkpoint without losing anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from ckptdoctor import config as settings
from ckptdoctor.cli.console import complain, emit, narrate, paint, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import SHORT_HELP, WithModel, as_json, codes, color, reference_options
from ckptdoctor.cli.progress import NOTHING_WRITTEN, drawn
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.errors import CkptDoctorError, UnreadableError, UsageError
from ckptdoctor.examine.targets import read_reference
from ckptdoctor.findings import RepairReport
from ckptdoctor.match.shapes.projections import QKV_LAYOUTS
from ckptdoctor.noun import noun
from ckptdoctor.repair.request import (
    EXPERT_LAYOUTS,
    ORTHOGONAL_MAPS,
    FixRequest,
    cast_target,
    substitution,
)


@click.command("fix", cls=WithModel, context_settings=SHORT_HELP)
@click.argument("path")
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    help="The file to write, or a directory; .pt, .safetensors and such convert as well.  [default: PATH.fixed.EXT]",
)
@click.option("--strip-module", is_flag=True, help='Strip what training wrappers put before keys: "module." and such.')
@click.option("--strip-prefix", "strip_prefixes", multiple=True, metavar="P", help="Strip this prefix from keys.")
@click.option("--add-prefix", metavar="P", help="Put this prefix before keys.")
@click.option("--rename", "renames", multiple=True, metavar="REGEX=REPL", help="Substitute in keys.")
@click.option(
    "--merge-adapter",
    metavar="FROM",
    help="Add a LoRA or IA3 adapter to the weights: its folder or file; or, for one that is in PATH, its "
    "adapter_config.json or alpha=N.",
)
@click.option("--to-cpu", is_flag=True, help="Bring every tensor to the CPU.")
@click.option("--weights-only-safe", is_flag=True, help="Turn objects that torch.load refuses into plain data.")
@click.option("--clone-shared", is_flag=True, help="Give tensors that share memory bytes of their own.")
@click.option("--remap-optimizer", is_flag=True, help="Number optimizer states as --model, --like or the weights do.")
@click.option("--tie", is_flag=True, help="Make one of weights with the same bytes: views of one storage.")
@click.option("--dtype", metavar="DTYPE", help="Cast the weights: float32, bf16, fp16, float64.")
@click.option("--drop", multiple=True, metavar="PATTERN", help="Drop what matches: a key, or a path such as optimizer.")
@click.option("--keep", multiple=True, metavar="PATTERN", help="Keep only what matches.")
@click.option("--slim", is_flag=True, help="Leave out what only resuming needs: optimizers, schedulers and such.")
@click.option("--root", metavar="KEY", help='Make one part the whole contents, such as "state_dict".')
@click.option(
    "--auto",
    is_flag=True,
    help="Every repair that makes it fit the target: --model, --config, --like or --error, each of which implies it.",
)
@reference_options
@click.option("--error", metavar="TEXT", help="The target is what the error of load_state_dict in this text expects.")
@click.option(
    "--qkv-layout", type=click.Choice(QKV_LAYOUTS), help="With --auto: how fused queries, keys and values lie."
)
@click.option(
    "--expert-layout",
    type=click.Choice(EXPERT_LAYOUTS),
    help="With --auto: whether slices of stacked experts are outputs × inputs, or the other way round.",
)
@click.option("--heads", type=int, metavar="N", help="How many heads of attention there are, where no config says it.")
@click.option(
    "--orthogonal-map", type=click.Choice(ORTHOGONAL_MAPS), help="With --auto: the map of orthogonal parametrizations."
)
@click.option("--write-map", metavar="JSON", help="Write down for --map which key became which; or what is uncertain.")
@click.option("--map", "map_file", metavar="JSON", help="Rename as this says, which --write-map wrote.")
@click.option("--reverse", is_flag=True, help="With --map: the other way round.")
@codes("--select", "Only the repairs of these rules: codes, names or prefixes, separated by commas.")
@click.option("--unsafe-fixes", "unsafe", is_flag=True, help="Also repairs that change or drop something.")
@click.option("--diff", is_flag=True, help="Show every name that would change, and write nothing.")
@click.option("--force", is_flag=True, help="Replace an existing output, even the original itself.")
@as_json
@color
def command(path: str, diff: bool, style: str, color: str, **asked: Any) -> ExitStatus:
    """Repair a checkpoint without losing anything.

    With nothing named, every safe repair of what check finds is applied; with options, just those: first --root, then
    --map, --drop and --keep, --slim, --strip-module, --strip-prefix, --rename, --add-prefix, --merge-adapter, --to-cpu,
    --weights-only-safe, --clone-shared, --tie, --auto, --remap-optimizer, --dtype, and last
    --select. The output is verified before it gets its name, and the original is never touched. Exit status: 0
    repaired and verified, or nothing to repair, and nothing keeps it from being loaded; 1 something asked for was
    refused, or something that is wrong remains; 2 the request makes no sense, or the path cannot be read.
    """
    from ckptdoctor.converting.fixing import fix

    voice = _Voice(path, style, color, diff)
    request = _request(path, **asked)
    try:
        with drawn(NOTHING_WRITTEN):
            report = fix(request, dry=diff)
    except KeyboardInterrupt as interrupt:
        voice.refuse_json(str(interrupt))
        raise
    except (UsageError, UnreadableError):
        raise
    except CkptDoctorError as error:
        voice.refuse(error)
        return ExitStatus.FINDINGS
    voice.tell(report)
    remains = asked["select"] and report.left
    return ExitStatus.FINDINGS if remains or (report.blocked and not diff) else ExitStatus.CLEAN


def _request(
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
    """The command line; where it names no change at all, the project's configuration says which rules matter."""
    reference = read_reference(Settings(like=like, model=model, config=config, error=error), path)
    if reference is not None and reference.told:
        narrate(f"note: {reference.told}")
    if (reference is not None or error is not None) and not asked["remap_optimizer"]:
        asked["auto"] = True  # what else would a target be for
    if asked["qkv_layout"] is not None and not asked["auto"]:
        raise UsageError("--qkv-layout says how --auto splits and fuses attention: add --auto and a target.")
    if asked["expert_layout"] is not None and not asked["auto"]:
        raise UsageError("--expert-layout says how --auto stacks and unbinds experts: add --auto and a target.")
    if asked["orthogonal_map"] is not None and not asked["auto"]:
        raise UsageError("--orthogonal-map says how --auto computes parametrized weights: add --auto and a target.")
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
    project = settings.load()
    return replace(request, selection=Selection(project.select, project.ignore or (), project.extend_select or ()))


@noun(frozen=False)
class _Voice:
    """Says what became of the repair, in one style."""

    path: str
    style: str
    color: str
    diff: bool

    def tell(self, report: RepairReport) -> None:
        from ckptdoctor.rendering import fix_json, fix_text

        if self.style == "json":
            from ckptdoctor import __version__

            emit(fix_json.render(report, __version__))
        elif self.diff:
            emit(fix_text.difference(report, paint(self.color)))
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
