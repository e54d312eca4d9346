"""Becker & Liebig (2022): tables 1 and 2, figures 1 to 8, and their two hypotheses.

    JAXAUDIT_DATA=DATA python -m experiments.becker2022 --data mnist       # table 1, figures 1 to 4
    JAXAUDIT_DATA=DATA python -m experiments.becker2022 --data cifar10     # table 2, figures 5 to 8
    JAXAUDIT_DATA=DATA python -m experiments.becker2022 --data cifar10-scrambled

The paper: 100 images a class, an MLP N-512-256-128-10, plain gradient descent at 0.1 (MNIST 50 epochs of 32, CIFAR-10
200 of 64), 20 seeds; 1, 10, 25, 50, 80, 100 images of class 3 (8) are forgotten by retraining, amnesiac unlearning and
Fisher forgetting. H1: forgetting always lowers the efficacy. H2: a lower efficacy means a less successful attack. Both
were rejected, because of amnesiac unlearning. On two busy CPU cores MNIST takes about 20 minutes, CIFAR-10 half an
hour; with `--checkpoints DIR` a run that was stopped goes on. Writes `results/becker2022_DATA-DEVICE.json`, `.md`
and `.png`.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import optax
from flax import nnx
from scipy.stats import rankdata

from experiments.figures import COLORS, panels, write
from experiments.record import RESULTS, Row, describe_run, progress_of
from jaxaudit import load, models, network, prepare_images
from jaxaudit.audits.unlearn.audit import compare_unlearning
from jaxaudit.audits.unlearn.result import COMPARED, Score, UnlearnAudit
from jaxaudit.data import Examples
from jaxaudit.ensemble import Execution
from jaxaudit.learners import NetworkLearner
from jaxaudit.unlearning import becker_code, forget_by_noise

PER_CLASS = 100
COUNTS = (1, 10, 25, 50, 80, 100)
SETS = {
    "mnist": ("mnist@train", "mnist@test"),
    "cifar10": ("cifar10/cifar10_gray28_lossless_first4000.npz", "cifar10/cifar10_gray28_jpeg.npz@test"),
}
FORGET = {"mnist": 3, "cifar10": 8}
RECIPES = {"mnist": (50, 32), "cifar10": (200, 64)}
"""Epochs and records a minibatch."""
LUMA = (0.2989, 0.587, 0.114)
"""Weights of red, green and blue in PyTorch's gray."""


def read(data: str) -> tuple[Examples, Examples]:
    """The first 100 records of each class, class by class, and the whole test set; gray, 28x28, [0, 1]."""
    base, _, variant = data.partition("-")
    train, test = (prepare_images(load(name)) for name in SETS[base])
    first = [np.flatnonzero(train.labels == label)[:PER_CLASS] for label in range(10)]
    train = train.take(np.concatenate(first))
    if variant == "scrambled":
        return _scrambled(train), _scrambled(test)
    return train, test


def forget_sets(train: Examples, data: str) -> np.ndarray:
    """A row for each count: that many records of the class, the first ones."""
    of_class = np.flatnonzero(train.labels == FORGET[data.partition("-")[0]])
    return np.stack([np.isin(np.arange(len(train)), of_class[:count]) for count in COUNTS])


def make_learner(data: str, train: Examples) -> NetworkLearner:
    """N-512-256-128-10, ReLU, plain gradient descent at 0.1."""
    epochs, batch_size = RECIPES[data.partition("-")[0]]
    shape, classes = train.inputs.shape[1:], len(train.class_names)
    return network(torch_mlp, shape, classes, optimizer=optax.sgd(0.1), epochs=epochs, batch_size=batch_size)


