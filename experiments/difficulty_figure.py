"""A picture for the page on the tests: log-odds of records before and after their difficulty is taken off.

    export JAXAUDIT_DATA=DATA
    python -m experiments.memory_targets --cache FOLDER --worlds usps-1000 --recipes mlp-10 shadow
    python -m experiments.difficulty_figure --cache FOLDER

Writes `docs/explanation/difficulty.png`: records that one small network of `memory_targets` was trained on, and
records that it was not, by what it says of them; and how far apart both are, in standard errors.
"""

import argparse
from pathlib import Path

import numpy as np

from experiments.figures import COLORS, STYLE, panels
from experiments.memory_rates import read_world
from experiments.record import RESULTS
from jaxaudit.metrics.difficulty import residual_scores
from jaxaudit.metrics.scores import cut

WORLD, RECIPE, MODEL = "usps-1000", "mlp-10", 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS.parents[1] / "docs" / "explanation" / "difficulty.png")
    arguments = parser.parse_args()
    pool = read_world(arguments.cache / WORLD)
    models = np.load(arguments.cache / WORLD / f"{RECIPE}.npz")
    odds, used = models["odds"][MODEL].astype(np.float64), models["rows"][MODEL]
    kinds = {
        "log-odds of the record's class": cut(odds),
        "after class and neighbours": residual_scores(odds, pool.neighbours),
        "after what records teach": residual_scores(odds, pool.taught),
    }
    figure, axes = panels(1, len(kinds), width=9, height=2.6)
    for axis, (name, values) in zip(axes, kinds.items(), strict=True):
        low, high = np.quantile(values, [0.005, 0.995])
        bins = np.linspace(low, high, 40)
        for side, color, of in ((used, COLORS[1], "used"), (~used, COLORS[0], "not used")):
            axis.hist(values[side], bins, density=True, histtype="step", color=color, label=of, linewidth=1.4)
        error = np.sqrt(values[used].var() / used.sum() + values[~used].var() / (~used).sum())
        apart = (values[used].mean() - values[~used].mean()) / error
        axis.set(title=f"{name}\n{apart:.1f} standard errors apart", yticks=[])
    axes[0].legend(loc="upper left", frameon=False)
    figure.savefig(arguments.out, dpi=STYLE["savefig.dpi"])
    print(arguments.out.name)


if __name__ == "__main__":
    main()
