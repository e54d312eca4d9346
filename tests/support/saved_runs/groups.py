"""A run of `ks --by group` on a small table of scores."""

import jax
import numpy as np

from jaxaudit import judge_scores, score_table
from jaxaudit.audits import KSResult
from jaxaudit.report import Run, recorded
from jaxaudit.runs import describe_scores
from support.saved_runs.provenance import provenance

GROUPS, USED = 30, 4


def groups_run(name: str = "scores.csv", groups: int = GROUPS) -> Run[KSResult]:
    """Authors with 12 records in each set, of which the model used those of 4, and models of known truth."""
    random = np.random.default_rng(1)
    author = np.repeat(np.arange(groups), 24)
    sets = np.where(random.permuted(np.tile(np.arange(24) < 12, (groups, 1)), axis=1).ravel(), "query", "holdout")
    hard = random.normal(size=len(author))

    def loss(remembered: np.ndarray) -> np.ndarray:
        return 3 + hard - remembered + 0.3 * random.normal(size=len(author))

    columns = {"set": sets, "group": [f"{name} {number}" for number in author]}
    columns[f"target.{name.replace('.', '_')}.loss"] = loss(1.0 * ((author < USED) & (sets == "query")))
    columns |= {f"unused.{seed}.loss": loss(np.zeros(len(author))) for seed in range(2)}
    columns |= {f"used.{seed}.loss": loss(1.0 * (sets == "query")) for seed in range(2)}
    table = score_table(columns, name=name)
    audit = judge_scores(jax.random.key(7), table, by="group")
    said = provenance("ks", name, describe_scores(table))
    return Run("a run", "ks", recorded("ks", audit.result, audit.sources, said), {})
