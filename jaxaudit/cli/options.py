"""Options declared once, as fields of frozen dataclasses; Typer sees them as parameters. Imports nothing heavy.

A command's options are a dataclass of groups, each a dataclass of options:

    @dataclass(frozen=True)
    class Training:
        epochs: int = option(15, "Training epochs.", minimum=1)

    @dataclass(frozen=True)
    class MyOptions:
        training: Training = group("Training", Training())
"""

import dataclasses
import enum
import inspect
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from jaxaudit.errors import InputError
from jaxaudit.places import without_folders

Options = TypeVar("Options")
Check = Callable[[Any], object]


@dataclasses.dataclass(frozen=True)
class Declared:
    """What an option is, beside its name, type and default.

    Attributes:
        help: a line for a person.
        flags: how it is written; by default its name with hyphens. A switch may have an opposite: `--gray/--color`.
        formerly: flags of the version before, accepted with a note.
        choices: the only words it takes.
        minimum, maximum: of a number.
        metavar: what stands for its value in the help.
        variable: environment variable that it is read from.
        check: raises `InputError` where a value makes no sense by itself.
        names: `data` or `file` where it names a place. Such an option is no part of a run's identity: contents are.
        place: finds the place in a value that says more; None where there is none in it.
        decides: whether a number of the result follows from it.
    """

    help: str
    flags: tuple[str, ...] = ()
    formerly: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    metavar: str | None = None
    variable: str | None = None
    check: Check | None = None
    names: typing.Literal["", "data", "file"] = ""
    place: Callable[[Any], Any] | None = None
    decides: bool = True


class Field(typing.NamedTuple):
    """One option of a command, with its value."""

    name: str
    kind: Any
    value: Any
    declared: Declared
    panel: str

    @property
    def flag(self) -> str:
        """As it is written first, such as `--gray`."""
        return self.flags[0].partition("/")[0]

    @property
    def flags(self) -> tuple[str, ...]:
        return self.declared.flags or (f"--{self.name.replace('_', '-')}",)


def option(default: Any, help: str, *flags: str, **declared: Any) -> Any:
    """A field of a group of options; see `Declared`."""
    return dataclasses.field(default=default, metadata={"declared": Declared(help, flags, **declared)})


def group(panel: str, default: Any) -> Any:
    """A field of a command's options: a group, with its defaults, under this heading of the help."""
    return dataclasses.field(default=default, metadata={"panel": panel})


def fields_of(options: Any) -> Iterator[Field]:
    """Every option, in the order of their declaration; what a group shares with others comes after its own."""
    for outer in dataclasses.fields(options):
        inside = getattr(options, outer.name)
        kinds = _hints(type(inside))
        for inner in _own_first(type(inside)):
            value, declared = getattr(inside, inner.name), inner.metadata["declared"]
            yield Field(inner.name, kinds[inner.name], value, declared, outer.metadata["panel"])


def plain(options: Any) -> dict[str, Any]:
    """The options as JSON can hold them and as they may be handed on: without the folders above the one at hand."""

    def one(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [one(each) for each in value]
        return without_folders(str(value)) if isinstance(value, Path | str) else value

    return {_key(field): one(field.value) for field in fields_of(options) if field.declared.decides}


def identity_of(options: Any) -> dict[str, Any]:
    """The options that decide a number; a place does not, what lies there does."""
    places = {_key(field) for field in fields_of(options) if field.declared.names}
    return {name: value for name, value in plain(options).items() if name not in places}


def command_line(command: str, options: Any) -> list[str]:
    """The words that repeat a run from the same folder, where its files lie in that folder."""
    words, values = ["jaxaudit", command], plain(options)
    for field in fields_of(options):
        if not field.declared.decides:
            continue
        value, (on, _, off) = values[_key(field)], field.flags[0].partition("/")
        if field.kind is bool:
            words += [on] if value else [off] if off else []
        elif isinstance(value, list):
            words += [word for each in value for word in (on, str(each))]
        elif value is not None:
            words += [on, str(value)]
    return words


def as_parameters(kind: type[Options], run: Callable[[Options], None], doc: str) -> Callable[..., None]:
    """A function that Typer takes for a command: its parameters are the options of `kind`."""
    found = list(fields_of(kind()))

    def command(**given: Any) -> None:
        run(_made(kind, given))

    parameters = [_parameter(field) for field in found]
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__doc__ = doc
    return command


def renamed(kind: type[Any], words: Sequence[str], note: Callable[[str], None]) -> list[str]:
    """The words of a command line with the flags of the version before replaced; a note for each."""
    fields = fields_of(kind())
    new = {old: field.flag for field in fields for old in field.declared.formerly}
    found = []
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in new:
            note(f"{flag} is now called {new[flag]}; the next release will not know the old name.")
        found.append(f"{new.get(flag, flag)}{equals}{value}")
    return found


def _made(kind: type[Options], given: Mapping[str, Any]) -> Options:
    default, groups = kind(), {}
    for outer in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType]
        inside = getattr(default, outer.name)
        values = {each.name: _converted(given[each.name]) for each in dataclasses.fields(inside)}
        # What is repeatable and was not given is nothing rather than no answer.
        values |= {name: () for name, value in values.items() if value is None and getattr(inside, name) == ()}
        groups[outer.name] = dataclasses.replace(inside, **values)
    return kind(**groups)


def _converted(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_converted(each) for each in value)
    if isinstance(value, enum.Enum):
        return value.value
    return _expanded(value) if isinstance(value, Path) else value


def _expanded(path: Path) -> Path:
    """The path with `~` replaced, as shells do where it begins a word."""
    found = os.path.expanduser(path)
    if path.parts[:1] == ("~",) and found == os.fspath(path):
        raise InputError(f"{path}: there is no home folder here (HOME is not set); write the path in full.")
    return Path(found)


def _parameter(field: Field) -> inspect.Parameter:
    declared, kind, default = field.declared, field.kind, field.value
    several = typing.get_origin(kind) is tuple
    if several:
        kind, default = typing.get_args(kind)[0], list(default) or None
    if declared.choices:
        choice: Any = enum.StrEnum(field.name, {each.replace("-", "_"): each for each in declared.choices})
        optional = isinstance(kind, types.UnionType)
        kind = choice | None if optional else choice
        default = choice(default) if isinstance(default, str) else default
    if several:
        kind = list[kind] | None
    info = typer.Option(
        *field.flags,
        help=declared.help,
        rich_help_panel=field.panel,
        min=declared.minimum,
        max=declared.maximum,
        metavar=declared.metavar,
        envvar=declared.variable,
    )
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def _key(field: Field) -> str:
    """Its name in JSON: that of its flag, since some words belong to Python."""
    return field.flag.removeprefix("--").replace("-", "_")


def _own_first(kind: type[Any]) -> list[dataclasses.Field[Any]]:
    found = {each.name: each for each in dataclasses.fields(kind)}
    order = dict.fromkeys(name for each in kind.__mro__ for name in vars(each).get("__annotations__", {}))
    return [found[name] for name in order]


def _hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)
