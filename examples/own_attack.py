"""A membership attack of your own: is the model surer of the record's class than models without the record?

    python own_attack.py

It stands beside the built-in attacks, and in the results, tables and pages.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import numpy as np
from sklearn.linear_model import LogisticRegression

import jaxaudit as ja
from jaxaudit.attacks import AttackInputs, Distance, PairedShadows, PooledShadows


@dataclass(frozen=True)
class Surer:
    """The log-probability of the class, minus what shadow models say on average, with the record and without it.

    Attributes:
        inside: the share of the models with the record in that average, from 0 to 1.
    """

    inside: float = 0.5

    name: ClassVar[str] = "surer"
    meaning: ClassVar[str] = "Answers `in` if the model is surer of the class than shadow models are on average."
    source: ClassVar[str] = "this file"
    shadows: ClassVar[Literal["paired", "pooled"]] = "paired"

    def scores(self, key: Any, inputs: AttackInputs, shadows: PairedShadows | PooledShadows) -> Any:
        assert isinstance(shadows, PairedShadows)  # as `shadows` above says

        def of_class(outputs: np.ndarray) -> np.ndarray:
            """[..., targets, classes] -> [..., targets]"""
            return np.take_along_axis(outputs, np.broadcast_to(places, (*outputs.shape[:-1], 1)), axis=-1)[..., 0]

        places = inputs.labels[:, None]
        inside, outside = (of_class(one).mean(axis=0) for one in (shadows.with_target, shadows.without_target))
        return of_class(inputs.outputs) - (self.inside * inside + (1 - self.inside) * outside)


if __name__ == "__main__":
    people = ja.one_hot(ja.load_table("breast-cancer"))
    models = ja.train_splits(
        jax.random.key(1),
        people.take(np.arange(300)),
        ja.EstimatorLearner(LogisticRegression(), classes=2),
        pooled_shadows=0,
        iterations=10,
        targets=20,
        measured=1,
    )
    audit = ja.attack(models, attacks=[Surer(), Distance()])
    print(f"{audit.finding.verdict}: {audit.finding.sentence}")
    for attack in audit.result.attacks:
        print(f"{attack.name}: area under the ROC curve {attack.auc.value:.2f}")
