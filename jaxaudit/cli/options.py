"""Declares options once, as fields of frozen dataclasses: for parsing, identity, repetition. Imports nothing heavy.

Typer gives words; what they mean is decided here, also for the settings of a recipe, `--recipe NAME=VALUE`.
"""

import dataclasses
import enum
import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from jaxaudit.cli.parsers import is_of_sklearn, nearest
from jaxaudit.errors import InputError, without_folders

Check = Callable[[Any], object]
Options = typing.TypeVar("Options", bound=Any)
PANELS = (
    *("", "Data", "Target", "Scores", "Models of your own", "Models of known truth", "Bank", "Deal"),
    *("Model", "Training", "Audit", "Output"),
)
"""The headings of options in the help, in their order; options without one are listed first."""
PLAIN, DATA, TARGET, SCORE_TABLE, OWN_MODELS, KNOWN_MODELS, BANK, SHARES, MODEL, TRAINING, AUDIT, OUTPUT = PANELS
PLACES = ("data", "file")
"""Kinds of paths whose content belongs to the identity of a run, not the path itself."""


class ModelSource(enum.Flag):
    """The origin of the models of a run. Options that exclude one another belong to different sources."""

    TRAINING = enum.auto()
    """Networks trained by the options; also the source of commands that have no other."""
    BAYES = enum.auto()
    """Naive Bayes classifiers, which count what they see."""
    BANK = enum.auto()
    """Models that were trained before."""
    ESTIMATOR = enum.auto()
    """Classifiers with scikit-learn's fit and predict_proba, trained by the command."""
    ANSWERS = enum.auto()
    """No models: the target's outputs on known members, or those before a deletion, take their place."""
    SCORES = enum.auto()
    """No models: a table has what they would say."""
    OUTPUTS = enum.auto()
    """No models: files have what unlearned and retrained models say."""


EVERY_SOURCE = ~ModelSource(0)
IN_WORDS = {
    ModelSource.TRAINING: "networks that are trained here",
    ModelSource.BAYES: "--model nb, which counts",
    ModelSource.ESTIMATOR: "an estimator, such as --model sklearn.MODULE:CLASS, whose --recipe are its parameters",
    ModelSource.BANK: "--shadows, a bank of models that are trained (`jaxaudit shadows`)",
    ModelSource.ANSWERS: "a target's own outputs alone: --tests that need no shadow models, or no --calibration",
    ModelSource.SCORES: "--scores, a table of scores",
    ModelSource.OUTPUTS: "--outputs, what unlearned models say",
}
"""Each source as messages name it."""


@dataclasses.dataclass(frozen=True)
class DeclaredOption:
    """The declaration of an option, apart from its name, type and default.

    Attributes:
        panel: its heading in the help, of `PANELS`.
        flags: by default its name with hyphens.
        check: raises `InputError` if a value is invalid by itself.
        names: `data` or `file` if its value names a path, whose content, not the value, is part of a run's identity;
            `code` if it may name code of your own.
        place: extracts the path from a longer value; None if it contains none.
        decides: whether it affects a number of the result.
        of: the sources of models with which it has an effect, among those that the command has.
        in_recipe: whether it is a name of `--recipe NAME=VALUE`, and no flag of its own.
    """

    panel: str
    help: str
    flags: tuple[str, ...] = ()
    argument: bool = False
    minimum: int | float | None = None
    maximum: int | float | None = None
    metavar: str | None = None
    check: Check | None = None
    names: Literal["", "data", "file", "code"] = ""
    place: Callable[[Any], Any] | None = None
    decides: bool = True
    of: ModelSource = EVERY_SOURCE
    in_recipe: bool = False


