"""From declared options to the parameters of Typer, and from the words of a command line to their values.

Typer gives words; what they mean is decided here, also for the settings of a recipe, `--recipe NAME=VALUE`.
"""

import difflib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from jaxaudit.cli.options import OptionField, Options, fields_of, with_values
from jaxaudit.cli.own_code import is_of_sklearn
from jaxaudit.errors import InputError

METAVARS = {bool: "", int: "N", float: "X", Path: "PATH", str: "TEXT"}
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
        values = {field.name: value_of(field, arguments[field.name]) for field in fields}
        run(with_values(kind(), **recipe, **values))

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
            of_own_code = "An estimator of file.py:make has its parameters from there."
            raise InputError(f"--recipe {name[:100]}: is no setting of a recipe; {advice} {of_own_code}")
        field = fields_by_setting[name]
        values[field.name] = value_of(field, [part.strip() for part in value.split(",")] if field.repeatable else value)
    return values


def value_of(field: OptionField, words: Any) -> Any:
    """The value of an option, of its field's kind: of its word, of all if repeatable, or as it is if it takes none."""
    if field.repeatable:
        return tuple(_value_of_word(field, word) for word in words or ())
    return words if words is None or isinstance(words, bool) else _value_of_word(field, words)


def _value_of_word(field: OptionField, word: Any) -> Any:
    base, least, most = field.base, field.declared.minimum, field.declared.maximum
    if field.choices and word not in field.choices:
        raise InputError(f"{field.flag}: {word} is not one of {', '.join(field.choices)}.")
    if base is Path:
        return at_home(Path(word))
    if base not in (int, float):
        return word
    try:
        value = base(word)
    except ValueError:
        raise InputError(f"{field.flag}: {word} is no{' whole' if base is int else ''} number.") from None
    if (least is not None and not value >= least) or (most is not None and not value <= most):
        within = f"at least {least:,}" if most is None else f"from {least:,} to {most:,}"
        raise InputError(f"{field.flag}: {word} is out of range: give a number {within}.")
    return value


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


def at_home(path: Path) -> Path:
    """The path with a leading `~` replaced, as by a shell."""
    expanded = os.path.expanduser(path)
    if path.parts[:1] == ("~",) and expanded == os.fspath(path):
        raise InputError(f"{path}: the home folder is unknown (HOME is not set); give the full path.")
    return Path(expanded)


def _parameter(field: OptionField) -> inspect.Parameter:
    declared, base, default, help = field.declared, field.base, field.value, field.declared.help
    kind: Any = base if base in (bool, Path) else str
    if field.repeatable:
        default = default if default is ... else list(default) or None
        kind = list[kind] | None
    if field.choices:
        help = f"{help} [{' | '.join(field.choices)}]"
    settings: dict[str, Any] = {"help": help, "metavar": declared.metavar or METAVARS.get(base, "NAME")}
    if declared.argument:
        info = typer.Argument(**{**settings, "metavar": field.flag})
    else:
        info = typer.Option(*field.flags, rich_help_panel=field.panel or None, **settings)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )
