"""Makes the commands: help in groups of options, with examples at its end, and one answer to every typo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from ckptdoctor.wording import did_you_mean, listed

# so that help is the same whether a command is run through the group or by itself
SHORT_HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}

Examples = Sequence[tuple[str, str]]


class Command(click.Command):
    """A command whose help ends in ``examples``: what each does, and the command line.

    ``groups`` are the names of parameters by heading; what is in none of them is below the last one.
    """

    def __init__(
        self, *args: Any, examples: Examples = (), groups: Mapping[str, Sequence[str]] | None = None, **kwargs: Any
    ) -> None:
        kwargs.setdefault("context_settings", SHORT_HELP)
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.groups = dict(groups or {"Options": ()})

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """Both names, in whatever context the help is asked for first: the option is made only once."""
        return list(SHORT_HELP["help_option_names"])

    def grouped(self, ctx: click.Context) -> Iterator[tuple[str, list[click.Parameter]]]:
        """Yield each heading with its options, in the order of the groups."""
        headings = {name: heading for heading, names in self.groups.items() for name in names}
        last = next(reversed(self.groups))
        found: dict[str, list[click.Parameter]] = {heading: [] for heading in self.groups}
        for each in self.get_params(ctx):
            if isinstance(each, click.Option) and not each.hidden:
                found[headings.get(each.name or "", last)].append(each)
        yield from found.items()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options below their headings."""
        for heading, options in self.grouped(ctx):
            records = [record for each in options if (record := each.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        super().format_epilog(ctx, formatter)
        write_examples(self.examples, formatter)


def write_examples(examples: Examples, formatter: click.HelpFormatter) -> None:
    """Add what each example does and its line, if there are any."""
    if examples:
        with formatter.section("Examples"):
            for meaning, line in examples:
                formatter.write_text(f"{meaning}:")
                formatter.write(f"{'':{formatter.current_indent}}  {line}\n")


class Choice(click.Choice):  # type: ignore[type-arg]  # generic for type checkers alone: not where click is older
    """A choice that offers the one that is most like a mistyped word."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the choice. Raises BadParameter."""
        known = [str(each) for each in self.choices]
        if str(value) not in known:
            offer = did_you_mean(str(value), known, quote="'")
            self.fail(f"'{value}' is not one of {', '.join(known)}.{offer}", param, ctx)
        return super().convert(value, param, ctx)

    def get_missing_message(self, *context: Any, **more: Any) -> str:
        """Return what there is to choose from, in the same line."""
        return f"Use one of {', '.join(map(str, self.choices))}"


def usage_error(error: click.ClickException) -> str:
    """Return what is wrong with a command line, how the command is used, and where its help is."""
    said = [f"error: {_wrong(error)}"]
    context = getattr(error, "ctx", None)
    if isinstance(context, click.Context):
        said += [context.command.get_usage(context), f"Help: {context.command_path} --help"]
    return "\n".join(said)


def _wrong(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption):
        return f"No such option '{error.option_name}'.{_option_offer(error)}"
    return error.format_message()


def _option_offer(error: click.NoSuchOption) -> str:
    if error.ctx is None:
        return ""
    word = error.option_name
    offer = did_you_mean(word, _options(error.ctx.command), quote="'")
    owners = [] if offer else [name for name, command in _others(error.ctx) if word in _options(command)]
    return f" It is an option of {listed(owners, 3)}." if owners else offer


def _options(command: click.Command) -> list[str]:
    found = [name for each in command.params if isinstance(each, click.Option) for name in each.opts]
    return [*[name for name in found if name.startswith("--")], "--help"]


def _others(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield the other commands of the group, each by its name."""
    group = context.parent.command if context.parent is not None else context.command
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if command is not None:
                yield name, command
