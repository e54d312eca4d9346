"""A test of your own for `ks`: is the target surer of the query set than every model that never saw it?

    python own_test.py

With 19 models the largest of 20 is the target by chance in 5% of cases, if the target is otherwise like them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import numpy as np
import optax
from jaxtyping import Array, Key

import jaxaudit as ja

KIND = "sureness"


@dataclass(frozen=True, kw_only=True)
class SurenessTest(ja.KSTest):
    """Compares mean log-odds on the query set.

    Attributes:
        models: number of models without the query set that are trained; of a bank, those that it has.
    """

    models: int = 19
    name: ClassVar[str] = "sureness"
    title: ClassVar[str] = "sureness test"
    least: ClassVar[Mapping[str, int]] = {"models": 19}
    assumes: ClassVar[str] = "Sureness test: the target was trained like its models, on data like the calibration set."

    def training_sizes(self, sizes: ja.Sets[int]) -> tuple[tuple[int, int], ...]:
        return ((self.models, round(2 / 3 * sizes[ja.Role.CALIBRATION])),)

    def refuse(self, sets: ja.Sets[ja.Examples]) -> None:
        if self.models < 19:
            raise ja.InputError("the sureness test needs at least 19 models.")

    def kinds(self) -> tuple[str, ...]:
        return (KIND,)

    def draw(self, key: Key[Array, ""], pool: ja.Pool) -> ja.Rows:
        """A share of the calibration set for each model, and none of the query set."""
        return {KIND: ja.shadow_rows(key, pool, KIND, np.zeros(0, int), 0, self.models)}

    def judge(
        self,
        key: Key[Array, ""],
        outputs: ja.TargetOutputs,
        evidence: ja.Evidence,
        common: tuple[ja.Check, ...],
    ) -> ja.Judgement:
        mean = float(outputs.log_odds[: evidence.queries].mean())
        means = outputs.at_resolution(evidence.log_odds(KIND))[:, : evidence.queries].mean(axis=1)
        p = (1 + int((means >= mean).sum())) / (1 + len(means))
        used = p <= 0.05
        finding = ja.Finding(
            verdict="not forgotten" if used else "inconclusive",
            tone="bad" if used else "open",
            sentence=f"The mean log-odds are {mean:.2f}; those of models that never saw it, at most {means.max():.2f}.",
            reasons=(f"p = {p:.2g}",),
            confidence=ja.Confidence("weak", "This test was tried on nothing but this example."),
            caveats=(self.assumes,),
        )
        return ja.Judgement(self.name, self.title, finding, rests_on=frozenset(), numbers={"p-value": p})


if __name__ == "__main__":
    digits = ja.prepare_images(ja.load("digits"))
    query, calibration = digits.take(np.arange(300)), digits.take(np.arange(300, 900))
    target = ja.SimulatedTarget("both sets", (ja.Part(calibration, 0.67), ja.Part(query, 1.0)))
    mlp = partial(ja.models.MLP, hidden=(32,))
    learner = ja.network(mlp, query.inputs.shape[1:], 10, optimizer=optax.adam(3e-3), epochs=15, batch_size=50)
    key, tests = jax.random.key(1), [SurenessTest()]
    shadows = ja.train_shadows(key, query, calibration, learner, [target], tests=tests)
    answer = ja.judge(key, shadows, [target], tests=tests)
    print(f"{answer.targets[0].verdict}: {answer.targets[0].finding.sentence}")
