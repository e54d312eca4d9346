"""From declared options to the parameters of Typer, and from the words of a command line to their values.

The settings of a recipe are one parameter, `--recipe NAME=VALUE`.
"""

import difflib
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from jaxaudit.cli.options import DeclaredOption, OptionField, Options, fields_of, with_values
from jaxaudit.cli.own_code import is_of_sklearn
from jaxaudit.errors import InputError

METAVARS = {int: "N", float: "X", Path: "PATH", str: "TEXT"}
"""Placeholders for values in the help, by type."""


def as_parameters(
    kind: type[Options], run: Callable[[Options], None], doc: str, first: Sequence[str]
) -> Callable[..., None]:
    """A function for Typer whose parameters are the options of `kind`."""
    declared_fields = list(fields_of(kind()))
    settings = [field for field in declared_fields if field.declared.in_recipe]
    of_estimators = [field for field in declared_fields if field.flags == (OF_RECIPE,)]
    fields = [field for field in declared_fields if field not in [*settings, *of_estimators]]
    needed = [next(field for field in fields if field.name == name) for name in first]
    ordered_fields = [field._replace(panel="") for field in needed] + [
        field for field in fields if field.name not in first
    ]

    def command(**arguments: Any) -> None:
        words = recipe_words(arguments.pop(RECIPE) or ()) if settings else {}
        if of_estimators and is_of_sklearn(arguments["model"]):
            recipe = {of_estimators[0].name: tuple(f"{name}={value}" for name, value in words.items())}
        else:
            recipe = recipe_values(words, settings)
        values = {**recipe, **{name: _converted(value) for name, value in arguments.items()}}
        # A repeatable option that was not given is empty, not None.
        values |= {field.name: () for field in fields if field.value == () and values[field.name] is None}
        run(with_values(kind(), **values))

    parameters = [_parameter(field) for field in ordered_fields]
    parameters += [_recipe_parameter(settings, [field.declared.help for field in of_estimators])] if settings else []
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = doc.replace("{recipe}", _recipe_table(settings))
    return command


RECIPE, OF_RECIPE = "recipe", "--recipe"


def recipe_words(texts: Sequence[str]) -> dict[str, str]:
    """The values by their names, from `NAME=VALUE`. Of a name that is given twice the later value counts."""
    words = [text.partition("=") for text in texts]
    bare = next((name for name, equals, _ in words if not equals), None)
    if bare is not None:
        raise InputError(f"--recipe {bare}: write NAME=VALUE, such as learning-rate=0.1.")
    return {name: value for name, _, value in words}


def recipe_values(words: Mapping[str, str], settings: Sequence[OptionField]) -> dict[str, Any]:
    """The values of these settings, by the names of their fields; see `recipe_words`."""
    fields_by_setting = {field.setting: field for field in settings}
    values: dict[str, Any] = {}
    for name, value in words.items():
        if name not in fields_by_setting:
            near = difflib.get_close_matches(name, fields_by_setting, n=1)
            advice = f"did you mean {near[0]}?" if near else f"choose from {', '.join(fields_by_setting)}."
            raise InputError(f"--recipe {name[:100]}: is no setting of a recipe; {advice}")
        values[fields_by_setting[name].name] = _setting_value(fields_by_setting[name], value)
    return values


def _setting_value(field: OptionField, value: str) -> Any:
    """The value of a setting, of the kind that its field has."""
    if typing.get_origin(field.kind) is tuple:
        return tuple(part.strip() for part in value.split(","))
    base = _base(field.kind)
    try:
        if base in (int, float):
            return _number_within(base, field.declared)(value)
        return _chosen(field.choices, value) if field.choices else value
    except typer.BadParameter as error:
        raise InputError(f"--recipe {field.setting}: {error.message}") from None


def _recipe_parameter(settings: Sequence[OptionField], notes: Sequence[str]) -> inspect.Parameter:
    names = ", ".join(
        f"{field.setting}{'' if field.value in (None, ()) else f' ({field.value})'}" for field in settings
    )
    help = f"How models are made. Repeatable. NAME is one of {names}; `jaxaudit shadows train --help` explains each."
    help = " ".join([help, *notes])
    info = typer.Option(OF_RECIPE, rich_help_panel=settings[-1].panel or None, help=help, metavar="NAME=VALUE")
    return inspect.Parameter(
        RECIPE, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, info]
    )


def _recipe_table(settings: Sequence[OptionField]) -> str:
    """What each setting of a recipe means, a paragraph each."""
    lines = []
    for field in sorted(settings, key=lambda field: field.panel == "Model"):
        choices = f" [{' | '.join(field.choices)}]" if field.choices else ""
        default = "" if field.value in (None, ()) else f" [default: {field.value}]"
        lines.append(f"`{field.setting}`: {field.declared.help}{choices}{default}")
    return "\n\n    ".join(lines)


def _converted(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_converted(single) for single in value)
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
    base, help, parser = _base(kind), declared.help, None
    metavar = "" if base is bool else METAVARS.get(base, "NAME")
    # In the help a range or choices would leave no room for the option's name.
    if field.choices:
        kind, parser, help = str, partial(_chosen, field.choices), f"{help} [{' | '.join(field.choices)}]"
    elif declared.minimum is not None or declared.maximum is not None:
        parser = _number_within(base, declared)
    settings: dict[str, Any] = {"help": help, "metavar": declared.metavar or metavar, "parser": parser}
    if declared.argument:
        info = typer.Argument(**{**settings, "metavar": field.flag})
    else:
        info = typer.Option(*field.flags, rich_help_panel=field.panel or None, **settings)
    annotation = Annotated[list[kind] | None if several else kind, info]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _base(kind: Any) -> Any:
    """A kind without None."""
    parts = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return next(part for part in parts if part is not types.NoneType)


def _chosen(choices: Sequence[str], text: Any) -> Any:
    if text not in choices:
        raise typer.BadParameter(f"{text} is not one of {', '.join(choices)}.")
    return text


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
