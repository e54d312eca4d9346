"""Your own code by its name on the command line, beside what is built in. Imports nothing heavy."""

import dataclasses
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar, cast, get_type_hints

import cloudpickle
import msgspec

from jaxaudit.cli.options import fields_of
from jaxaudit.errors import InputError
from jaxaudit.json_types import hash_of


class OwnCode(NamedTuple):
    """The location of a value of this name: its module, which a file (else None) has only while it is loaded."""

    file: Path | None
    module: str
    name: str


def parse_own(text: str, known_names: tuple[str, ...], own_kind: str, noun: str) -> OwnCode | None:
    """The location of your own code that `--model` names, as `MODULE:NAME` or `FILE.py:NAME`; None for a built-in name.

    `own_kind` and `noun` say what the option takes.

    >>> parse_own("nets:small", ("mlp",), "your own module", "factory")
    OwnCode(file=None, module='nets', name='small')
    """
    if text in known_names:
        return None
    if text.endswith(".py"):
        raise InputError(f"--model {text} names a file; also name the {noun} in it, such as {text}:{noun}.")
    module, _, name = text.rpartition(":")
    words = [name] if module.endswith(".py") else [*module.split("."), name]
    if not all(word.isidentifier() for word in words):
        other = f" is not one of {', '.join(known_names)};" if known_names else ":"
        raise InputError(f"--model {text}{other} {own_kind} is named package.module:{noun} or file.py:{noun}.")
    if not module.endswith(".py"):
        return OwnCode(None, module, name)
    file = Path(os.path.expanduser(module))
    if not os.path.isfile(file):
        raise InputError(f"--model {text}: there is no file {file}; is the path right?")
    return OwnCode(file, f"jaxaudit_model_{file.stem}", name)


def load_value(text: str, code: OwnCode) -> Any:
    """The value with this name, after importing its module or running its file."""
    if code.file is None:
        kind, source, folder, where = "module", code.module, Path.cwd(), "is it in the current folder"
    else:
        kind, source, folder = "file", code.file.name, code.file.resolve().parent
        where = f"is it in the folder of {source}"
    try:
        with _looked_into(folder), redirect_stdout(sys.stderr):
            module = _run(code.file, code.module) if code.file else importlib.import_module(code.module)
    except ModuleNotFoundError as error:
        from jaxaudit.models.torch_module import INSTALL

        install = f" {INSTALL}." if error.name == "torch" else ""
        raise InputError(
            f"--model {text}: there is no module {error.name!r}; {where}, or installed?{install}"
        ) from error
    except (Exception, SystemExit) as error:
        raise InputError(f"--model {text}: importing {source} failed: {type(error).__name__}: {error}") from error
    try:
        return getattr(module, code.name)
    except AttributeError as error:
        raise InputError(f"--model {text}: {kind} {source} has no {code.name!r}.") from error


def model_hash(options: Any) -> str | None:
    """The hash of the source file of your own loaded network among these options, or of the base model of adapters."""
    if getattr(options, "lora", None) is not None:
        from jaxaudit.models.language_model import folder_hash

        return folder_hash(Path(os.path.expanduser(options.model)))
    field = next((field for field in fields_of(options) if field.declared.names == "code"), None)
    code: OwnCode | None = cast("Any", field.declared.check)(field.value) if field and field.value is not None else None
    file = code and (code.file or getattr(sys.modules.get(code.module), "__file__", None))
    return hash_of([Path(file).read_bytes()]) if file else None


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
    """Within this context imports search `folder` first, as for a script; afterwards they search it last."""
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


BUILT_IN = ("mlp", "liu-cnn")
SIZED = {"resnet": ("depth", "width"), "wrn": ("depth", "widen"), "vit": ("depth", "width"), "gpt": ("depth", "width")}
"""Networks whose names may include sizes, such as resnet-8-16, and the meaning of the sizes."""
NAMES = (*BUILT_IN, "resnet-8-16", "wrn-16-2", "vit-4-64")
NETWORKS = (
    f"{', '.join(NAMES)} (depth and width, or other ones; group normalisation, or batch normalisation with -bn, as in "
    "resnet-8-16-bn)"
)
OF_TEXTS = "gpt-2-64"
"""The usual network of texts."""
ESTIMATOR = (
    "an estimator of scikit-learn, as sklearn.MODULE:CLASS, whose parameters --recipe sets, or one of your own with "
    "fit and predict_proba, or a function that makes it, as file.py:make"
)
"""Text for the help of the commands that train estimators."""
OWN = (
    "your own module (Flax NNX or Linen, PyTorch) as package.module:factory or file.py:factory, called as "
    " factory(input_shape, classes, rngs=...); factory(rngs), factory() and a class with num_classes work, too"
)
"""Text for the help of every command with --model."""

