"""Networks, optimizers and augmentations by name: built-in, or your own. Imports nothing heavy."""

from jaxaudit.cli.own_code import OwnCode, parse_own, source_hash

DESIGNS = ("mlp", "liu-cnn", "medical-cnn")
OWN = (
    "your own Flax module (NNX or Linen) as package.module:factory or file.py:factory, called as factory(input_shape, "
    "classes, rngs=...); factory(rngs), factory() and a class with num_classes work, too"
)
"""For the help of every command with --model."""

UNSEEDED = "the factory of the network takes no rngs: all models start from the same weights, whatever the seed"

OPTIMIZERS = ("adam", "adamw", "sgd")
AUGMENTATIONS = ("flip", "crop", "cutout", "noise")


def parse_model(name: str) -> OwnCode | None:
    """The location of the factory that `--model` names; None for a built-in model.

    Raises:
        InputError: the name has no known form, or there is no such file.

    >>> parse_model("package.module:factory"), parse_model("mlp")
    (OwnCode(file=None, module='package.module', name='factory'), None)
    """
    return parse_own("--model", name, DESIGNS, "your own Flax module", "factory")


def parse_optimizer(name: str) -> OwnCode | None:
    """The location of the function that `--optimizer` names; None for a built-in optimizer; raises as `parse_model`."""
    return parse_own("--optimizer", name, OPTIMIZERS, "your own function of the learning rate", "function")


def parse_augmentation(name: str) -> OwnCode | None:
    """The location of the function that `--augment` names; None for a built-in one; raises as `parse_model`."""
    return parse_own("--augment", name, AUGMENTATIONS, "your own function of key and inputs", "function")


def source_hashes(model: str | None, optimizer: str | None, augment: tuple[str, ...] | list[str]) -> dict[str, str]:
    """Hashes of the source files of your own code among these, loaded before, by option."""
    own = {
        "model": parse_model(model) if model and ":" in model else None,
        "optimizer": parse_optimizer(optimizer) if optimizer else None,
    }
    own |= {f"augment {number}": parse_augmentation(name) for number, name in enumerate(augment)}
    found = {role: source_hash(code) for role, code in own.items()}
    return {role: digest for role, digest in found.items() if digest is not None}
