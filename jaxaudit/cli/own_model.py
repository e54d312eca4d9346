"""Networks, optimizers and augmentations by name: built-in, or your own. Imports nothing heavy."""

import os
import re
from pathlib import Path
from typing import Any

from jaxaudit.cli.own_code import OwnCode, load_value, parse_own
from jaxaudit.errors import InputError

DESIGNS = ("mlp", "liu-cnn", "medical-cnn")
SIZED = {"resnet": ("depth", "width"), "wrn": ("depth", "widen"), "vit": ("depth", "width"), "gpt": ("depth", "width")}
"""Networks whose names may include sizes, such as resnet-8-16, and the meaning of the sizes."""
NAMES = (*DESIGNS, "resnet-8-16", "wrn-16-2", "vit-4-64")
NETWORKS = (
    f"{', '.join(NAMES)} (depth and width, or other ones; group normalisation, or batch normalisation with -bn, as in "
    "resnet-8-16-bn)"
)
OF_TEXTS = "gpt-2-64"
"""The usual network of texts."""
OWN = (
    "your own module (Flax NNX or Linen, PyTorch; Keras for efficacy) as package.module:factory or file.py:factory, "
    "called as factory(input_shape, classes, rngs=...); factory(rngs), factory() and a class with num_classes work, too"
)
"""Text for the help of every command with --model."""

PRETRAINED = "the folder or config.json of a classifier of transformers (a folder of save_pretrained has weights, too)"
"""Text for the help of `efficacy`."""

UNSEEDED = (
    "the initial weights of the network depend on no seed (its factory takes no rngs, or draws nothing): all models "
    "start from the same weights"
)

OPTIMIZERS = ("adam", "adamw", "sgd")
AUGMENTATIONS = ("flip", "crop", "cutout", "noise")
OF_YOUR_OWN = {
    "--model": (NAMES, "your own module", "factory"),
    "--optimizer": (OPTIMIZERS, "your own function of the learning rate", "function"),
    "--augment": (AUGMENTATIONS, "your own function of key and inputs", "function"),
    "--learner": ((), "your own learner", "learner"),
}
"""Options that may name code of your own: the built-in names, what else it is called, and what is named."""


def own_code(flag: str, name: str) -> OwnCode | None:
    """The location that the value of one of these options names; None for a built-in name; see `parse_own`."""
    return parse_own(flag, name, *OF_YOUR_OWN[flag])


def load_own(flag: str, name: str) -> Any:
    """The function or class that the value names; None for a built-in name."""
    code = own_code(flag, name)
    factory = code and load_value(flag, name, code)
    if code is not None and not callable(factory):
        raise InputError(
            f"{flag} {name} is of type {type(factory).__name__}, which cannot be called; name a class or a function."
        )
    return factory


def parse_model(name: str) -> OwnCode | None:
    """The location of the factory that `--model` names; None for a built-in model.

    >>> parse_model("package.module:factory"), parse_model("mlp")
    (OwnCode(file=None, module='package.module', name='factory'), None)
    """
    return None if parse_sized(name) else own_code("--model", name)


def parse_judged(name: str) -> OwnCode | None:
    """The location of the factory that `--model` names, for a command that trains no network itself.

    As `parse_model`, but the name may also be that of a pretrained model's folder or its configuration, a .json file.
    None for such a name, and for a built-in model.

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
    if not name or name in DESIGNS or parse_sized(name):
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
