"""The targets of `views_gain`: small networks, trained with random shifts or without."""

from functools import partial
from typing import Any

import optax
from flax import nnx
from jax.nn import relu

from jaxaudit import models, network
from jaxaudit.audits.ks.teachers import shifted
from jaxaudit.models.layers import make_norm, max_pool_2x2

NAMES = {"shifts 3": "CNN with shifts, 3 epochs", "shifts 10": "CNN with shifts, 10 epochs", "mlp 10": "MLP, 10 epochs"}


class CNN(nnx.Module):
    """Two convolutions with batch normalisation, of 16 and 32 channels, each halving the image."""

    def __init__(self, shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        self.convs = nnx.List([nnx.Conv(a, b, (3, 3), padding=1, rngs=rngs) for a, b in ((shape[2], 16), (16, 32))])
        self.norms = nnx.List([make_norm("batch", width, rngs) for width in (16, 32)])
        self.output = nnx.Linear((shape[0] // 4) * (shape[1] // 4) * 32, classes, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = max_pool_2x2(relu(norm(conv(x))))
        return self.output(x.reshape(len(x), -1))


def learner(recipe: str) -> Any:
    """The learner of a recipe of `NAMES`."""
    kind, epochs = recipe.split()
    factory = CNN if kind == "shifts" else partial(models.MLP, hidden=(128,))
    augment = (shifted,) if kind == "shifts" else ()
    how: dict[str, Any] = {"optimizer": optax.adam(1e-3), "epochs": int(epochs), "batch_size": 64, "augment": augment}
    return network(factory, (28, 28, 1), 10, **how)