def torch_mlp(input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> models.MLP:
    """The paper's network as PyTorch starts it: all weights and biases uniform within 1 / sqrt(inputs)."""
    net = models.MLP(input_shape, classes, rngs=rngs)
    for layer in net.layers:
        bound = layer.in_features**-0.5
        parameters: tuple[Any, Any] = layer.kernel, layer.bias
        for parameter in parameters:
            parameter[...] = jax.random.uniform(rngs.params(), parameter.shape, minval=-bound, maxval=bound)
    return net


def _scrambled(images: Examples) -> Examples:
    """What the authors' code makes of an image: rows of pixels with three colours each are read as three planes.

    Their gray is then a blend of the image's three thirds, each stretched to three times its width. Here the three
    colours are the gray of the file, for want of coloured originals.
    """
    count, height, width, _ = images.inputs.shape
    colours = np.repeat(images.inputs, 3, axis=3).reshape(count, 3, height, width)
    gray: Any = sum(weight * colours[:, plane] for plane, weight in enumerate(LUMA))
    return Examples(gray[..., None].astype(np.float32), images.labels, images.class_names, f"{images.name}, scrambled")


REPLICATES, LEVEL = 2000, 0.95
FORGETS = ("retraining", "amnesiac", "fisher")


def of_sets(audits: Sequence[UnlearnAudit], name: str, score: Score) -> np.ndarray:
    """A score of one method: row = set to forget, column = seed; NaN: no value."""
    return np.stack([audit.scores(name, score) for audit in audits])


def hypotheses(random: np.random.Generator, audits: Sequence[UnlearnAudit]) -> dict[str, Any]:
    """H1 and H2 for every method; intervals are percentiles of a bootstrap of whole seeds.

    H1, "forgetting always reduces the efficacy for the target data": the share of seeds and sets in which it did, and
    Spearman's correlation of the efficacy afterwards with the number of records forgotten.
    H2, "a lower efficacy always implies a less successful attack": Spearman's correlation of efficacy and mean attack
    probability over seeds and sets, and the mean over sets of the correlation within one. H2 asks for a positive one.
    """
    seeds = audits[0].result.protocol.seeds
    counts = np.repeat([[audit.forget.sum()] for audit in audits], seeds, axis=1)
    answer: dict[str, Any] = {}
    for name in FORGETS:
        efficacy, attack = (of_sets(audits, name, score) for score in ("efficacy", "attack"))
        lower = efficacy < of_sets(audits, "original", "efficacy")
        weaker = attack < of_sets(audits, "original", "attack")
        statistics: dict[str, Callable[[np.ndarray], float]] = {
            "efficacy_falls": lambda s, lower=lower: float(lower[:, s].mean()),
            "efficacy_against_count": lambda s, e=efficacy: spearman(e[:, s], counts[:, s]),
            "efficacy_against_attack": lambda s, e=efficacy, a=attack: spearman(e[:, s], a[:, s]),
            "within_a_set": lambda s, e=efficacy, a=attack: float(
                np.mean([spearman(*of_set) for of_set in zip(e[:, s], a[:, s], strict=True)])
            ),
            "attack_falls": lambda s, weaker=weaker: float(weaker[:, s].mean()),
        }
        answer[name] = {key: interval(random, seeds, statistic) for key, statistic in statistics.items()}
    return answer


def interval(random: np.random.Generator, seeds: int, statistic: Any) -> dict[str, float]:
    """A statistic of the seeds, and its bootstrap interval."""
    draws = [statistic(random.integers(0, seeds, seeds)) for _ in range(REPLICATES)]
    low, high = np.nanquantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"value": statistic(np.arange(seeds)), "low": float(low), "high": float(high)}


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's rank correlation; infinities are ranked like others, and a constant has none: 0."""
    ranks = rankdata(one.ravel()), rankdata(other.ravel())
    if np.ptp(ranks[0]) == 0 or np.ptp(ranks[1]) == 0:
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


