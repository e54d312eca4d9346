"""How often are innocent groups suspected by models of known truth, and used ones found? On `score_rates`' models.

    python -m experiments.group_suspects --cache FOLDER

FOLDER is that of `experiments.score_rates`, after its `--train`. Each model is a target beside others of the same parts
as models without the query set. Of the 20 groups that are asked, the target used none, a quarter, half or all; others
of its training are no matter of the question. Beside the test of `metrics/group_drift.py` stands each group's own
t-test over the models, with one degree of freedom less than models (and, with a holdout, the t-test over its groups for
both). Prints the table of `docs/explanation/error_rates.md`; a minute on one core.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import special

from experiments.score_rates_models import SCORES
from experiments.score_rates_worlds import GROUPS, PART, PARTS, PER_GROUP, WORLDS, Planned, planned
from jaxaudit.metrics.group_drift import drift_test
from jaxaudit.metrics.score_permutation import normal_scores
from jaxaudit.metrics.usage import benjamini_hochberg, holm

ASKED, DRAWS = 20, 4
"""Groups that are asked about, and draws of them and of the other models, for each target."""
MODELS, SHARES, HOLDOUTS = (3, 5, 8), (0.0, 0.25, 0.5, 1.0), (0, 3)
CORPORA = {"TOFU": ("tofu", "tofu, weak", "tofu, again"), "notes": ("notes", "notes, weak", "notes, again")}
NUMBERS = ("loss", "min_k", "min_k_plus_plus", "zlib")


class Trial(NamedTuple):
    """P-values of the groups that were asked about, by test, and which of them were used."""

    p_values: dict[str, np.ndarray]
    truth: np.ndarray


def trials(world: str, folder: Path, models: int, share: float, holdout: int) -> Iterator[Trial]:
    """The targets of a world beside this number of models without the query set."""
    random, plan = np.random.default_rng([models, round(100 * share), holdout]), planned(WORLDS[world])
    with np.load(folder / f"{world}.npz", allow_pickle=False) as kept:
        scores = kept["scores"].astype(np.float64)[..., [SCORES.index(name) for name in NUMBERS]]
    for part in range(PARTS):
        outside = np.setdiff1d(np.arange(GROUPS), np.arange(part * PART, (part + 1) * PART))
        unused = [number for number, model in enumerate(plan) if model.parts == (part,) and model.deal is None]
        for target in unused if not share else _of_two_parts(plan, part):
            used_groups = plan[target].groups[outside]
            for _ in range(DRAWS):
                others = [number for number in unused if number != target]
                if len(others) < models:
                    continue
                known = random.choice(others, models, replace=False)
                asked = _drawn(random, outside[used_groups], outside[~used_groups], share, holdout)
                means = _means(scores[[target, *known]], asked)
                yield Trial(
                    _p_values(means[0], means[1:], np.arange(len(asked)) >= ASKED), plan[target].groups[asked[:ASKED]]
                )


def _of_two_parts(plan: Sequence[Planned], part: int) -> list[int]:
    return [number for number, model in enumerate(plan) if len(model.parts) == 2 and part in model.parts]


def _drawn(
    random: np.random.Generator, used: np.ndarray, innocent: np.ndarray, share: float, holdout: int
) -> np.ndarray:
    """The groups that are asked about, and those of the holdout."""
    count = round(share * ASKED)
    order = random.permutation(innocent)
    return np.concatenate(
        [random.choice(used, count, replace=False) if count else used[:0], order[: ASKED - count + holdout]]
    )


def _means(scores: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The mean score of each group under each model, as `audits/ks/known_models.py` has it."""
    rows = (groups[:, None] * PER_GROUP + np.arange(PER_GROUP)).ravel()
    placed = np.mean([-normal_scores(scores[:, rows, place]) for place in range(len(NUMBERS))], axis=0)
    return placed.reshape(len(scores), len(groups), PER_GROUP).mean(axis=2)


def _p_values(target: np.ndarray, unused: np.ndarray, in_holdout: np.ndarray) -> dict[str, np.ndarray]:
    shifts = (
        np.concatenate([[target], unused])[:, in_holdout].mean(axis=1)
        if in_holdout.any()
        else np.zeros(len(unused) + 1)
    )
    apart = target - shifts[0] - (unused - shifts[1:, None]).mean(axis=0)
    own = (unused - shifts[1:, None]).std(axis=0, ddof=1) * np.sqrt(1 + 1 / len(unused))
    found = {"own": special.stdtr(len(unused) - 1, -apart / own), "drift": drift_test(target, unused, in_holdout)[1]}
    if in_holdout.any():
        count = int(in_holdout.sum())
        among = special.stdtr(count - 1, -apart / (apart[in_holdout].std(ddof=1) * np.sqrt(1 + 1 / count)))
        found = {name: np.maximum(values, among) for name, values in found.items()}
    return {name: values[~in_holdout] for name, values in found.items()}


def rates(results: Sequence[Trial], test: str) -> dict[str, float]:
    """Shares of tables in which any innocent group is accused or suspected, and the share of used groups found."""
    any_accused, any_suspect, found, used = 0, 0, 0, 0
    for trial in results:
        p_values = trial.p_values[test].tolist()
        accused, suspects = (np.array(how(p_values)) <= 0.05 for how in (holm, benjamini_hochberg))
        any_accused += bool((accused & ~trial.truth).any())
        any_suspect += bool((suspects & ~trial.truth).any())
        found, used = found + int((suspects & trial.truth).sum()), used + int(trial.truth.sum())
    return {
        "accused": any_accused / len(results),
        "suspected": any_suspect / len(results),
        "found": found / used if used else np.nan,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    folder = parser.parse_args().cache
    print(
        "| texts | holdout groups | models | used | any innocent by Holm | any innocent suspected | used ones found |"
    )
    print("|---|---|---|---|---|---|---|")
    for corpus, worlds in CORPORA.items():
        for holdout in HOLDOUTS:
            for models in MODELS:
                for share in SHARES:
                    results = [trial for world in worlds for trial in trials(world, folder, models, share, holdout)]
                    both = [rates(results, test) for test in ("own", "drift")]
                    cells = [
                        " / ".join(f"{of_test[name]:.1%}".replace("nan%", "-") for of_test in both) for name in both[0]
                    ]
                    print(f"| {corpus} | {holdout} | {models} | {share:.0%} of {ASKED} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
