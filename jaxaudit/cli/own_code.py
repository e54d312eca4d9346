"""Loads your own code by its name on the command line. Imports nothing heavy.

Only code that the command line names is run, never code that data name.
"""

import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import cloudpickle

from jaxaudit.cli.options import fields_of
from jaxaudit.cli.parsers import parse_names
from jaxaudit.errors import InputError


class OwnCode(NamedTuple):
    """The location of a value of this name: its module, which a file (else None) has only while it is loaded."""

    file: Path | None
    module: str
    name: str


def parse_own(flag: str, text: str, known_names: tuple[str, ...], own_kind: str, noun: str) -> OwnCode | None:
    """The location of your own code that an option names; None for a built-in name.

    Args:
        flag: the option, such as `--optimizer`.
        text: its value, a built-in name or `MODULE:NAME` or `FILE.py:NAME`.
        known_names: the built-in names.
        own_kind, noun: what the option takes, for messages, such as "your own optimizer" and "function".

    >>> parse_own("--optimizer", "optax:lion", ("adam",), "your own optimizer", "function")
    OwnCode(file=None, module='optax', name='lion')
    """
    if text in known_names:
        return None
    module, colon, name = text.rpartition(":")
    if not colon:
        if text.endswith(".py"):
            raise InputError(f"{flag} {text} names a file; also name the {noun} in it, such as {text}:{noun}.")
        other = f" is not one of {', '.join(known_names)};" if known_names else ":"
        raise InputError(f"{flag} {text}{other} {own_kind} is named package.module:{noun} or file.py:{noun}.")
    words = [name] if module.endswith(".py") else [*module.split("."), name]
    if not all(word.isidentifier() for word in words):
        raise InputError(
            f"{flag} {text} must name a module or file and a {noun}, such as package.module:{noun} or file.py:{noun}."
        )
    if not module.endswith(".py"):
        return OwnCode(None, module, name)
    file = Path(os.path.expanduser(module))
    if not os.path.isfile(file):
        raise InputError(f"{flag} {text}: there is no file {file}; is the path right?")
    return OwnCode(file, f"jaxaudit_model_{file.stem}", name)


def parse_own_names(
    flag: str, text: str, known_names: tuple[str, ...], own_kind: str, noun: str
) -> dict[str, OwnCode | None]:
    """The distinct names of a list separated by commas, in order, each with the location of your own code or None.

    The arguments are those of `parse_own`.

    >>> parse_own_names("--tests", "rho, mine:Test", ("rho",), "your own test", "Test")
    {'rho': None, 'mine:Test': OwnCode(file=None, module='mine', name='Test')}
    """
    words = list(filter(None, map(str.strip, text.split(","))))
    own_codes = {
        word: parse_own(flag, word, (), own_kind, noun) for word in words if ":" in word or word.endswith(".py")
    }
    built_in = [word for word in words if word not in own_codes]
    if built_in or not own_codes:
        parse_names(",".join(built_in), known_names, flag)
    return {word: own_codes.get(word) for word in words}


def load_named(
    flag: str, names: Mapping[str, OwnCode | None], interface: type[Any], needs: str, taken: Collection[str]
) -> dict[str, Any]:
    """Your own values among these names, by the name as given. A class is called without arguments.

    Refuses a value that lacks an attribute of the interface, or whose `name` is no word or is taken.

    Args:
        flag: the option, for messages.
        names: the names given, each with its location, or None for a built-in name.
        interface: the protocol that a value must have.
        needs: what a value must be, for messages.
        taken: the names of built-in values.
    """
    values_by_text: dict[str, Any] = {}
    for text, code in names.items():
        if code is None:
            continue
        value = load_value(flag, text, code)
        try:
            value = value() if isinstance(value, type) else value
        except Exception as error:
            raise InputError(
                f"{flag} {text} is a class, which is called without arguments: {type(error).__name__}: {error}; give "
                "its fields defaults, or name a value that it made."
            ) from error
        members = [member for member in {**vars(interface), **interface.__annotations__} if not member.startswith("_")]
        lacking = [member for member in members if not hasattr(value, member)]
        if lacking:
            raise InputError(
                f"{flag} {text} is of type {type(value).__name__}, which has no {', '.join(lacking)}; name {needs}."
            )
        if not re.fullmatch(r"[A-Za-z0-9-]+", str(value.name)):
            raise InputError(f"{flag} {text}: its name must be letters, digits and hyphens; got {value.name!r}.")
        reasons_by_name = {previous.name: f"{other} has it, too" for other, previous in values_by_text.items()}
        reasons_by_name |= dict.fromkeys(taken, "a built-in one has it")
        if value.name in reasons_by_name:
            raise InputError(
                f"{flag} {text} has the name {value.name!r}, and {reasons_by_name[value.name]}; give it another `name`."
            )
        values_by_text[text] = value
    return values_by_text


