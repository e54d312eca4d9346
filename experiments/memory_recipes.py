"""Targets that remember little of their records, or much: networks of PyTorch, and classifiers of scikit-learn.

Each recipe is a function of a seed, training records, the number of classes and other records of the same provider to
a function of inputs to log-probabilities. `memory_targets` trains them on random halves of a pool. All but
`finetuned` are trained on the records alone.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments import error_rates_recipes
from experiments.error_rates_worlds import Records

LogProbs = Callable[[np.ndarray], np.ndarray]
Recipe = Callable[[int, Records, int, Records], LogProbs]
BATCH, HIDDEN, WIDTH, TOKENS = 64, 128, 16, 32
SHIFT = 2
"""Images are shifted by up to so many pixels, anew in each epoch."""
TEMPERATURE = 4.0
"""Distillation: what the logits are divided by."""


class Manner(NamedTuple):
    """How a network is trained."""

    epochs: float
    optimizer: Callable[[Any], torch.optim.Optimizer] = lambda parameters: torch.optim.Adam(parameters, 1e-3)
    shifts: bool = False
    smoothing: float = 0.0


def mlp(shape: tuple[int, ...], classes: int, dropout: float = 0.0) -> nn.Module:
    """One hidden layer."""
    width = int(np.prod(shape))
    between = [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(nn.Flatten(), nn.Linear(width, HIDDEN), nn.ReLU(), *between, nn.Linear(HIDDEN, classes))


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two layers of convolutions with batch norm, each halving the image."""

    def layer(inside: int, outside: int) -> list[nn.Module]:
        return [nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(), nn.MaxPool2d(2)]

    flat = 2 * WIDTH * (shape[0] // 4) * (shape[1] // 4)
    return nn.Sequential(*layer(shape[2], WIDTH), *layer(WIDTH, 2 * WIDTH), nn.Flatten(), nn.Linear(flat, classes))


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.other_norm = nn.BatchNorm2d(WIDTH), nn.BatchNorm2d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x + self.other_norm(self.second(functional.relu(self.norm(self.first(x))))))