class OptionField(typing.NamedTuple):
    """One option of a command, its value and its default, and the sources of models with which it has an effect."""

    name: str
    kind: Any
    value: Any
    default: Any
    declared: DeclaredOption
    of: ModelSource

    @property
    def flag(self) -> str:
        """Its first form, such as `--json`; for a positional argument, its name in the help."""
        if self.declared.in_recipe:
            return f"--recipe {self.setting}"
        return self.flags[0] if self.flags else self.declared.metavar or self.name.upper()

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values, where its kind is a `Literal`, an optional one or several of them; else none."""
        literals = [kind for kind in (self.kind, *typing.get_args(self.kind)) if typing.get_origin(kind) is Literal]
        return typing.get_args(literals[0]) if literals else ()

    @property
    def repeatable(self) -> bool:
        return typing.get_origin(self.kind) is tuple

    @property
    def base(self) -> Any:
        """Its kind, or that of each value, without None."""
        kind = typing.get_args(self.kind)[0] if self.repeatable else self.kind
        parts = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
        return next(part for part in parts if part is not types.NoneType)

    @property
    def setting(self) -> str:
        """Its name in a recipe, such as `learning-rate`."""
        return self.name.replace("_", "-")

    @property
    def flags(self) -> tuple[str, ...]:
        declared = self.declared
        return () if declared.argument or declared.in_recipe else declared.flags or (f"--{self.setting}",)


def option(panel: str, help: str, *flags: str, default: Any = None, **declared: Any) -> Any:
    """A field of a class of options; see `DeclaredOption`. It must be given if its default is `...`."""
    return dataclasses.field(default=default, metadata={"declared": DeclaredOption(panel, help, flags, **declared)})


def training_option(panel: str, help: str, *flags: str, **declared: Any) -> Any:
    """An option for networks that the command trains."""
    return option(panel, help, *flags, of=ModelSource.TRAINING, **declared)


def recipe_option(panel: str, help: str, **declared: Any) -> Any:
    """A setting of the recipe of networks that the command trains."""
    return option(panel, help, **{"of": ModelSource.TRAINING, "in_recipe": True, **declared})


def bank_option(panel: str, help: str, *flags: str, **declared: Any) -> Any:
    """An option for models that were trained before."""
    return option(panel, help, *flags, of=ModelSource.BANK, **declared)


def again(kind: type[Any], name: str, default: Any) -> Any:
    """The option of this name, of a class of options that a command inherits, with another default."""
    return dataclasses.field(default=default, metadata=kind.__dataclass_fields__[name].metadata)


def fields_of(options: Any) -> list[OptionField]:
    """Every option, by panel, and there in order of declaration; those that a command inherits come after its own.

    `goes_with` of a command has the sources of models with which all options of a class that it inherits go.
    """
    return [field._replace(value=getattr(options, field.name)) for field in _declarations(type(options))]


@cache
def _declarations(kind: type[Any]) -> tuple[OptionField, ...]:
    hints, fields_by_name = typing.get_type_hints(kind), {field.name: field for field in dataclasses.fields(kind)}

    def one(name: str) -> OptionField:
        default, declared = fields_by_name[name].default, fields_by_name[name].metadata["declared"]
        of = declared.of
        for base, sources in getattr(kind, "goes_with", {}).items():
            of &= sources if name in base.__dataclass_fields__ else EVERY_SOURCE
        return OptionField(name, hints[name], default, default, declared, of)

    names = dict.fromkeys(name for base in kind.__mro__ for name in inspect.get_annotations(base))
    fields = [one(name) for name in names if name in fields_by_name]
    return tuple(sorted(fields, key=lambda field: PANELS.index(field.declared.panel)))


def with_usual(options: Options, **usual: Any) -> Options:
    """The options with these values where none was given."""
    missing = {name: value for name, value in usual.items() if getattr(options, name) is None}
    return dataclasses.replace(options, **missing)


def models_source(options: Any) -> ModelSource:
    """The origin of the models of a run: the property `source` of the options, if a command has several."""
    return getattr(options, "source", ModelSource.TRAINING)


def _json_values(options: Any) -> list[tuple[OptionField, Any]]:
    """The options that affect a number, of a run that trains no networks those with an effect, with their values."""

    def one(value: Any, names: str) -> Any:
        if isinstance(value, list | tuple):
            return [one(single, names) for single in value]
        return without_folders(str(value)) if isinstance(value, Path) or (names and isinstance(value, str)) else value

    source = models_source(options)
    # Values that are not paths are kept: a class or a column may look like a path.
    return [
        (field, one(field.value, field.declared.names))
        for field in fields_of(options)
        if source in field.of | ModelSource.TRAINING and field.declared.decides
    ]


def json_options(options: Any) -> dict[str, Any]:
    """The options as JSON values, without the folders above the current one.

    For a run that trains networks, all options that affect a number; for others, only those with an effect.
    """
    return {_key(field): value for field, value in _json_values(options)}


def identity_of(options: Any) -> dict[str, Any]:
    """The options that affect a number, without those that name paths: their content counts, not the path."""
    return {_key(field): value for field, value in _json_values(options) if field.declared.names not in PLACES}


def refuse_options(values: Mapping[str, Any], why: str) -> None:
    """Refuses those of these options, by flag, that were given: `why` says what they do not go with."""
    useless = [flag for flag, value in values.items() if value not in (None, False, (), [])]
    if useless:
        end = why if why.endswith((" or", " and")) else f"{why};"
        raise InputError(f"{', '.join(useless)}: {end} leave {'it' if len(useless) == 1 else 'them'} out.")


def refuse_without_effect(options: Any, source: ModelSource | None = None) -> None:
    """Rejects options that differ from their defaults and have no effect with this source of models, by default that of
    the options.
    """
    source = source or models_source(options)
    useless = [field for field in fields_of(options) if source not in field.of and field.value != field.default]
    if useless:
        alone = {field.of for field in useless}
        goes = next((f": it goes with {words}" for single, words in IN_WORDS.items() if alone == {single}), "")
        flags = ", ".join(field.flag for field in useless)
        raise InputError(f"{flags}: no effect with {IN_WORDS[source]}; leave it out{goes}.")


def command_line(command: str, options: Any) -> list[str]:
    """The command that repeats a run from the same folder, if its files are in that folder; see `json_options`."""
    words = ["jaxaudit", *command.split()]
    for field, value in _json_values(options):
        flag = next(iter(field.flags), "")
        if field.declared.in_recipe:
            text = ",".join(map(str, value)) if isinstance(value, list) else value
            words += [] if value in (None, []) else ["--recipe", f"{field.setting}={text}"]
        elif field.kind is bool:
            words += [flag] if value and not field.default else []
        elif isinstance(value, list):
            words += [word for single in value for word in (flag, str(single))]
        elif value is not None:
            words += [flag, str(value)] if flag else [str(value)]
    return words


def _key(field: OptionField) -> str:
    """Its name in JSON: the flag's name, because some field names differ from it (reserved words in Python)."""
    return field.name if field.declared.in_recipe else field.flag.removeprefix("--").replace("-", "_").lower()


