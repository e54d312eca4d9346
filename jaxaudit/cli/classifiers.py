"""The classifiers that `pdtp` and `attack` train."""

from dataclasses import dataclass, fields
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from jaxaudit.cli.groups import MOST, RecipeFlags, TextNetwork
from jaxaudit.cli.options import option
from jaxaudit.cli.own_model import OF_TEXTS, is_of_texts, pretrained_config
from jaxaudit.cli.parsers import TEXTS, is_texts, parse_hidden, parse_names
from jaxaudit.cli.recipe import make_learner, make_optimizer
from jaxaudit.cli.sets import ShadowNetwork, ShadowRecipe
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from jaxaudit.data import Examples, Table
    from jaxaudit.learners import Learner
    from jaxaudit.models import ModuleFactory


def _network(options: "ClassifierOptions", recipe: RecipeFlags, table: "Table") -> tuple["Examples", "Learner"]:
    import jax
    import jax.numpy as jnp

    from jaxaudit.data import one_hot

    examples, classes = one_hot(table), len(table.class_names)
    inputs, hidden = examples.inputs.shape[1], parse_hidden(options.hidden)
    layers = pairwise([inputs, *hidden, classes])
    params = jax.ShapeDtypeStruct((sum((before + 1) * after for before, after in layers),), jnp.float32)
    # Memory of a model, its gradient, and the optimizer's state.
    remembered = jax.tree.leaves(jax.eval_shape(make_optimizer(recipe).init, params))
    held = sum(leaf.size * leaf.dtype.itemsize for leaf in (params, params, *remembered))
    demand_memory(
        held * (recipe.models_per_batch or 1), f"a network of --hidden {options.hidden}", "give narrower layers"
    )
    factory = _of_tanh(hidden, recipe.dropout or 0.0)
    return examples, make_learner(factory, recipe, (inputs,), classes, len(examples))


@cache
def _of_tanh(hidden: tuple[int, ...], dropout: float) -> "ModuleFactory":
    import jax.numpy as jnp

    from jaxaudit.models import MLP

    return partial(MLP, hidden=hidden, activation=jnp.tanh, dropout=dropout)


def _of_table(options: "ClassifierOptions", recipe: RecipeFlags, table: "Table") -> tuple["Examples", "Learner"]:
    from jaxaudit import learners
    from jaxaudit.data import category_counts, one_hot, ordinal

    if options.model == "nn":
        return _network(options, recipe, table)
    classes = len(table.class_names)
    smoothing: dict[str, Any] = {} if options.smoothing is None else {"smoothing": options.smoothing}
    if options.model == "nb":
        return ordinal(table), learners.naive_bayes(category_counts(table), classes, **smoothing)
    if options.model == "trees":
        leaves = options.trees * (len(table) + 2**options.depth * classes)
        demand_memory(8 * leaves, f"{options.trees:,} trees", "give fewer --trees or a smaller --depth")
        sizes = {"trees": options.trees, "depth": options.depth}
        return ordinal(table), learners.random_trees(category_counts(table), classes, **sizes, **smoothing)
    examples = one_hot(table)
    if options.model == "lr":
        learner = learners.logistic_regression(examples.inputs.shape[1], classes, l2=options.penalty)
    else:
        assert options.model == "knn", options.model
        learner = learners.nearest_neighbours(classes, neighbours=options.neighbours, **smoothing)
    return examples, learner


FAMILIES = {
    "nn": "neural network",
    "nb": "naive Bayes",
    "lr": "logistic regression",
    "trees": "random decision trees",
    "knn": "nearest neighbours",
}
"""The families of classifiers by their value of `--model`."""


@dataclass(frozen=True)
class ClassifierOptions(TextNetwork):
    """Which classifier, and its settings."""

    model: str = option(
        f"The classifier: {', '.join(f'{name} ({title})' for name, title in FAMILIES.items())}; for texts "
        f"{OF_TEXTS} (layers and width), which nn stands for there, or the folder of a causal model (--lora).",
        default="nn",
        check=lambda text: check_family(text),
        usual="The classifier: nn, nb, lr, ..., or your own.",
    )
    hidden: str = option("nn: sizes of the tanh layers.", default="64", check=parse_hidden)
    smoothing: float | None = option(
        "nb, trees, knn: number added to every count. [default: 1; 0.01 for knn]", minimum=0, maximum=1e6
    )
    penalty: float = option(
        "lr: half the weight of the squared coefficients, 1 / C.", default=1.0, minimum=1e-9, maximum=1e9
    )
    trees: int = option("trees: number of trees.", default=10, minimum=1, maximum=MOST)
    depth: int = option("trees: splits from root to leaf.", default=6, minimum=1, maximum=20)
    neighbours: int = option("knn: number of neighbours.", default=5, minimum=1, maximum=MOST)


def check_family(text: str) -> None:
    """Rejects a name that is neither a family of classifiers nor a language model."""
    if not (is_of_texts(text) or pretrained_config(text)):
        parse_names(text, (*FAMILIES, OF_TEXTS), "--model")


def check_texts(data: str | None, model: str, recipe: RecipeFlags) -> None:
    """Rejects a model or recipe that is not for these records."""
    texts, of_texts = data is not None and is_texts(data), is_of_texts(model) or pretrained_config(model) is not None
    if texts and model != "nn" and not of_texts:
        raise InputError(f"--model {model} is a classifier, and texts have no classes; use {OF_TEXTS}.")
    if of_texts and not texts:
        raise InputError(f"--model {model} is for texts; name a file of these ({', '.join(TEXTS)}) by --query.")
    if texts and recipe.optimizer == "sgd" and not recipe.momentum:
        raise InputError(
            "--optimizer sgd is the default for classifiers and hardly trains a language model: state the recipe of "
            "yours, such as --optimizer adamw --learning-rate 0.003 --epochs 15 --batch-size 16."
        )


def network_of_texts(options: ClassifierOptions) -> ShadowNetwork:
    """The network that the options describe, for texts."""
    of_texts = {field.name: getattr(options, field.name) for field in fields(TextNetwork)}
    return ShadowNetwork(model=OF_TEXTS if options.model == "nn" else options.model, **of_texts)


def make_classifier(
    options: ClassifierOptions, recipe: RecipeFlags, records: "Table | Examples"
) -> tuple["Examples", "Learner"]:
    """The records in the form that their learner needs, and the learner, which the options name."""
    from jaxaudit.data import Table

    if isinstance(records, Table):
        return _of_table(options, recipe, records)
    from jaxaudit.cli.networks import make_shadow_learner

    network = network_of_texts(options)
    return records, make_shadow_learner(network, ShadowRecipe(**vars(recipe)), records, len(records))


def demand_memory(size: int, subject: str, advice: str) -> None:
    """Rejects work that does not fit into memory, before it starts."""
    import jax

    from jaxaudit.data.memory import memory_bytes

    stats = jax.local_devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    available = (stats or {}).get("bytes_limit") or memory_bytes()
    if size > available / 2:
        raise InputError(
            f"{subject} needs {size / 2**30:,.1f} GiB, more than half of the {available / 2**30:,.1f} GiB of memory; "
            f"{advice}."
        )