NONMEMBERS = 1000
"""Test images that the attacks learn from."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", choices=["mnist", "cifar10", "cifar10-scrambled"], default="mnist")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--attack", choices=["each", "originals"], default="each", help="whom attacks learn from")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()

    train, test = read(arguments.data)
    learner, forget = make_learner(arguments.data, train), forget_sets(train, arguments.data)
    key, started = jax.random.key(arguments.seed), time.time()
    execution = Execution(progress=progress_of(arguments.data), checkpoints=arguments.checkpoints)
    methods = {"fisher": partial(forget_by_noise, noise=becker_code, alpha=3e-6)}
    how: dict[str, Any] = {"seeds": arguments.seeds, "nonmembers": NONMEMBERS, "execution": execution}
    audits = [
        compare_unlearning(
            key, train, test, learner, row, methods=methods, attack_each=arguments.attack == "each", **how
        )
        for row in forget
    ]
    reference = Path(__file__).parent / "becker2022_paper.json"
    record = {
        "experiment": "becker2022",
        "data": arguments.data,
        "class": FORGET[arguments.data.partition("-")[0]],
        "counts": list(COUNTS),
        **describe_run(vars(arguments), time.time() - started),
        "content_hash": {"train": train.content_hash, "test": test.content_hash},
        "members_share": audits[0].result.protocol.members_share,
        "threshold": audits[0].result.protocol.p_value_threshold,
        "methods": {name: scores(audits, name) for name in audits[0].models},
        "hypotheses": hypotheses(np.random.default_rng(arguments.seed), audits),
        "paper": json.loads(reference.read_text())[arguments.data.partition("-")[0]],
    }
    name = f"becker2022_{arguments.data}"
    print(write(arguments.out, name, record, lines(record), drawing(record)).read_text())


def scores(audits: Sequence[UnlearnAudit], name: str) -> dict[str, Any]:
    """One method's scores (a row a set, a column a seed) and places, as JSON takes them: null for NaN and infinity."""
    arrays = {field: plain(of_sets(audits, name, field)) for field in ("information", *COMPARED)}
    places: dict[str, list[dict[str, Any]]] = {}
    for audit in audits:
        for field, where in audit.result[name].places.items():
            places.setdefault(field, []).append(msgspec.structs.asdict(where))
    return {**arrays, "places": json.loads(json.dumps(places).replace("Infinity", "null"))}


def plain(array: np.ndarray) -> list[list[float | None]]:
    """Rounded to seven digits."""
    return [[float(f"{number:.7g}") if np.isfinite(number) else None for number in row] for row in array]


# The page, with its tables and what differs; its picture, a row a figure of the paper; its rows in the README.

NAMES = {"original": "pre-trained", "retraining": "retraining", "amnesiac": "amnesiac", "fisher": "Fisher"}
SHADES = ("#b8892b", "#9ecae1", "#6baed6", "#3182bd", "#08519c", "#1b1f3b")


def drawing(record: dict[str, Any]) -> Any:
    """A row a figure: efficacy and bound, before and after, attack probability, efficacy against attack."""
    figure, axes = panels(4, 4, width=13, height=12)
    rows = [axes[start : start + 4] for start in range(0, 16, 4)]
    for column, (name, title) in enumerate(NAMES.items()):
        scores = record["methods"][name]
        distributions(rows[0][column], record["counts"], scores["efficacy"], scores["bound"])
        rows[0][column].set_title(f"{title}: efficacy, bound dashed")
        distributions(rows[2][column], record["counts"], scores["attack"], None)
        rows[2][column].set_title(f"{title}: mean attack probability")
        scatter(rows[3][column], record["counts"], scores)
        rows[3][column].set_title(f"{title}: efficacy and attack")
    before_and_after(rows[1], record)
    rows[0][0].set_ylabel("share of seeds at or below")
    rows[2][0].set_ylabel("share of seeds at or below")
    rows[3][0].set_ylabel("mean attack probability")
    rows[0][0].legend(title="images forgotten", fontsize=7, title_fontsize=7)
    return figure


def distributions(axis: Any, counts: list[int], values: Any, bounds: Any) -> None:
    """The distribution over seeds for each number of forgotten images; a single one is left out, as in the paper."""
    for index, count in enumerate(counts):
        if count == 1:
            continue
        for numbers, style in ((values, "-"), (bounds, "--")):
            if numbers is not None:
                finite = np.sort([number for number in numbers[index] if number is not None])
                share = np.arange(1, len(finite) + 1) / len(numbers[index])
                label = f"{count}" if style == "-" else None
                axis.step(finite, share, where="post", color=SHADES[index], linestyle=style, linewidth=1, label=label)
    axis.set_xscale("log")


