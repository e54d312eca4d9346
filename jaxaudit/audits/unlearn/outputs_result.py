"""The result of scoring unlearned models of your own by their outputs, which is its JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np
from jaxtyping import Float

from jaxaudit.audits.finding import Finding
from jaxaudit.audits.unlearn.given_models import AGAIN
from jaxaudit.audits.unlearn.result import ORIGINAL, Conclusion
from jaxaudit.json_types import Count, StrictStruct, demand
from jaxaudit.metrics import ChallengeScore, Estimate


class OutputsProtocol(StrictStruct, frozen=True):
    """Numbers of records and models.

    Attributes:
        records: of the set to forget.
        classes: that the models distinguish.
        compared: models of each method that are compared: the first ones of its file, equally many of all methods, and
            of retrained models as if retraining were a method. 0: there are too few, and nothing is compared.
        references: the retrained models that all methods are compared with: as many, those after the first `compared`
            ones.
        level: confidence level of the intervals; no verdict depends on it.
        false_positive_rate: the share of retrained models' pairs that may be called unlearned.
    """

    records: int
    classes: int
    compared: Count
    references: Count
    level: float
    false_positive_rate: float


class AccuracyOfModels(StrictStruct, frozen=True):
    """The accuracy of all models of a file, from 0 to 1: the mean, with Student's t interval, and of each `value`."""

    mean: Estimate
    values: tuple[float, ...]


class ScoredMethod(StrictStruct, frozen=True):
    """The numbers of one method, or of a reference.

    Attributes:
        name: `retrained again`, `original` (nothing was forgotten), or the name given to it.
        models: in its file.
        forgotten_accuracy, remaining_accuracy, test_accuracy: on the records to forget, on the remaining training
            records, and on test records; None if unknown.
        challenge: the unlearning challenge's score; None if its models were not compared.
        u_lira: the accuracy of U-LiRA, on the same models.
        true_positive_rate: of U-LiRA at `OutputsProtocol.false_positive_rate`; None also if there are fewer than 1,000
            pairs of a reference and a record.
        finding: the conclusion; None for a reference.
    """

    name: str
    models: int
    forgotten_accuracy: AccuracyOfModels
    remaining_accuracy: AccuracyOfModels | None
    test_accuracy: AccuracyOfModels | None
    challenge: ChallengeScore | None
    u_lira: Estimate | None
    true_positive_rate: Estimate | None
    finding: Finding | None


class UnlearnOutputsResult(StrictStruct, frozen=True, kw_only=True):
    """The numbers of all methods, whose models were trained elsewhere.

    Attributes:
        finding: the conclusion on all methods: the worst verdict.
        protocol: numbers of records and models.
        shortfalls: what cannot be said with so few models, in sentences, each with the number that is needed.
        methods: `retrained again`, `original` if it was given, then the methods.
    """

    finding: Finding
    protocol: OutputsProtocol
    shortfalls: tuple[str, ...]
    methods: tuple[ScoredMethod, ...]

    def __getitem__(self, name: str) -> ScoredMethod:
        """The method of this name."""
        return next(method for method in self.methods if method.name == name)


@dataclass(frozen=True, eq=False)
class UnlearnOutputsAudit:
    """The numbers of all methods, and what the result only summarises.

    Attributes:
        result: the numbers and the conclusions.
        u_lira: the accuracy of U-LiRA on each record, by method; empty if no models were compared.
        sources: the papers that the numbers rest on.
    """

    result: UnlearnOutputsResult
    u_lira: Mapping[str, Float[np.ndarray, " records"]]
    sources: tuple[str, ...]

    @property
    def finding(self) -> Finding:
        """The conclusion on all methods."""
        return self.result.finding


def check_unlearn_outputs(result: UnlearnOutputsResult, arrays: Mapping[str, np.ndarray]) -> None:
    """Checks that the parts of a result read from a file agree; `arrays` is not used.

    Raises:
        ValueError: parts do not agree.
    """
    names = [method.name for method in result.methods]
    demand(len(set(names)) == len(names), "two methods have one name")
    demand(names[:1] == [AGAIN], "it does not begin with retrained models")
    references = (AGAIN, ORIGINAL)
    demand(not set(names) <= set(references), "it has no method")
    for method in result.methods:
        accuracies = (method.forgotten_accuracy, method.remaining_accuracy, method.test_accuracy)
        demand(
            all(accuracy is None or len(accuracy.values) == method.models > 0 for accuracy in accuracies),
            "accuracies and models differ in number",
        )
        finding, challenge = method.finding, method.challenge
        demand((finding is None) == (method.name in references), "a finding is missing or out of place")
        demand(finding is None or finding.verdict in get_args(Conclusion), "a verdict is none of a method")
        demand((challenge is None) == (method.u_lira is None), "one of two comparisons with retraining is missing")
        demand(challenge is None or len(challenge.epsilon) == result.protocol.records, "epsilons are of other records")
        demand(challenge is None or result.protocol.compared > 0, "models are compared, and there are too few")
        decided = finding is not None and finding.verdict != "inconclusive"
        demand(not decided or challenge is not None, "a verdict is of models that were not compared")
    judged = [method.finding.verdict for method in result.methods if method.finding is not None]
    demand(result.finding.verdict in judged, "its finding is that of no method")
    compared = [method.name for method in result.methods if method.challenge is not None]
    demand(not compared or AGAIN in compared, "methods are compared with retraining, and it is not")
