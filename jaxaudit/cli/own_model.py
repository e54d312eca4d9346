"""Networks of your own, by their names on the command line. Imports nothing heavy.

Only code that the command line names is run; nothing that data name.
"""

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from jaxaudit.errors import InputError

DESIGNS = ("mlp", "liu-cnn", "medical-cnn")
OWN = (
    "your own module (Flax NNX or Linen, PyTorch) as package.module:factory or file.py:factory, called as "
    "factory(input_shape, classes, rngs=...); factory(rngs), factory() and a class with num_classes work, too"
)
"""For the help of every command with --model."""

UNSEEDED = (
    "the initial weights of the network depend on no seed (its factory takes no rngs, or draws nothing): all models "
    "start from the same weights"
)


class OwnModel(NamedTuple):
    """Where a factory is.

    Attributes:
        file: the Python file; None for a module.
        module: the module's name; for a file, its name while it is loaded.
        factory: the name of the factory.
    """

    file: Path | None
    module: str
    factory: str


def parse_model(name: str) -> OwnModel | None:
    """The location of the factory that `--model` names; None for a built-in model.

    Raises:
        InputError: the name has no known form, or there is no such file.

    >>> parse_model("package.module:factory"), parse_model("mlp")
    (OwnModel(file=None, module='package.module', factory='factory'), None)
    """
    if name in DESIGNS:
        return None
    place, colon, factory = name.rpartition(":")
    if not colon:
        if name.endswith(".py"):
            raise InputError(f"--model {name} names a file; also name the factory in it, such as {name}:factory.")
        raise InputError(
            f"--model {name} is not one of {', '.join(DESIGNS)}; your own module is named package.module:factory "
            "or file.py:factory."
        )
    words = [factory] if place.endswith(".py") else [*place.split("."), factory]
    if not all(word.isidentifier() for word in words):
        raise InputError(
            f"--model {name} must name a module or file and a factory, such as package.module:factory or "
            "file.py:factory."
        )
    if not place.endswith(".py"):
        return OwnModel(None, place, factory)
    file = Path(os.path.expanduser(place))
    if not os.path.isfile(file):
        raise InputError(f"--model {name}: there is no file {file}; is the path right?")
    return OwnModel(file, f"jaxaudit_model_{file.stem}", factory)


def load_factory(name: str, own: OwnModel) -> Any:
    """The factory itself: its module is imported, its file is run.

    Raises:
        InputError: that fails, or there is no such factory; `name` names it in messages.
    """
    source = own.module if own.file is None else own.file.name
    try:
        with _looked_into(Path.cwd() if own.file is None else own.file.resolve().parent):
            module = importlib.import_module(own.module) if own.file is None else _run(own.file, own.module)
    except ModuleNotFoundError as error:
        where = "is it in the current folder" if own.file is None else f"is it in the folder of {source}"
        raise InputError(
            f"--model {name}: there is no module {error.name!r}; {where}, or installed?{_extra(error.name)}"
        ) from error
    except (Exception, SystemExit) as error:
        raise InputError(f"--model {name}: importing {source} failed: {type(error).__name__}: {error}") from error
    try:
        factory = getattr(module, own.factory)
    except AttributeError as error:
        kind = "module" if own.file is None else "file"
        raise InputError(f"--model {name}: {kind} {source} has no {own.factory!r}.") from error
    if not callable(factory):
        raise InputError(
            f"--model {name} is of type {type(factory).__name__}, which cannot be called; name a module class or a "
            "function that returns a module."
        )
    return factory


def source_hash(name: str) -> str | None:
    """`blake2b:...` of the source file of the loaded factory; None for a built-in model."""
    own = parse_model(name) if ":" in name else None
    file = own and (own.file or getattr(sys.modules.get(own.module), "__file__", None))
    return f"blake2b:{hashlib.blake2b(Path(file).read_bytes(), digest_size=16).hexdigest()}" if file else None


def _extra(module: str | None) -> str:
    """How PyTorch is installed; of no other module is it known."""
    if module != "torch":
        return ""
    from jaxaudit.models.torch_module import INSTALL

    return f" {INSTALL}."


def _run(file: Path, module_name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # where dataclasses look for the module of a class
    spec.loader.exec_module(module)
    return module


@contextmanager
def _looked_into(folder: Path) -> Iterator[None]:
    """Within this context imports search `folder` first, as for a script; afterwards they search it last.

    So the package's own later imports never find a file of the same name in that folder.
    """
    place = str(folder)
    known = place in sys.path
    sys.path.insert(0, place)
    try:
        yield
    finally:
        if place in sys.path:
            sys.path.remove(place)
        if not known:
            sys.path.append(place)
