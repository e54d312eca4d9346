"""The result of the `ks` audit, which is its JSON, and the outputs that stand beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
from jaxtyping import Float

from jaxaudit.audits.finding import Confidence, Finding
from jaxaudit.json_types import Number, StrictStruct, demand
from jaxaudit.metrics.before_after import Change
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.exchangeability import Alike
from jaxaudit.metrics.ks import Verdict
from jaxaudit.metrics.usage import Question
from jaxaudit.shadow_models import ShadowModels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Truth(StrictStruct, frozen=True):
    """What a simulated target was trained on.

    Attributes:
        used_fraction: the share of the query records among its training data.
        training_records: the size of its training set.
        expected: the correct verdict: `not forgotten` if any query record was used, else `forgotten`.
    """

    used_fraction: float
    training_records: int
    expected: Verdict


class RhoResult(StrictStruct, frozen=True):
    """rho over replicates, and its interval; see `jaxaudit.metrics.Rho`."""

    median: Number
    low: Number
    high: Number
    values: tuple[Number, ...]


class Distances(StrictStruct, frozen=True):
    """Kolmogorov-Smirnov distances from the query model of each replicate: to the target, to the calibration model."""

    target: tuple[Number, ...]
    calibration: tuple[Number, ...]


class UsageResult(StrictStruct, frozen=True):
    """The numbers of a test of use; see `jaxaudit.metrics.Usage`.

    Attributes:
        verdict: what these numbers alone say; what is concluded, with the checks, is the finding of the test.
        fraction: None where the data do not determine it.
        p_confidence: how far to trust `p_never`; `fraction_confidence` the fraction and its limits.
        question: what the fraction is of: what was used, or what is left; runs of older versions do not have it.
    """

    method: str
    verdict: Verdict
    p_never: float
    p_fully: Number
    fraction: Number
    fraction_low: Number
    fraction_high: Number
    detectable: Number
    reasons: tuple[str, ...]
    upper: float
    p_never_adjusted: Number
    design: Literal["guessed", "mixed", "none"]
    p_confidence: Confidence
    fraction_confidence: Confidence
    question: Question = "used"


class EMAResult(StrictStruct, frozen=True):
    """Medians over replicates, each replicate's numbers, and what the paper's rule says; see `jaxaudit.metrics.EMA`."""

    p_value: Number
    member_share: Number
    p_values: tuple[Number, ...]
    member_shares: tuple[Number, ...]
    rule: Verdict


class TestResult(StrictStruct, frozen=True):
    """What one test says; `numbers` are its own, by name, beside those that tests have in common."""

    name: str
    title: str
    finding: Finding
    numbers: dict[str, Number] = msgspec.field(default_factory=dict)


class Resembles(StrictStruct, frozen=True):
    """The design of shadow models that a target's outputs are most like.

    Attributes:
        design: its name.
        recognised: the share of shadow models whose own design is named in the same way.
    """

    design: str
    recognised: float


class TargetResult(StrictStruct, frozen=True, kw_only=True):
    """The result for one target; what rho alone says is None in an audit without it.

    Attributes:
        name: the target's name.
        truth: what is known of it; None for a file of outputs.
        finding: the verdict, by the first test that was asked for; `verdict` is its own.
        because: what the verdict rests on, in one line.
        method: the name of the test that gave the verdict.
        paper_rule: the paper's own verdict, from one number: the median of rho.
        rho: rho over replicates, whichever test gave the verdict.
        rho_verdict: the verdict of rho's interval and its checks.
        ks: the distances that rho is the ratio of.
        controls: rho of the models trained on the calibration and the whole query set, compared in the same way.
        usage: the numbers of each test of use, in their order.
        change: the used fraction before a deletion minus that after, by the holdout test; None without outputs before.
        ema: what EMA measured; None without EMA.
        tests: what each test says, the deciding one first.
        checks: everything that was checked, on the numbers that were compared.
        resembles: the design of shadow models that its outputs are most like; None where there is one design, or no
            records that it did not use.
    """

    name: str
    truth: Truth | None
    finding: Finding
    verdict: Verdict
    because: str
    method: str
    paper_rule: Verdict | None
    rho: RhoResult | None
    rho_verdict: Verdict | None
    ks: Distances | None
    controls: tuple[RhoResult, ...] | None
    usage: tuple[UsageResult, ...]
    change: Change | None
    ema: EMAResult | None
    tests: tuple[TestResult, ...]
    checks: tuple[Check, ...]
    resembles: Resembles | None = None


class NoiseFloor(StrictStruct, frozen=True):
    """Kolmogorov-Smirnov distances between query models that differ by their seed alone."""

    median: Number
    max: Number
    values: tuple[Number, ...]


class Rates(StrictStruct, frozen=True):
    """How often a test gave each verdict for targets of one truth.

    Attributes:
        test: its name.
        used: the fraction of the query set that they used.
        records: number of query records that they were judged by.
        targets: their number.
        not_forgotten, forgotten, inconclusive: how many of them were called so.
    """

    test: str
    used: float
    records: int
    targets: int
    not_forgotten: int
    forgotten: int
    inconclusive: int


class KSResult(StrictStruct, frozen=True, kw_only=True):
    """What was found.

    Attributes:
        level: confidence level of the intervals.
        targets: one result per target, in the given order.
        noise_floor: the distances that another seed alone makes; None without rho.
        rates: of each test, measured on the shadow models of a bank; None where nobody asked for them.
    """

    level: float
    targets: tuple[TargetResult, ...]
    noise_floor: NoiseFloor | None
    rates: tuple[Rates, ...] | None = None


@dataclass(frozen=True, eq=False)
class KSAudit:
    """The results for all targets, and the outputs of the shadow models.

    Attributes:
        result: what was found.
        target_confidences: `float32[targets, n]`, each target's probability of each query record's ground-truth class.
        query_confidences, calibration_confidences: `float32[replicates, n]`, in full precision; 0 replicates without
            rho.
        control_confidences: `float32[controls, n]`, of the models trained on both sets.
        labels: the query set's labels.
        sources: the papers that the tests rest on, as they name them.
        models_per_batch: how many models were trained at the same time; None if none was trained here.
        shadows: the models that the tests judged by; None where nobody told them apart (`judge_outputs`).
        sampled_alike: whether query set and holdout were sampled alike; None where no test asked.
    """

    result: KSResult
    target_confidences: Float[np.ndarray, "targets n"]
    query_confidences: Float[np.ndarray, "replicates n"]
    calibration_confidences: Float[np.ndarray, "replicates n"]
    control_confidences: Float[np.ndarray, "controls n"]
    labels: np.ndarray
    sources: tuple[str, ...] = ()
    models_per_batch: int | None = None
    shadows: ShadowModels | None = None
    sampled_alike: Alike | None = None

    @property
    def targets(self) -> tuple[TargetResult, ...]:
        """One result per target, in the given order."""
        return self.result.targets

    def plot(self, target: int = 0) -> "Figure":
        """Confidences of one target on two axes, and rho of all of them against 1, as a Matplotlib figure.

        Without rho, the used fractions of all targets by each test of use.

        Raises:
            InputError: no test has a chart.
        """
        from jaxaudit.audits.ks.figure import plot_ks

        return plot_ks(self, target)


def check(result: KSResult, arrays: Mapping[str, np.ndarray]) -> None:
    """Holds a result that was read against itself, and against the arrays beside it.

    Raises:
        ValueError: what does not fit.
    """
    demand(bool(result.targets), "it has no target")
    for target in result.targets:
        _check_rho(target, made=result.noise_floor is not None)
        tests = [test.name for test in target.tests]
        demand(bool(tests) and tests[0] == target.method, "a target's verdict rests on a test that is not there")
        demand(target.verdict == target.finding.verdict == target.tests[0].finding.verdict, "a target has two verdicts")
        numbers = {*(usage.method for usage in target.usage), *(("ema",) if target.ema else ())}
        demand(numbers <= set(tests), "a target has numbers of no test")
        demand(("rho" in tests) == (target.rho is not None), "a target has rho without its test, or the reverse")
    if arrays:
        _check_arrays(result, arrays)


def array_names(result: KSResult) -> tuple[str, ...]:
    """The arrays of a run that charts need: those of shadow models, if there is rho, and one for each target."""
    models = () if result.noise_floor is None else ("query", "calibration")
    return (*models, *(f"target_{index}" for index in range(len(result.targets))))


def _check_rho(target: TargetResult, *, made: bool) -> None:
    parts = (target.paper_rule, target.rho, target.rho_verdict, target.ks, target.controls)
    there = {part is not None for part in parts}
    demand(there == {made}, "a part of rho is missing" if made else "there is rho without a noise floor")
    rho, ks = target.rho, target.ks
    if rho is not None and ks is not None:
        lengths = {len(rho.values), len(ks.target), len(ks.calibration)}
        demand(len(lengths) == 1, "replicates of rho and its distances differ in number")
        demand(lengths != {0}, "a target has no replicate")


def _check_arrays(result: KSResult, arrays: Mapping[str, np.ndarray]) -> None:
    shape = arrays["target_0"].shape
    for target in result.targets:
        if target.rho is not None:
            query = arrays["query"]
            demand(query.ndim == 2 and len(query) == len(target.rho.values), "query confidences are misshapen")
            demand(arrays["calibration"].shape == query.shape, "calibration confidences are misshapen")
            shape = query.shape[1:]
    demand(len(shape) == 1 and shape[0] > 0, "confidences are misshapen")
    for name in array_names(result):
        values = arrays[name]
        demand(not name.startswith("target_") or values.shape == shape, f"confidences called {name} are misshapen")
        fits = values.dtype.kind == "f" and bool(((values >= 0) & (values <= 1)).all())
        demand(fits, f"confidences called {name} are not probabilities")