PRETRAINED = "the folder or config.json of a classifier of transformers (a folder of save_pretrained has weights, too)"
"""Text for the help of `efficacy`."""

UNSEEDED = (
    "the initial weights of the network depend on no seed (its factory takes no rngs, or draws nothing): all models "
    "start from the same weights"
)


def parse_model(name: str) -> OwnCode | None:
    """The location of the factory that `--model` names; None for a built-in model.

    >>> parse_model("package.module:factory"), parse_model("mlp")
    (OwnCode(file=None, module='package.module', name='factory'), None)
    """
    return None if parse_sized(name) else parse_own(name, NAMES, "your own module", "factory")


def parse_judged(name: str) -> OwnCode | None:
    """The location of the factory that `--model` names, for a command that trains no network itself.

    As `parse_model`, but a pretrained model's folder or configuration (.json) is a name, too: then None.

    Raises:
        InputError: there is no such folder or file, or the name is neither a built-in model's nor a location's.
    """
    config = pretrained_config(name)
    if config is None:
        try:
            return parse_model(name)
        except InputError as error:
            raise InputError(f"{error} There is no folder of this name, either.") from error
    if not config.exists():
        raise InputError(
            f"--model {name}: there is no such {'file' if config.suffix == '.json' else 'folder'}; give the path that "
            "save_pretrained wrote to."
        )
    return None


def pretrained_config(name: str | None) -> Path | None:
    """The configuration, or its folder, that `--model` names; None for any other network.

    >>> pretrained_config("mlp"), pretrained_config("net.py:Net"), pretrained_config("bert/config.json")
    (None, None, PosixPath('bert/config.json'))
    """
    if not name or name in BUILT_IN or parse_sized(name):
        return None
    path = Path(os.path.expanduser(name))
    return path if name.endswith((".json", os.sep)) or os.path.isdir(path) else None


def parse_sized(name: str) -> tuple[str, dict[str, Any]] | None:
    """The kind of network and the options in a name with sizes; None for any other name.

    >>> parse_sized("wrn-16-4"), parse_sized("resnet-bn"), parse_sized("mlp")
    (('wrn', {'depth': 16, 'widen': 4}), ('resnet', {'norm': 'batch'}), None)
    """
    match = re.fullmatch(r"(resnet|wrn|vit|gpt)(?:-(\d{1,3}))?(?:-(\d{1,4}))?(-bn)?", name)
    if match is None or (match[1] in ("vit", "gpt") and match[4]):
        return None
    sizes = {size: int(text) for size, text in zip(SIZED[match[1]], match.groups()[1:3], strict=True) if text}
    return match[1], {**sizes, **({"norm": "batch"} if match[4] else {})}


def is_of_texts(name: str) -> bool:
    """Whether the name is that of a built-in language model."""
    return (parse_sized(name) or ("",))[0] == "gpt"


Value = TypeVar("Value")


def parse_field(flag: str, text: str) -> tuple[str, str, str]:
    """The name, the field and the value of `NAME.FIELD=VALUE`.

    >>> parse_field("--test-option", "sureness.models=39")
    ('sureness', 'models', '39')
    """
    match = re.fullmatch(r"([A-Za-z0-9-]+)\.([A-Za-z_]\w*)=(.*)", text)
    if match is None:
        raise InputError(
            f"{flag} {text}: must be NAME.FIELD=VALUE: a test, an attack or a method by its name, a field of it, and "
            "the value."
        )
    name, field, value = match.groups()
    return name, field, value


def with_fields(flag: str, texts: Sequence[str], values: Mapping[str, Value]) -> dict[str, Value]:
    """These values by name, with the fields that `texts` set.

    Raises:
        InputError: there is no value of this name, it has no such field, or the text is no value of the field's type.
    """
    changed = dict(values)
    for text in texts:
        name, field, word = parse_field(flag, text)
        if name not in changed:
            names = ", ".join(changed)
            raise InputError(f"{flag} {text}: {name} is not made in this run; fields can be set of {names}.")
        value: Any = changed[name]
        types = get_type_hints(type(value), include_extras=True)
        fields = [option.name for option in dataclasses.fields(value) if option.init]
        if field not in fields:
            raise InputError(f"{flag} {text}: {name} has no field {field}; it has {', '.join(fields) or 'none'}.")
        try:
            changed[name] = dataclasses.replace(value, **{field: msgspec.convert(word, types[field], strict=False)})
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise InputError(f"{flag} {text}: {word!r} is no value of {field}: {error}.") from error
    return changed