def load_value(flag: str, text: str, code: OwnCode) -> Any:
    """The value with this name, after importing its module or running its file."""
    if code.file is None:
        kind, source, folder, where = "module", code.module, Path.cwd(), "is it in the current folder"
    else:
        kind, source, folder = "file", code.file.name, code.file.resolve().parent
        where = f"is it in the folder of {source}"
    # Keras chooses its backend on import; only a model that computes in JAX can be measured.
    if flag == "--model":
        os.environ.setdefault("KERAS_BACKEND", "jax")
    try:
        with _looked_into(folder):
            module = _run(code.file, code.module) if code.file else importlib.import_module(code.module)
    except ModuleNotFoundError as error:
        install = " pip install 'jaxaudit[keras]'." if error.name == "keras" else ""
        if error.name == "torch":
            from jaxaudit.models.torch_module import INSTALL

            install = f" {INSTALL}."
        raise InputError(
            f"{flag} {text}: there is no module {error.name!r}; {where}, or installed?{install}"
        ) from error
    except (Exception, SystemExit) as error:
        raise InputError(f"{flag} {text}: importing {source} failed: {type(error).__name__}: {error}") from error
    try:
        return getattr(module, code.name)
    except AttributeError as error:
        raise InputError(f"{flag} {text}: {kind} {source} has no {code.name!r}.") from error


def source_hash(code: OwnCode | None) -> str | None:
    """`blake2b:...` of the source file of loaded code; None for built-in code."""
    file = code and (code.file or getattr(sys.modules.get(code.module), "__file__", None))
    return f"blake2b:{hashlib.blake2b(Path(file).read_bytes(), digest_size=16).hexdigest()}" if file else None


def source_hashes(options: Any) -> dict[str, str]:
    """Hashes of the source files of your own loaded code among these options, by option.

    For an option with several values, the key includes the number of the value, such as `augment 1`. With adapters
    `model` is the hash of their base model.
    """
    values, hashes = dict[str, Any](), dict[str, str | None]()
    for field in fields_of(options):
        value = values[field.name] = field.value
        parse, names = cast("Any", field.declared.check), field.declared.names
        if value is None or names not in ("code", "codes"):
            continue
        if names == "code" and isinstance(value, str):
            hashes[field.name] = source_hash(parse(value))
            continue
        several = parse(value).values() if names == "codes" else map(parse, value)
        hashes |= {f"{field.name} {number}": source_hash(code) for number, code in enumerate(several)}
    if values.get("lora") is not None:
        from jaxaudit.models.language_model import folder_hash

        hashes["model"] = folder_hash(Path(os.path.expanduser(values["model"])))
    return {role: digest for role, digest in hashes.items() if digest is not None}


def _run(file: Path, module_name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # where dataclasses look for the module of a class
    # Workers cannot import this module, so its classes are sent to them by value.
    cloudpickle.register_pickle_by_value(module)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _looked_into(folder: Path) -> Iterator[None]:
    """Within this context imports search `folder` first, as for a script; afterwards they search it last.

    So the package's own later imports never find a file of the same name in that folder.
    """
    name = str(folder)
    was_on_path = name in sys.path
    sys.path.insert(0, name)
    try:
        yield
    finally:
        if name in sys.path:
            sys.path.remove(name)
        if not was_on_path:
            sys.path.append(name)
