"""What `long2017_attacks` says of itself in `experiments/README.md`."""

from collections.abc import Iterable
from typing import Any

from experiments.long2017_attacks import CASES, PAPER_TABLE_1
from experiments.summary import Row

TABLE_2 = ("accuracy", "mean_pdtp", "correlation")
BELOW = 0.7
"""What the paper says that no attack reaches on naive Bayes and logistic regression for Adult."""
SEED = (
    "a small PDTP depends on A(T) and A(T without t) having one seed and the same minibatches, as they have here; the "
    "paper does not say"
)


def summary(result: dict[str, Any]) -> list[Row]:
    """The rows of `experiments/README.md`: both tables, and the figures that show them by record."""
    rows = {row["name"]: row for row in result["rows"]}
    first, adult = rows[CASES[0].name], [rows[case.name] for case in CASES if case.data == "Adult"]
    arguments = "" if result["size"] == "reduced" else f"--size {result['size']}"
    stands = "Location stands in for Purchase, so only order and signs can be compared"
    attacks = [first["attacks"][name] for name in PAPER_TABLE_1]
    names = ", ".join(PAPER_TABLE_1)

    def listed(values: Iterable[float | None]) -> str:
        return ", ".join("none" if value is None else f"{value:.2f}" for value in values)

    def best(row: dict[str, Any]) -> float:
        return max(target["distance"] for target in row["targets"])

    def risky(row: dict[str, Any]) -> str:
        return f"{row['name']} {row['pdtp_above_1']} above 1, accuracy up to {best(row):.2f}"

    unlike = [row["name"] for row in adult[1:] if row["pdtp_above_1"] or best(row) >= BELOW]

    def made(item: str, quantity: str, theirs: str, ours: str, sentence: str) -> Row:
        return Row("long2017", item, quantity, theirs, ours, sentence, arguments)

    return [
        made(
            "Table 1",
            f"accuracy of the attack: {names}",
            listed(paper[0] for paper in PAPER_TABLE_1.values()),
            listed(attack["accuracy"] for attack in attacks),
            f"{stands}; {result['protocol']['iterations']} iterations for 100.",
        ),
        made(
            "Figure 1",
            f"correlation of per-target accuracy with PDTP: {names}",
            listed(paper[4] for paper in PAPER_TABLE_1.values()),
            listed(attack["correlation"] for attack in attacks),
            f"{stands}; the points are in the result file, not drawn.",
        ),
        made(
            "Table 2",
            f"accuracy; mean PDTP; correlation, of {', '.join(row['paper_name'] for row in rows.values())}",
            "; ".join(listed(row["paper"][key] for row in rows.values()) for key in TABLE_2),
            "; ".join(listed(row[key] for row in rows.values()) for key in TABLE_2),
            f"{stands}; {SEED}.",
        ),
        made(
            "Figure 4",
            "correlation with PDTP of NB-Purchase and LR-Purchase",
            listed(rows[name]["paper"]["correlation"] for name in ("NB-Location", "LR-Location")),
            listed(rows[name]["correlation"] for name in ("NB-Location", "LR-Location")),
            f"{stands}; panel (a), three attacks on NN-Purchase10, is not run; the points are in the result file.",
        ),
        made(
            "Figure 5",
            "records with PDTP above 1, and the largest per-target accuracy, Adult",
            f"NN some; NB none, below {BELOW:.2f}; LR none, below {BELOW:.2f}",
            "; ".join(map(risky, adult)),
            (f"Beyond one of these lines, unlike in the paper: {', '.join(unlike)}. " if unlike else "")
            + f"Of the network, {SEED}; the largest of so many accuracies is above 0.5 by chance alone.",
        ),
    ]