def before_and_after(axes: list[Any], record: dict[str, Any]) -> None:
    """Figure 2: the efficacy of the whole class, untrained, trained, and after each method; and where the seeds are."""
    names = ("untrained", *NAMES)
    for axis, field in zip(axes, ("efficacy", "bound", "forgotten_accuracy", "test_accuracy"), strict=True):
        for place, name in enumerate(names):
            numbers = np.array(record["methods"][name][field][-1], float)
            spread = np.linspace(-0.15, 0.15, len(numbers))
            axis.plot(place + spread, numbers, ".", color=COLORS[place], markersize=4)
        if field in ("efficacy", "bound"):
            axis.set_yscale("log")
        axis.set_xticks(range(len(names)), [*("untrained", "pre-tr.", "retrain", "amnesiac", "Fisher")], fontsize=7)
        axis.set_title(f"whole class: {field.replace('_', ' ')}")


def scatter(axis: Any, counts: list[int], scores: dict[str, Any]) -> None:
    """Figure 4: a point a seed and set."""
    for index, count in enumerate(counts):
        pairs = [
            pair for pair in zip(scores["efficacy"][index], scores["attack"][index], strict=True) if None not in pair
        ]
        if pairs:
            axis.plot(*zip(*pairs, strict=True), ".", color=SHADES[index], markersize=4, label=f"{count}")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("efficacy")


FIELDS: tuple[Score, ...] = ("remaining_accuracy", "forgotten_accuracy", "test_accuracy")


def lines(record: dict[str, Any]) -> list[str]:
    """The whole page, Markdown."""
    base, _, variant = record["data"].partition("-")
    number, figures = ("1", "1 to 4") if base == "mnist" else ("2", "5 to 8")
    title = "MNIST" if base == "mnist" else "CIFAR-10" + (", scrambled as in the authors' code" if variant else "")
    options = record["options"]
    return [
        f"# Becker & Liebig (2022), table {number} and figures {figures}: {title}",
        "",
        f"{options['seeds']} seeds; {', '.join(map(str, record['counts']))} of the 100 images of class "
        f"{record['class']} forgotten; {record['device']}, {record['seconds']:.0f} s of wall time "
        "on a machine that other work shared. In the pictures rows 1 to 4 are the paper's four figures, drawn as "
        "distribution functions over seeds.",
        "",
        "## Accuracy: mean and standard deviation over seeds, and the paper's",
        "",
        "| model | forgotten | remaining | (paper) | forgotten | (paper) | test | (paper) |",
        "|---|---|---|---|---|---|---|---|",
        *accuracies(record),
        "",
        "## What differs from the paper",
        "",
        *(f"- {words}" for words in differences(record)),
        "",
        "## Efficacy and attack: medians over seeds",
        "",
        "`efficacy` is about the forgotten images (lower: less is exposed), `attack` the mean probability over them "
        f"that the model was trained on them; one that knows nothing says {record['members_share']:.2f}. In brackets "
        "where the method lies beside the retrained models: above, below, or = for not distinguishable "
        f"(p > {record['threshold']:.4f}, exact over seeds; see `jaxaudit.metrics.place`). {whose(record)}",
        "",
        f"| model | score | {' | '.join(map(str, record['counts']))} |",
        f"|---|---|{'---|' * len(record['counts'])}",
        *medians(record),
        "",
        "## The two hypotheses",
        "",
        *(f"- {words}" for words in hypotheses_in_words(record)),
    ]


def whose(record: dict[str, Any]) -> str:
    """Whom the attack networks learned from, and what that does."""
    if record["options"]["attack"] == "originals":
        return "Attack networks learned from the originals alone; the paper trains one on every model."
    return (
        "As in the paper, an attack network is trained anew on every model, the remaining images being members. It is "
        "told the label, so of a class that was forgotten whole it has seen no member, and says so whatever the model "
        f"remembers: {np.median(record['methods']['fisher']['attack'][-1]):.2g} for Fisher forgetting, which changed "
        "next to nothing."
    )


