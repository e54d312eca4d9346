"""What `becker2022` says of itself in `experiments/README.md`."""

from typing import Any

import numpy as np

from experiments.summary import Row

FIRST = {"mnist": ("Table 1", 1), "cifar10": ("Table 2", 5)}
NAMES = {"original": "pre-trained", "retraining": "retraining", "amnesiac": "amnesiac", "fisher": "Fisher"}
KEYS = {"original": "pretrained"}
FIELDS = ("remaining_accuracy", "forgotten_accuracy", "test_accuracy")
ORDER = ("original", "retraining", "amnesiac", "fisher")
APART = 0.05


def summary(result: dict[str, Any]) -> list[Row]:
    """The table and the four figures of a data set."""
    base, _, variant = result["data"].partition("-")
    table, figure = FIRST[base]
    methods, falls = result["methods"], result["hypotheses"]
    forgets = ", ".join(NAMES[name] for name in ORDER[1:])
    everything = ", ".join(NAMES[name] for name in ORDER)

    def made(item: str, quantity: str, theirs: str, ours: str, sentence: str) -> Row:
        return Row("becker2022", item, quantity, theirs, ours, sentence, f"--data {result['data']}")

    def medians(field: str, names: tuple[str, ...] = ORDER) -> str:
        return ", ".join(f"{_median(methods[name][field][-1]):.3g}" for name in names)

    def found(name: str, shown: str) -> str:
        return ", ".join(f"{falls[method][name]['value']:{shown}}" for method in ORDER[1:])

    apart, cells = _apart(result)
    images = "" if base == "mnist" else "; images are gray, 28x28, the test images JPEG copies"
    images += "; scrambled as the authors' code does" if variant else ""
    return [
        made(
            table,
            f"mean accuracy on remaining, forgotten and test images, whole class forgotten: {everything}",
            "; ".join(_accuracies(_paper(result, name, 100)) for name in ORDER),
            "; ".join(_accuracies([np.mean(methods[name][field][-1]) for field in FIELDS]) for name in ORDER),
            f"Of all {cells} means of the table {apart} are more than {APART} from the paper's{images}.",
        ),
        made(
            f"Figure {figure}",
            f"median efficacy; median bound, of the whole class: {everything}",
            "curves, no numbers; forgetting lowers the efficacy",
            f"{medians('efficacy')}; {medians('bound')}",
            f"The efficacy fell in {found('efficacy_falls', '.0%')} of all seeds and sets ({forgets}); one image is "
            "left out of the picture, as in the paper, but not of these shares.",
        ),
        made(
            f"Figure {figure + 1}",
            f"median efficacy of the whole class: untrained, {everything}",
            "curves, no numbers; training raises it, amnesiac models go back towards the untrained",
            medians("efficacy", ("untrained", *ORDER)),
            "Drawn as a point a seed.",
        ),
        made(
            f"Figure {figure + 2}",
            f"median probability that the attack gives the forgotten class: {everything}",
            "curves, no numbers",
            medians("attack"),
            f"One that knows nothing says {result['members_share']:.2f} here, about 0.1 in the authors' code, which "
            "shows the attack ten times as many non-members.",
        ),
        made(
            f"Figure {figure + 3}",
            f"rank correlation of efficacy and attack probability: {forgets}",
            "points, no numbers; said to rise together but for amnesiac",
            found("efficacy_against_attack", "+.2f"),
            f"Among models that forgot the same images it is {found('within_a_set', '+.2f')}.",
        ),
    ]


def _paper(result: dict[str, Any], name: str, count: int) -> list[float]:
    """The paper's three means of a method and a number of images forgotten."""
    theirs = result["paper"][KEYS.get(name, name)]
    return [mean for mean, _ in theirs.get("*") or theirs[f"{count / 100:g}"]]


def _apart(result: dict[str, Any]) -> tuple[int, int]:
    """How many means are further from the paper's than `APART`, and of how many."""
    gaps = [
        abs(float(np.mean(result["methods"][name][field][index])) - mean)
        for name in ORDER
        for index, count in enumerate(result["counts"])
        for field, mean in zip(FIELDS, _paper(result, name, count), strict=True)
    ]
    return sum(gap > APART for gap in gaps), len(gaps)


def _accuracies(means: list[Any]) -> str:
    return " / ".join(f"{mean:.2f}" for mean in means)


def _median(numbers: list[float | None]) -> float:
    """Null stands for infinity."""
    return float(np.median([np.inf if number is None else number for number in numbers]))
