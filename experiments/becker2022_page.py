"""The page beside the numbers: the paper's table, ours, and a sentence on what differs."""

from typing import Any

import numpy as np

NAMES = {"original": "pre-trained", "retraining": "retraining", "amnesiac": "amnesiac", "fisher": "Fisher"}
KEYS = {"original": "pretrained"}
FISHER = "becker-code, alpha 3e-6"
FIELDS = ("remaining_accuracy", "forgotten_accuracy", "test_accuracy")
PARTS = ("remaining", "forgotten", "test")


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
        f"{record['class']} forgotten; {record['device']}, {record['seconds']:.0f} s of wall time, restarts included, "
        "on a machine that other work shared. In the pictures rows 1 to 4 are the paper's four figures, drawn as "
        "distribution functions over seeds.",
        "",
        "## Accuracy: mean and standard deviation over seeds, and the paper's",
        "",
        "| model | forgotten | remaining | (paper) | forgotten | (paper) | test | (paper) |",
        "|---|---|---|---|---|---|---|---|",
        *table(record),
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
        *(f"- {words}" for words in hypotheses(record)),
        "",
        "## Three variants of Fisher forgetting",
        "",
        "The whole class forgotten; medians over seeds. The paper states one formula (equation 4), Golatkar et al. "
        "another, and the authors' code a third.",
        "",
        "| model | remaining | forgotten | test | efficacy | attack by the originals' network |",
        "|---|---|---|---|---|---|",
        *variants(record),
    ]


def whose(record: dict[str, Any]) -> str:
    """Whom the attack networks learned from, and what that does."""
    if record["options"]["attack"] == "originals":
        return (
            "Attack networks learned from the originals alone, and were asked about every method's models; the paper "
            "trains one on every model."
        )
    fisher = record["methods"]["fisher"]["attack"][-1]
    return (
        "As in the paper, an attack network is trained anew on every model, the remaining images being members. It is "
        "told the label, so of a class that was forgotten whole it has seen no member, and says so whatever the model "
        f"remembers: {np.median(fisher):.2g} for Fisher forgetting, which changed next to nothing. The network that "
        "learned from the original model does not have this blind spot; it is in the lines below."
    )


def table(record: dict[str, Any]) -> list[str]:
    """A row a method and count, ours and theirs."""
    rows = []
    for name, title in NAMES.items():
        theirs = record["paper"][KEYS.get(name, name)]
        for index, count in enumerate(record["counts"]):
            paper = theirs.get("*") or theirs[f"{count / 100:g}"]
            cells = []
            for field, (mean, deviation) in zip(FIELDS, paper, strict=True):
                numbers = np.array(record["methods"][name][field][index], float)
                cells += [f"{numbers.mean():.2f} ± {numbers.std():.2f}", f"{mean:.2f} ± {deviation:.2f}"]
            rows.append(f"| {title} | {count} | {' | '.join(cells)} |")
    return rows


def differences(record: dict[str, Any]) -> list[str]:
    """What was done otherwise, and where means are more than 0.05 apart."""
    words = [
        "Fisher forgetting is the variant `becker-code`, with alpha 3e-6, because that made the paper's table: its "
        "standard deviation is capped at 0.001, too little to change any prediction.",
        "Retraining takes the original's minibatches less the forgotten images; the authors draw new minibatches of "
        "the remaining ones.",
        f"Attack networks learn from the training images and {record['options']['nonmembers']:,} test images drawn "
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
    for name, title in NAMES.items():
        theirs = record["paper"][KEYS.get(name, name)]
        apart = []
        for index, count in enumerate(record["counts"]):
            paper = theirs.get("*") or theirs[f"{count / 100:g}"]
            for field, part, (mean, _) in zip(FIELDS, PARTS, paper, strict=True):
                ours = float(np.mean(record["methods"][name][field][index]))
                if abs(ours - mean) > 0.05:
                    apart.append(f"{part} at {count} {ours:.2f} against {mean:.2f}")
        found = "; ".join(apart) if apart else "none"
        words.append(f"Means more than 0.05 from the paper's, {title}: {found}.")
    return words


def medians(record: dict[str, Any]) -> list[str]:
    rows = []
    marks = {"above": "above", "below": "below", "not distinguishable": "=", "too few seeds": "?"}
    for name in ("untrained", *NAMES):
        scores = record["methods"][name]
        for field in ("efficacy", "attack"):
            cells = []
            for index in range(len(record["counts"])):
                # Null stands for infinity in the one, and for no attack in the other.
                numbers = [np.inf if number is None else number for number in scores[field][index]]
                if field == "attack" and name == "untrained":
                    cells.append("-")
                    continue
                place = scores["places"].get(field)
                mark = f" ({marks[place[index]['verdict']]})" if place else ""
                cells.append(f"{np.median(numbers):.3g}{mark}")
            rows.append(f"| {NAMES.get(name, name)} | {field} | {' | '.join(cells)} |")
        if name in NAMES and record["options"]["attack"] == "each":
            by_originals = record["attack_by_originals"][{"fisher": FISHER}.get(name, name)]
            cells = [f"{np.median(row):.3g}" for row in by_originals]
            rows.append(f"| {NAMES[name]} | attack by the originals' network | {' | '.join(cells)} |")
    return rows


def hypotheses(record: dict[str, Any]) -> list[str]:
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


def variants(record: dict[str, Any]) -> list[str]:
    rows = []
    for name, scores in record["variants"].items():
        cells = [
            f"{np.median([np.inf if v is None else v for v in scores[field]]):.3g}"
            for field in (*FIELDS, "efficacy", "attack")
        ]
        rows.append(f"| {NAMES.get(name, name)} | {' | '.join(cells)} |")
    return rows