def resnet(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Three residual blocks on half as many pixels a side, and the mean over quarters of the image."""
    stem = [nn.Conv2d(shape[2], WIDTH, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * WIDTH, classes)]
    return nn.Sequential(*stem, *(_Block() for _ in range(3)), *head)


class _Transformer(nn.Module):
    """A small vision transformer: patches of 4 x 4 pixels, two layers, the mean of the tokens."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(shape[2], TOKENS, 4, stride=4, padding=1)
        count = (shape[0] // 4 + 1) * (shape[1] // 4 + 1)
        self.places = nn.Parameter(0.02 * torch.randn(count, TOKENS))
        layer = nn.TransformerEncoderLayer(TOKENS, 4, 2 * TOKENS, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.out = nn.LayerNorm(TOKENS), nn.Linear(TOKENS, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.out(self.norm(self.layers(tokens)).mean(dim=1))


def as_tensor(inputs: np.ndarray) -> Tensor:
    """Images with their channels first."""
    inputs = np.moveaxis(inputs, -1, 1) if inputs.ndim == 4 else inputs
    return torch.from_numpy(np.ascontiguousarray(inputs, np.float32))


def _shifted(x: Tensor, generator: torch.Generator) -> Tensor:
    """Each image shifted by its own draw; black comes in from outside."""
    height, width = x.shape[2:]
    padded = functional.pad(x, (SHIFT,) * 4)
    down, right = torch.randint(2 * SHIFT + 1, (2, len(x)), generator=generator)
    rows = (down[:, None] + torch.arange(height))[:, None, :, None]
    columns = (right[:, None] + torch.arange(width))[:, None, None, :]
    images = torch.arange(len(x))[:, None, None, None]
    return padded[images, torch.arange(x.shape[1])[:, None, None], rows, columns]


def fit(net: nn.Module, x: Tensor, y: Tensor, manner: Manner, seed: int) -> nn.Module:
    """Trains a network on classes, or on probabilities of a teacher; a last part of an epoch may be all there is."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = manner.optimizer(net.parameters())
    soft = y.ndim == 2
    left = round(manner.epochs * len(x) / BATCH)
    net.train()
    while left > 0:
        seen = _shifted(x, generator) if manner.shifts else x
        for rows in torch.randperm(len(x), generator=generator).split(BATCH)[:left]:
            left -= 1
            if len(rows) == 1:
                continue
            optimizer.zero_grad()
            logits = net(seen[rows])
            if soft:
                loss = functional.cross_entropy(logits / TEMPERATURE, y[rows]) * TEMPERATURE**2
            else:
                loss = functional.cross_entropy(logits, y[rows], label_smoothing=manner.smoothing)
            loss.backward()
            optimizer.step()
    return net.eval()


def answers(net: nn.Module) -> LogProbs:
    """What a trained network says."""

    def log_probs(asked: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            logits = torch.cat([net(part) for part in as_tensor(asked).split(1000)])
        return functional.log_softmax(logits.double(), dim=1).numpy()

    return log_probs


Build = Callable[[tuple[int, ...], int], nn.Module]


def of_network(build: Build, manner: Manner, *, distil: bool = False, finetune: float = 0.0) -> Recipe:
    """A network; `distil`: a second one, taught by it; `finetune`: so many epochs on other records afterwards."""

    def train(seed: int, records: Records, classes: int, others: Records) -> LogProbs:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        shape = records.inputs.shape[1:]
        x, y = as_tensor(records.inputs), torch.from_numpy(records.labels.astype(np.int64))
        net = fit(build(shape, classes), x, y, manner, seed)
        if distil:
            with torch.no_grad():
                taught = functional.softmax(net(x) / TEMPERATURE, dim=1)
            net = fit(build(shape, classes), x, taught, manner, seed + 1)
        if finetune:
            later = torch.from_numpy(others.labels.astype(np.int64))
            fit(net, as_tensor(others.inputs), later, manner._replace(epochs=finetune), seed + 2)
        return answers(net)

    return train


def of_error_rates(name: str) -> Recipe:
    """A recipe of `error_rates_recipes`."""

    def train(seed: int, records: Records, classes: int, others: Records) -> LogProbs:
        return error_rates_recipes.RECIPES[name](seed, *records, classes)

    return train


def _knn(seed: int, records: Records, classes: int, others: Records) -> LogProbs:
    from sklearn.neighbors import KNeighborsClassifier

    make = error_rates_recipes.of_scikit_learn(lambda _: KNeighborsClassifier(5))
    return make(seed, *records, classes)


def _decay(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 1e-3, weight_decay=1e-1)


def _momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.05, momentum=0.9, weight_decay=5e-4)


def _adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 2e-3)


def _with_dropout(shape: tuple[int, ...], classes: int) -> nn.Module:
    return mlp(shape, classes, 0.5)


FOR_IMAGES: dict[str, Recipe] = {
    "cnn-shift-5": of_network(cnn, Manner(5, shifts=True)),
    "cnn-shift-2": of_network(cnn, Manner(2, shifts=True)),
    "cnn-shift-15": of_network(cnn, Manner(15, shifts=True)),
    "cnn-10": of_network(cnn, Manner(10)),
    "resnet-crop-8": of_network(resnet, Manner(8, _momentum, shifts=True)),
    "vit-10": of_network(_Transformer, Manner(10, _adamw)),
}
FOR_ALL: dict[str, Recipe] = {
    "mlp-10": of_network(mlp, Manner(10)),
    "mlp-40": of_network(mlp, Manner(40)),
    "mlp-3": of_network(mlp, Manner(3)),
    "mlp-half-epoch": of_network(mlp, Manner(0.5)),
    "mlp-dropout-decay": of_network(_with_dropout, Manner(20, _decay)),
    "mlp-smoothing": of_network(mlp, Manner(20, smoothing=0.1)),
    "distilled": of_network(mlp, Manner(20), distil=True),
    "finetuned": of_network(mlp, Manner(20), finetune=5),
    "knn": _knn,
    "logistic": of_error_rates("logistic regression"),
    "forest": of_error_rates("random forest"),
    "boosting": of_error_rates("boosted trees"),
    "dp-sgd": of_error_rates("DP-SGD"),
}
"""The quickest first, of about equal interest."""
