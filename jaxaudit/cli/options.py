"""Options declared once, as fields of frozen dataclasses; Typer sees them as parameters. Imports nothing heavy.

A command's options are a dataclass of groups, each a dataclass of options:

    @dataclass(frozen=True)
    class Training:
        epochs: int = option(15, "Training epochs.", minimum=1)

    @dataclass(frozen=True)
    class MyOptions:
        training: Training = group("Training", Training())

A command of few options has them without a group, and without a heading in the help.
"""

import dataclasses
import enum
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from jaxaudit.errors import InputError
from jaxaudit.places import without_folders

Options = TypeVar("Options")
Check = Callable[[Any], object]
PLACES = ("data", "file")
"""What the value of an option may name whose contents count, not its path."""
METAVARS = {int: "N", float: "X", Path: "PATH", str: "TEXT"}
"""What stands for a value in the help, by its type."""


class Source(enum.Flag):
    """Where the models of a run come from. Options that exclude one another belong to different sources."""

    TRAINING = enum.auto()
    """Networks are trained as the options say; so is whatever a command does that has no other source."""
    LEARNER = enum.auto()
    """A learner of one's own is trained."""
    BANK = enum.auto()
    """They were trained before."""
    MEMBERS = enum.auto()
    """There are none: known members take their place."""


EVERY_SOURCE = ~Source(0)
REFUSALS = {
    Source.TRAINING: "needs --shadows, a bank of shadow models; `jaxaudit shadows plan` and `train` make one, and so "
    "does --out of `jaxaudit ks`.",
    Source.LEARNER: "no effect with --learner, which is how its models are trained; leave it out.",
    Source.BANK: "no effect with --shadows, which trains nothing; leave it out.",
    Source.MEMBERS: "no effect with --members without --calibration, which trains nothing; leave it out.",
}
"""What is said of an option that means nothing with a source."""


@dataclasses.dataclass(frozen=True)
class Declared:
    """The declaration of an option, beside its name, type and default.

    Attributes:
        help: one line of help.
        flags: its flags; by default its name with hyphens. A switch may have an opposite: `--gray/--color`.
        argument: whether it is a word without a flag.
        choices: the allowed values.
        minimum, maximum: of a number.
        metavar: the placeholder for its value in the help.
        variable: environment variable that it is read from.
        check: raises `InputError` if a value is invalid by itself.
        names: `data` or `file` if its value names a place, of which a run's identity has the contents, not the value;
            `code` if it may name a file with code of one's own.
        place: extracts the place from a longer value; None if it contains none.
        decides: whether it affects a number of the result.
        of: the sources of models with which it means something, of those of its group.
    """

    help: str
    flags: tuple[str, ...] = ()
    argument: bool = False
    choices: tuple[str, ...] = ()
    minimum: int | float | None = None
    maximum: int | float | None = None
    metavar: str | None = None
    variable: str | None = None
    check: Check | None = None
    names: typing.Literal["", "data", "file", "code"] = ""
    place: Callable[[Any], Any] | None = None
    decides: bool = True
    of: Source = EVERY_SOURCE


class Field(typing.NamedTuple):
    """One option of a command, with its value."""

    name: str
    kind: Any
    value: Any
    declared: Declared
    panel: str
    of: Source

    @property
    def flag(self) -> str:
        """The first form, such as `--gray`; of an argument, what the help calls it."""
        return self.flags[0].partition("/")[0] if self.flags else self.declared.metavar or self.name.upper()

    @property
    def flags(self) -> tuple[str, ...]:
        return () if self.declared.argument else self.declared.flags or (f"--{self.name.replace('_', '-')}",)


def option(default: Any, help: str, *flags: str, **declared: Any) -> Any:
    """A field of a group of options; see `Declared`. It must be given if its default is `...`."""
    return dataclasses.field(default=default, metadata={"declared": Declared(help, flags, **declared)})


def training_option(default: Any, help: str, *flags: str, **declared: Any) -> Any:
    """An option of networks that are trained here."""
    return option(default, help, *flags, of=Source.TRAINING, **declared)


def bank_option(default: Any, help: str, *flags: str, **declared: Any) -> Any:
    """An option of models that were trained before."""
    return option(default, help, *flags, of=Source.BANK, **declared)


def group(panel: str, default: Any, of: Source = EVERY_SOURCE) -> Any:
    """A field of a command's options: a group with its defaults, under this heading in the help.

    Its options mean something with these sources of models alone.
    """
    return dataclasses.field(default=default, metadata={"panel": panel, "of": of})


def fields_of(options: Any) -> Iterator[Field]:
    """Every option in order of declaration; those that a group inherits come after its own."""
    for outer in dataclasses.fields(options):
        if "declared" in outer.metadata:
            yield _field(options, outer, "", EVERY_SOURCE)
            continue
        inside = getattr(options, outer.name)
        for inner in _own_first(type(inside)):
            yield _field(inside, inner, outer.metadata["panel"], outer.metadata["of"])


def _field(inside: Any, of_class: dataclasses.Field[Any], panel: str, of: Source) -> Field:
    name, declared = of_class.name, of_class.metadata["declared"]
    return Field(name, _hints(type(inside))[name], getattr(inside, name), declared, panel, of & declared.of)


def source_of(options: Any) -> Source:
    """Where the models of a run come from: the options of a command with several sources have a property `source`."""
    return getattr(options, "source", Source.TRAINING)


