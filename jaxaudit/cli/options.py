"""Options declared once, as fields of frozen dataclasses, and what follows of a run. Imports nothing heavy.

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
import typing
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from jaxaudit.errors import InputError
from jaxaudit.paths import without_folders

Options = TypeVar("Options")
Check = Callable[[Any], object]
PLACES = ("data", "file")
"""What the value of an option may name whose contents count, not its path."""


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
            `code` if it may name code of one's own, `codes` if each name of a list may.
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
    names: typing.Literal["", "data", "file", "code", "codes"] = ""
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

    def one(value: Any, names: str) -> Any:
        if isinstance(value, list | tuple):
            return [one(each, names) for each in value]
        if names == "codes" and isinstance(value, str):
            return ",".join(without_folders(each.strip()) for each in value.split(","))
        return without_folders(str(value)) if isinstance(value, Path) or (names and isinstance(value, str)) else value

    source = source_of(options)
    used = [field for field in fields_of(options) if source in field.of | Source.TRAINING and field.declared.decides]
    # Words that are no place stay as they are: a class or a column may look like a path.
    return {_key(each): one(each.value, each.declared.names) for each in used}


def identity_of(options: Any) -> dict[str, Any]:
    """The options that affect a number, without those that name places: contents count, not paths."""
    paths = {_key(field) for field in fields_of(options) if field.declared.names in PLACES}
    return {name: value for name, value in plain(options).items() if name not in paths}


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