def accuracies(record: dict[str, Any]) -> list[str]:
    """A row a method and count, ours and theirs."""
    rows = []
    for name, title in NAMES.items():
        for index, count in enumerate(record["counts"]):
            cells = []
            for field, (mean, deviation) in zip(FIELDS, paper_of(record, name, count), strict=True):
                numbers = np.array(record["methods"][name][field][index], float)
                cells += [f"{numbers.mean():.2f} ± {numbers.std():.2f}", f"{mean:.2f} ± {deviation:.2f}"]
            rows.append(f"| {title} | {count} | {' | '.join(cells)} |")
    return rows


def paper_of(record: dict[str, Any], name: str, count: int) -> list[list[float]]:
    """The paper's three means and deviations of a method and a number of images forgotten."""
    theirs = record["paper"]["pretrained" if name == "original" else name]
    return theirs.get("*") or theirs[f"{count / 100:g}"]


def differences(record: dict[str, Any]) -> list[str]:
    """What was done otherwise."""
    words = [
        "Fisher forgetting is the variant `becker-code`, with alpha 3e-6, because that made the paper's table: its "
        "standard deviation is capped at 0.001, too little to change any prediction.",
        "Retraining takes the original's minibatches less the forgotten images; the authors draw new minibatches of "
        "the remaining ones.",
        f"Attack networks learn from the training images and {NONMEMBERS:,} test images drawn "
        "once; the authors' code takes all 10,000, so that theirs say about 0.1 where they know nothing. Outputs are "
        "log-probabilities and are standardised, the toolbox's present default; theirs are logits.",
    ]
    if record["data"].startswith("cifar10"):
        words.append(
            "Images are 28x28, not 32x32, and the test images are copies that were JPEG-compressed: no others could be "
            "had. The training images are the first 100 of each class, lossless."
        )
    if record["data"].endswith("scrambled"):
        words.append(
            "The authors' code reads rows of coloured pixels as three planes of colour; here the same is done to gray "
            "images, for want of coloured ones."
        )
    return words


def known(numbers: list[float | None]) -> list[float]:
    """Null stands for infinity."""
    return [np.inf if number is None else number for number in numbers]


def medians(record: dict[str, Any]) -> list[str]:
    rows = []
    marks = {"above": "above", "below": "below", "not distinguishable": "=", "too few seeds": "?"}
    for name in ("untrained", *NAMES):
        scores = record["methods"][name]
        for field in ("efficacy", "attack"):
            cells = []
            for index in range(len(record["counts"])):
                if field == "attack" and name == "untrained":
                    cells.append("-")
                    continue
                place = scores["places"].get(field)
                mark = f" ({marks[place[index]['verdict']]})" if place else ""
                cells.append(f"{np.median(known(scores[field][index])):.3g}{mark}")
            rows.append(f"| {NAMES.get(name, name)} | {field} | {' | '.join(cells)} |")
    return rows


def hypotheses_in_words(record: dict[str, Any]) -> list[str]:
    """H1 and H2 in words."""
    words = []
    for name, found in record["hypotheses"].items():
        falls, count = found["efficacy_falls"], found["efficacy_against_count"]
        attack, within, less = found["efficacy_against_attack"], found["within_a_set"], found["attack_falls"]
        words.append(
            f"H1, {NAMES[name]}: the efficacy fell in {falls['value']:.0%} of seeds and sets ({falls['low']:.0%} to "
            f"{falls['high']:.0%}); rank correlation of the efficacy afterwards with the number of images forgotten "
            f'{shown(count)}. "Always" {"stands" if falls["value"] == 1 else "does not hold"}.'
        )
        sign = "supports H2" if attack["low"] > 0 else "contradicts H2" if attack["high"] < 0 else "decides nothing"
        words.append(
            f"H2, {NAMES[name]}: rank correlation of efficacy and attack probability {shown(attack)}, which {sign}; "
            f"among models that forgot the same images {shown(within)}. The attack probability fell in "
            f"{less['value']:.0%} of seeds and sets ({less['low']:.0%} to {less['high']:.0%})."
        )
    words.append("Intervals are at 95%, a bootstrap of whole seeds.")
    return words