def plain(options: Any) -> dict[str, Any]:
    """The options as JSON values, without the folders above the current one.

    Of a run that trains networks all that affect a number, of others only those that mean something with its source.
    """

    def one(value: Any, place: bool) -> Any:
        if isinstance(value, list | tuple):
            return [one(each, place) for each in value]
        return without_folders(str(value)) if isinstance(value, Path) or (place and isinstance(value, str)) else value

    source = source_of(options)
    used = [field for field in fields_of(options) if source in field.of | Source.TRAINING and field.declared.decides]
    # Words that are no place stay as they are: a class or a column may look like a path.
    return {_key(each): one(each.value, bool(each.declared.names)) for each in used}


def identity_of(options: Any) -> dict[str, Any]:
    """The options that affect a number, without those that name places: contents count, not paths."""
    places = {_key(field) for field in fields_of(options) if field.declared.names in PLACES}
    return {name: value for name, value in plain(options).items() if name not in places}


def refuse_without_effect(options: Any) -> None:
    """Refuses options that differ from their defaults and mean nothing with the source of models.

    Raises:
        InputError: there are any.
    """
    source = source_of(options)
    usual = {field.name: field.value for field in fields_of(type(options)())}
    useless = [
        field.flag for field in fields_of(options) if source not in field.of and field.value != usual[field.name]
    ]
    if useless:
        raise InputError(f"{', '.join(useless)}: {REFUSALS[source]}")


def command_line(command: str, options: Any) -> list[str]:
    """The command that repeats a run from the same folder, if its files are in that folder; see `plain`."""
    words, values = ["jaxaudit", *command.split()], plain(options)
    for field in fields_of(options):
        if _key(field) not in values:
            continue
        value, (on, _, off) = values[_key(field)], next(iter(field.flags), "").partition("/")
        if field.kind is bool:
            words += [on] if value else [off] if off else []
        elif isinstance(value, list):
            words += [word for each in value for word in (on, str(each))]
        elif value is not None:
            words += [on, str(value)] if on else [str(value)]
    return words


def as_parameters(
    kind: type[Options], run: Callable[[Options], None], doc: str, first: Sequence[str] = ()
) -> Callable[..., None]:
    """A function for Typer whose parameters are the options of `kind`.

    Args:
        kind: the dataclass of options, or of groups of them.
        run: called with the options.
        doc: the help.
        first: names of the options that most people need; they stand first in the help, under no group's heading.
    """
    fields = list(fields_of(kind()))
    needed = [next(field for field in fields if field.name == name) for name in first]
    found = [field._replace(panel="") for field in needed] + [field for field in fields if field.name not in first]

    def command(**given: Any) -> None:
        run(_made(kind, given))

    parameters = [_parameter(field) for field in found]
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__doc__ = doc
    return command


def _made(kind: type[Options], given: Mapping[str, Any]) -> Options:
    def value_of(name: str, usual: Any) -> Any:
        value = _converted(given[name])
        # What is repeatable and was not given is nothing rather than no answer.
        return () if value is None and usual == () else value

    default, values = kind(), {}
    for outer in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType]
        inside = getattr(default, outer.name)
        if "declared" in outer.metadata:
            values[outer.name] = value_of(outer.name, inside)
        else:
            names = [each.name for each in dataclasses.fields(inside)]
            values[outer.name] = dataclasses.replace(inside, **{n: value_of(n, getattr(inside, n)) for n in names})
    return kind(**values)


def _converted(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_converted(each) for each in value)
    if isinstance(value, enum.Enum):
        return value.value
    return at_home(value) if isinstance(value, Path) else value


def at_home(path: Path) -> Path:
    """The path with `~` replaced, as shells do where it begins a word."""
    found = os.path.expanduser(path)
    if path.parts[:1] == ("~",) and found == os.fspath(path):
        raise InputError(f"{path}: the home folder is unknown (HOME is not set); give the full path.")
    return Path(found)


def _parameter(field: Field) -> inspect.Parameter:
    declared, kind, default = field.declared, field.kind, field.value
    several = typing.get_origin(kind) is tuple
    if several:
        kind = typing.get_args(kind)[0]
        default = default if default is ... else list(default) or None
    optional = isinstance(kind, types.UnionType)
    base = next(each for each in typing.get_args(kind) if each is not types.NoneType) if optional else kind
    ranged = declared.minimum is not None or declared.maximum is not None
    help, metavar = declared.help, "" if base is bool else METAVARS.get(base, "NAME")
    if declared.choices:
        choice: Any = enum.StrEnum(field.name, {each.replace("-", "_"): each for each in declared.choices})
        default = choice(default) if isinstance(default, str) else default
        kind = choice | None if optional else choice
        help, metavar = f"{help} [{'|'.join(declared.choices)}]", "NAME"
    told: dict[str, Any] = {"help": help, "metavar": declared.metavar or metavar, "envvar": declared.variable}
    # In the help a range would take the room of the option's name.
    told["parser"] = _number_within(base, declared) if ranged else None
    if declared.argument:
        info = typer.Argument(**{**told, "metavar": field.flag})
    else:
        info = typer.Option(*field.flags, rich_help_panel=field.panel or None, **told)
    annotation = Annotated[list[kind] | None if several else kind, info]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _number_within(kind: type[Any], declared: Declared) -> Callable[[Any], Any]:
    """What makes a number of a word, and refuses what is out of range."""
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


def _key(field: Field) -> str:
    """Its name in JSON: that of its flag, because some names are reserved in Python."""
    return field.flag.removeprefix("--").replace("-", "_").lower()


def _own_first(kind: type[Any]) -> list[dataclasses.Field[Any]]:
    found = {each.name: each for each in dataclasses.fields(kind)}
    order = dict.fromkeys(name for each in kind.__mro__ for name in vars(each).get("__annotations__", {}))
    return [found[name] for name in order]


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)
