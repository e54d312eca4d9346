"""From the words on the command line to a learner."""

import hashlib
import importlib
import sys
from functools import partial
from pathlib import Path
from typing import Any

from jaxaudit.errors import InputError

WIDEST = 65_536
DESIGNS = ("mlp", "liu-cnn", "medical-cnn")


def make_factory(name: str, hidden: tuple[int, ...]) -> Any:
    """The model factory that `--model` names: a built-in design or `package.module:factory`."""
    from jaxaudit import models

    if name == "mlp":
        return partial(models.MLP, hidden=hidden)
    if name == "liu-cnn":
        return models.LiuCNN
    if name == "medical-cnn":
        return models.MedicalCNN
    if ":" not in name:
        raise InputError(
            f"--model {name} is not one of {', '.join(DESIGNS)}; your own Flax module is named package.module:factory."
        )
    return _import(name)


def parse_hidden(text: str) -> tuple[int, ...]:
    """Layer widths, from `512,256,128`; an empty text is no hidden layer."""
    try:
        widths = tuple(int(width) for width in text.split(",") if width.strip())
    except ValueError:
        widths = (0,)
    if any(not 1 <= width <= WIDEST for width in widths):
        raise InputError(
            f"--hidden {text} must be whole numbers from 1 to {WIDEST} with commas between, such as 512,256,128."
        )
    return widths


def _import(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), attribute)):
        raise InputError(f"--model {name} must name a module and a factory, such as package.module:factory.")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"--model {name}: there is no module {error.name!r}; is its folder the current one, or is it installed?"
        ) from error
    except (Exception, SystemExit) as error:
        raise InputError(f"--model {name}: importing {module_name} failed: {type(error).__name__}: {error}") from error
    try:
        factory = getattr(module, attribute)
    except AttributeError as error:
        raise InputError(f"--model {name}: module {module_name} has no {attribute!r}.") from error
    if not callable(factory):
        raise InputError(
            f"--model {name} is of type {type(factory).__name__}, which cannot be called; name a module class or a "
            "function that builds one."
        )
    return factory


def make_optimizer(name: str, learning_rate: float) -> Any:
    """The Optax transformation that `--optimizer` names; Adam has the paper's b1 = 0.5, b2 = 0.999."""
    import optax

    if not 0 < learning_rate < float("inf"):
        raise InputError(f"--learning-rate must be above 0, got {learning_rate:g}.")
    return optax.adam(learning_rate, b1=0.5, b2=0.999) if name == "adam" else optax.sgd(learning_rate)


def check_shares(options: dict[str, Any]) -> None:
    """Refuses a share out of range; written so that NaN is out of range, too."""
    if not 0 < options["subsample"] <= 1:
        raise InputError(f"--subsample must be above 0 and at most 1, got {options['subsample']:g}.")
    if not 0 < options["level"] < 1:
        raise InputError(f"--level must be between 0 and 1, such as 0.95, got {options['level']:g}.")
    if not 0 <= options["min_accuracy"] <= 1:
        raise InputError(f"--min-accuracy must be from 0 to 1, such as 0.9, got {options['min_accuracy']:g}.")


def source_hash(name: str) -> str | None:
    """`blake2b:...` of the source file of `package.module:factory`, once imported; None for a built-in design."""
    module = sys.modules.get(name.partition(":")[0]) if ":" in name else None
    path = getattr(module, "__file__", None)
    if path is None:
        return None
    return f"blake2b:{hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()}"