def shown(found: dict[str, float]) -> str:
    return f"{found['value']:+.2f} ({found['low']:+.2f} to {found['high']:+.2f})"


FIRST = {"mnist": ("Table 1", 1), "cifar10": ("Table 2", 5)}
APART = 0.05


def summary(result: dict[str, Any]) -> list[Row]:
    """The table and the four figures of a data set."""
    base, _, variant = result["data"].partition("-")
    table, figure = FIRST[base]
    methods, falls = result["methods"], result["hypotheses"]
    forgets = ", ".join([*NAMES.values()][1:])
    theirs, ours = (
        "; ".join(" / ".join(f"{mean:.2f}" for mean in means(name)) for name in NAMES)
        for means in (
            lambda name: [mean for mean, _ in paper_of(result, name, 100)],
            lambda name: [np.mean(methods[name][field][-1]) for field in FIELDS],
        )
    )
    everything = ", ".join(NAMES.values())

    def medians(field: str, names: tuple[str, ...] = (*NAMES,)) -> str:
        return ", ".join(f"{np.median(known(methods[name][field][-1])):.3g}" for name in names)

    def found(name: str, shown: str) -> str:
        return ", ".join(f"{falls[method][name]['value']:{shown}}" for method in [*NAMES][1:])

    apart, cells = _apart(result)
    images = "" if base == "mnist" else "; images are gray, 28x28, the test images JPEG copies"
    images += "; scrambled as the authors' code does" if variant else ""
    rows = [
        (
            table,
            f"mean accuracy on remaining, forgotten and test images, whole class forgotten: {everything}",
            theirs,
            ours,
            f"Of all {cells} means of the table {apart} are more than {APART} from the paper's{images}.",
        ),
        (
            f"Figure {figure}",
            f"median efficacy; median bound, of the whole class: {everything}",
            "curves, no numbers; forgetting lowers the efficacy",
            f"{medians('efficacy')}; {medians('bound')}",
            f"The efficacy fell in {found('efficacy_falls', '.0%')} of all seeds and sets ({forgets}); one image is "
            "left out of the picture, as in the paper, but not of these shares.",
        ),
        (
            f"Figure {figure + 1}",
            f"median efficacy of the whole class: untrained, {everything}",
            "curves, no numbers; training raises it, amnesiac models go back towards the untrained",
            medians("efficacy", ("untrained", *NAMES)),
            "Drawn as a point a seed.",
        ),
        (
            f"Figure {figure + 2}",
            f"median probability that the attack gives the forgotten class: {everything}",
            "curves, no numbers",
            medians("attack"),
            f"One that knows nothing says {result['members_share']:.2f} here, about 0.1 in the authors' code, which "
            "shows the attack ten times as many non-members.",
        ),
        (
            f"Figure {figure + 3}",
            f"rank correlation of efficacy and attack probability: {forgets}",
            "points, no numbers; said to rise together but for amnesiac",
            found("efficacy_against_attack", "+.2f"),
            f"Among models that forgot the same images it is {found('within_a_set', '+.2f')}.",
        ),
    ]
    return [Row("becker2022", *cells, f"--data {result['data']}") for cells in rows]


def _apart(result: dict[str, Any]) -> tuple[int, int]:
    """How many means are further from the paper's than `APART`, and of how many."""
    gaps = [
        abs(float(np.mean(result["methods"][name][field][index])) - mean)
        for name in NAMES
        for index, count in enumerate(result["counts"])
        for field, (mean, _) in zip(FIELDS, paper_of(result, name, count), strict=True)
    ]
    return sum(gap > APART for gap in gaps), len(gaps)


if __name__ == "__main__":
    main()
