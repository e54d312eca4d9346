"""The short help of a command, `-h`: one screen, made from what is declared for `--help`. Imports nothing heavy."""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

WIDTH = 80
"""Characters a line."""
CALLS = 4
"""Ways to call a command: the first of its examples."""
FEW = 14
"""A command with at most so many options shows all of them."""
LEFT = 24
"""Characters of a flag and its placeholder, before the text of an option."""


def short_help_option(usual: Mapping[str, str]) -> Any:
    """The option `-h` of a command. `usual` has a line for each option that most people need, by its name."""

    def show(context: typer.Context, value: bool) -> None:
        if value and not context.resilient_parsing:
            typer.echo(short_help(context, usual))
            context.exit()

    # Typer makes options from functions alone.
    maker = typer.Typer(add_completion=False)
    declared = typer.Option("-h", callback=show, is_eager=True, help="Show the usual options and exit.")

    @maker.command()
    def _(short_help: Annotated[bool, declared] = False) -> None: ...

    (parameter,) = typer.main.get_command(maker).params
    parameter.expose_value = False
    return parameter


def short_help(context: Any, usual: Mapping[str, str]) -> str:
    """What a command does in two sentences, its usual calls, and its usual options: those of the calls first."""
    command = context.command
    paragraphs = [" ".join(part.split()) for part in (command.help or "").replace("`", "").split("\n\n")]
    start = paragraphs.index("Examples:") if "Examples:" in paragraphs else len(paragraphs)
    purpose = " ".join(map(first_sentence, paragraphs[: min(start, 2)]))
    lines = [f"Usage: {' '.join([context.command_path, *command.collect_usage_pieces(context)])}", ""]
    lines += textwrap.wrap(purpose, WIDTH)
    calls = paragraphs[start + 1 :][:CALLS]
    if calls:
        lines += ["", "Usual calls:"]
        for call in calls:
            lines += textwrap.wrap(call, WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)
    lines += [
        *_commands(command),
        *_options(context, usual, calls),
        "",
        f"{context.command_path} --help has everything.",
    ]
    return "\n".join(lines)


def first_sentence(text: str) -> str:
    """The text up to the end of its first sentence, without the paper and the default that brackets name.

    >>> first_sentence("Did it work? (Long 2017) Trains models.")
    'Did it work?'
    """
    text = re.sub(r" \([^()]*\d{4}\)", "", " ".join(text.replace("`", "").split()))
    return re.split(r"(?<=[^.][.?]) (?=[A-Za-z\[-])| \[default", text, maxsplit=1)[0]


def _commands(command: Any) -> Iterator[str]:
    below = getattr(command, "commands", {})
    if below:
        yield from ("", "Commands:")
        width = max(map(len, below)) + 4
        for name, subcommand in below.items():
            purpose = first_sentence((subcommand.help or "").partition("\n\n")[0])
            yield from textwrap.wrap(
                purpose, WIDTH, initial_indent=f"  {name}".ljust(width), subsequent_indent=" " * width
            )


def _options(context: Any, usual: Mapping[str, str], calls: Sequence[str]) -> Iterator[str]:
    options = [option for option in context.command.params if option.name != "short_help"]
    shown = options if len(options) <= FEW else [option for option in options if option.name in usual]
    if shown:
        yield from ("", "Options:" if len(shown) == len(options) else f"Usual options, of {len(options)}:")
    words = " ".join(calls).split()

    def place(option: Any) -> int:
        """Arguments first, then options in the order of the calls, then the others as they were declared."""
        if option.param_type_name == "argument":
            return -1
        return min((words.index(flag) for flag in option.opts if flag in words), default=len(words))

    for option in sorted(shown, key=place):
        text = usual.get(option.name) or first_sentence(option.help or "")
        start = f"  {_flag(option):<{LEFT}} "
        yield from textwrap.wrap(text.replace("`", ""), WIDTH, initial_indent=start, subsequent_indent=" " * len(start))


def _flag(option: Any) -> str:
    """An option's flag with its placeholder, where both fit; an argument's placeholder."""
    if option.param_type_name == "argument":
        return option.metavar
    flag = "/".join([option.opts[0], *option.secondary_opts[:1]])
    value = "" if option.is_flag else f" {option.metavar or 'NAME'}"
    return f"{flag}{value}" if len(flag + value) <= LEFT else flag