METAVARS = {bool: "", int: "N", float: "X", Path: "PATH", str: "TEXT"}
"""Placeholders for values in the help, by type."""


def as_parameters(
    kind: type[Options], run: Callable[[Options], None], doc: str, first: Sequence[str]
) -> Callable[..., None]:
    """A function for Typer whose parameters are the options of `kind`."""
    declared_fields = fields_of(kind())
    settings = [field for field in declared_fields if field.declared.in_recipe]
    of_estimators = [field for field in declared_fields if field.flags == (OF_RECIPE,)]
    fields = [field for field in declared_fields if field not in [*settings, *of_estimators]]
    needed = [next(field for field in fields if field.name == name) for name in first]

    def command(**arguments: Any) -> None:
        words = recipe_words(arguments.get(RECIPE) or ())
        if of_estimators and is_of_sklearn(arguments["model"]):
            recipe = {of_estimators[0].name: tuple(f"{name}={value}" for name, value in words.items())}
        else:
            recipe = recipe_values(words, settings)
        values = {field.name: value_of(field, arguments[field.name]) for field in fields}
        run(kind(**recipe, **values))

    further_fields = [field for field in fields if field.name not in first]
    further_fields += [_recipe_field(settings, of_estimators)] if settings else []
    parameters = [_parameter(field, PLAIN) for field in needed]
    parameters += [_parameter(field, field.declared.panel) for field in further_fields]
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
            of_own_code = "An estimator of file.py:make has its parameters from there."
            advice = f"{nearest(name, fields_by_setting)} {of_own_code}"
            raise InputError(f"--recipe {name[:100]}: is no setting of a recipe; {advice}")
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


def _recipe_field(settings: Sequence[OptionField], of_estimators: Sequence[OptionField]) -> OptionField:
    """`--recipe` itself, whose help names all settings."""
    names = ", ".join(
        f"{field.setting}{'' if field.value in (None, ()) else f' ({field.value})'}" for field in settings
    )
    help = f"How models are made. Repeatable. NAME is one of {names}; `jaxaudit shadows train --help` explains each."
    help = " ".join([help, *(field.declared.help for field in of_estimators)])
    declared = DeclaredOption(settings[-1].declared.panel, help, (OF_RECIPE,), metavar="NAME=VALUE")
    return OptionField(RECIPE, tuple[str, ...], (), (), declared, EVERY_SOURCE)


def _recipe_table(settings: Sequence[OptionField]) -> str:
    """What each setting of a recipe means, a paragraph each."""
    lines = []
    for field in sorted(settings, key=lambda field: field.declared.panel == MODEL):
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


def _parameter(field: OptionField, panel: str) -> inspect.Parameter:
    declared, base, default, help = field.declared, field.base, field.value, field.declared.help
    kind: Any = base if base in (bool, Path) else str
    if field.repeatable:
        default = default if default is ... else list(default) or None
        kind = list[kind] | None
    if field.choices:
        help = f"{help} [{' | '.join(field.choices)}]"
    if declared.argument:
        info = typer.Argument(help=help, metavar=field.flag)
    else:
        metavar = declared.metavar or METAVARS.get(base, "NAME")
        info = typer.Option(*field.flags, rich_help_panel=panel or None, help=help, metavar=metavar)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )
