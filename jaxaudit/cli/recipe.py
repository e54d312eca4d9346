"""From the command line to the parts of a learner."""

from functools import partial
from typing import Any

from jaxaudit.cli.own_model import load_factory, parse_model
from jaxaudit.cli.words import check_learning_rate


def make_factory(name: str, hidden: tuple[int, ...]) -> Any:
    """The model factory that `--model` names, built-in or your own; see `parse_model`."""
    own = parse_model(name)
    if own is not None:
        return load_factory(name, own)
    from jaxaudit import models

    if name == "mlp":
        return partial(models.MLP, hidden=hidden)
    return models.LiuCNN if name == "liu-cnn" else models.MedicalCNN


def make_optimizer(name: str, learning_rate: float) -> Any:
    """The Optax transformation that `--optimizer` names; Adam has the paper's b1 = 0.5, b2 = 0.999."""
    import optax

    check_learning_rate(learning_rate)
    return optax.adam(learning_rate, b1=0.5, b2=0.999) if name == "adam" else optax.sgd(learning_rate)
