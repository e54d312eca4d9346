"""Declared options as the parameters of a function, which Typer reads from the command line. Imports nothing heavy."""

import enum
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from jaxaudit.cli.options import DeclaredOption, OptionField, Options, fields_of, with_values
from jaxaudit.errors import InputError

METAVARS = {int: "N", float: "X", Path: "PATH", str: "TEXT"}
"""Placeholders for values in the help, by type."""


def as_parameters(
    kind: type[Options], run: Callable[[Options], None], doc: str, first: Sequence[str]
) -> Callable[..., None]:
    """A function for Typer whose parameters are the options of `kind`."""
    fields = list(fields_of(kind()))
    needed = [next(field for field in fields if field.name == name) for name in first]
    ordered_fields = [field._replace(panel="") for field in needed] + [
        field for field in fields if field.name not in first
    ]

    def command(**arguments: Any) -> None:
        values = {name: _converted(value) for name, value in arguments.items()}
        # A repeatable option that was not given is empty, not None.
        values |= {field.name: () for field in fields if field.value == () and values[field.name] is None}
        run(with_values(kind(), **values))

    parameters = [_parameter(field) for field in ordered_fields]
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = doc
    return command


def _converted(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_converted(single) for single in value)
    if isinstance(value, enum.Enum):
        return value.value
    return at_home(value) if isinstance(value, Path) else value


def at_home(path: Path) -> Path:
    """The path with a leading `~` replaced, as by a shell."""
    expanded = os.path.expanduser(path)
    if path.parts[:1] == ("~",) and expanded == os.fspath(path):
        raise InputError(f"{path}: the home folder is unknown (HOME is not set); give the full path.")
    return Path(expanded)


def _parameter(field: OptionField) -> inspect.Parameter:
    declared, kind, default = field.declared, field.kind, field.value
    several = typing.get_origin(kind) is tuple
    if several:
        kind = typing.get_args(kind)[0]
        default = default if default is ... else list(default) or None
    optional = isinstance(kind, types.UnionType)
    base = (
        next(part_kind for part_kind in typing.get_args(kind) if part_kind is not types.NoneType) if optional else kind
    )
    ranged = declared.minimum is not None or declared.maximum is not None
    help, metavar = declared.help, "" if base is bool else METAVARS.get(base, "NAME")
    if declared.choices:
        choice: Any = enum.StrEnum(
            field.name, {choice_text.replace("-", "_"): choice_text for choice_text in declared.choices}
        )
        default = choice(default) if isinstance(default, str) else default
        kind = choice | None if optional else choice
        help, metavar = f"{help} [{' | '.join(declared.choices)}]", "NAME"
    settings: dict[str, Any] = {"help": help, "metavar": declared.metavar or metavar, "envvar": declared.variable}
    # In the help a range would leave no room for the option's name.
    settings["parser"] = _number_within(base, declared) if ranged else None
    if declared.argument:
        info = typer.Argument(**{**settings, "metavar": field.flag})
    else:
        info = typer.Option(*field.flags, rich_help_panel=field.panel or None, **settings)
    annotation = Annotated[list[kind] | None if several else kind, info]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _number_within(kind: type[Any], declared: DeclaredOption) -> Callable[[Any], Any]:
    """A function that converts a word to a number, and rejects numbers out of range."""
    least, most = declared.minimum, declared.maximum
    low, high = (-math.inf if least is None else least), (math.inf if most is None else most)
    within = f"from {least:,} to {most:,}" if least is not None and most is not None else f"at least {low:,}"

    def parse(text: Any) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise typer.BadParameter(f"{text} is no{' whole' if kind is int else ''} number.") from None
        if not low <= value <= high:
            raise typer.BadParameter(f"{text} is out of range: give a number {within}.")
        return value

    return parse
