"""The result of the `ks` audit, which is its JSON, the arrays saved with it, and the figure that `plot()` returns."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import msgspec
import numpy as np
from jaxtyping import Float

from jaxaudit.audits.finding import Confidence, Finding
from jaxaudit.errors import InputError, visible
from jaxaudit.json_types import Count, Number, StrictStruct, demand
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.exchangeability import Alike
from jaxaudit.metrics.forgetting_quality import Retrained
from jaxaudit.metrics.ks import Rho
from jaxaudit.metrics.usage import Usage, Verdict, fraction_name
from jaxaudit.shadow_models import ShadowModels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Basis = Literal["own records", "holdout groups", "models"]
GroupVerdict = Literal["remembered", "suspected", "not found", "cannot be found", "inconclusive"]


class GroupResult(StrictStruct, frozen=True, kw_only=True):
    """What is found of one group of the query set.

    Attributes:
        name: its number, and no id of the table's: groups are numbered from 1, in the order in which they first occur
            among the records of query set, holdout and members.
        first: its first query record, among the records of the table counted from 1.
        verdict: `remembered`, by `p_adjusted`. `suspected`, by `p_adjusted_bh` alone, or by models. `not found`, which
            rules nothing out. `cannot be found`: no scores, of this group and all others, could have led to
            `remembered`. `inconclusive`: something is wrong, or the holdout has no groups of its size.
        basis: what it is compared with: its own records of the holdout, all groups of that, or models of known truth.
        p_never: p-value of "none of the group was used"; None if nothing tells.
        p_adjusted: adjusted by Holm's method, `p_adjusted_bh` by that of Benjamini and Hochberg; None if not counted.
        effect: how much higher its scores are than those of what it is compared with, in standard deviations of a
            record, after what is known of the records.
        share: the share of the effect of use that is left, between models of known truth.
    """

    name: Count
    first: Count
    records: Count
    holdout_records: Count
    verdict: GroupVerdict
    basis: Basis
    p_never: Number
    p_adjusted: Number = None
    p_adjusted_bh: Number = None
    effect: Number = None
    share: Number = None


class Grouping(StrictStruct, frozen=True, kw_only=True):
    """What is found of all groups of the query set.

    Attributes:
        groups: each of them, the smallest p-value first.
        adjustment: how `p_adjusted` and `p_adjusted_bh` are adjusted, and what that guarantees.
        tests: for how many tests, of a group and a target each, they are adjusted.
    """

    finding: Finding
    adjustment: str
    tests: Count
    groups: Annotated[tuple[GroupResult, ...], msgspec.Meta(min_length=1)]


SCORES = "scores"
"""The test that judges by a table of scores, and stores no outputs."""


class Truth(StrictStruct, frozen=True):
    """What a simulated target was trained on.

    Attributes:
        used_fraction: the share of the query records that it used. `training_records`: of all sets together.
        expected: the correct verdict: `not forgotten` if any query record was used, else `forgotten`.
    """

    used_fraction: float
    training_records: int
    expected: Verdict


class RhoDetails(StrictStruct, frozen=True, tag_field="kind", tag="rho"):
    """The details of rho over replicates, and of its positive controls, trained on the calibration set and the whole
    query set. `rule` is the verdict of the paper's own rule, from the median alone.
    """

    rho: Rho
    controls: tuple[Rho, ...]
    rule: Verdict


class TofuDetails(StrictStruct, frozen=True, tag_field="kind", tag="tofu"):
    """The numbers of open-unlearning, beside the first retrained model of a table of scores. They decide nothing.

    Attributes:
        forget_quality: TOFU's. `privleak`: MUSE's, in percent. None without the scores that it takes.
        retrained: both between retrained models; None without several.
    """

    forget_quality: Number
    privleak: Number
    retrained: Retrained | None


Details = Usage | RhoDetails | TofuDetails | None


Measured = Literal["p_never", "fraction"]
"""The numbers of a test of use that a confidence is given for."""


class TestResult(StrictStruct, frozen=True):
    """The result of one test: its name, its title in words, its finding, and its numbers (`details`).

    `confidences` of a test of use has how far to trust `p_never`, and how far the `fraction` and its limits. `numbers`
    has further ones of a test of your own, by name; if it is no test of use, `details` is None.
    """

    name: str
    title: str
    finding: Finding
    details: Details
    confidences: dict[Measured, Confidence] = msgspec.field(default_factory=dict)
    numbers: dict[str, Number] = msgspec.field(default_factory=dict)


class TargetResult(StrictStruct, frozen=True, kw_only=True):
    """The result for one target: its finding is that of the first test. `checks` are all, on the numbers that were
    compared; `grouping` has a verdict for each group of the query set, if requested.
    """

    name: str
    truth: Truth | None
    finding: Finding
    tests: Annotated[tuple[TestResult, ...], msgspec.Meta(min_length=1)]
    checks: tuple[Check, ...]
    grouping: Grouping | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict of the finding."""
        return msgspec.convert(self.finding.verdict, Verdict)

    @property
    def because(self) -> str:
        """The reasons of the finding in one line."""
        return "; ".join(self.finding.reasons)

    @property
    def method(self) -> str:
        """The name of the test that gave the verdict."""
        return self.tests[0].name

    @property
    def usage(self) -> tuple[Usage, ...]:
        """The numbers of each test of use, in the order of the tests."""
        return tuple(test.details for test in self.tests if isinstance(test.details, Usage))

    @property
    def deciding(self) -> tuple[Usage, ...]:
        """The numbers of the test that gave the verdict; none if it is no test of use."""
        return tuple(usage for usage in self.usage if usage.method == self.method)

    @property
    def ratio(self) -> RhoDetails | None:
        """The numbers of rho, whichever test gave the verdict; None without rho."""
        return next((test.details for test in self.tests if isinstance(test.details, RhoDetails)), None)

    @property
    def tofu(self) -> TofuDetails | None:
        """Forget quality and privleak; None without the scores that they take."""
        return next((test.details for test in self.tests if isinstance(test.details, TofuDetails)), None)


class NoiseFloor(StrictStruct, frozen=True):
    """KS distances between confidences of query models that differ only in the seed; None with fewer than two."""

    median: Number
    max: Number
    values: tuple[Number, ...]


class Rates(StrictStruct, frozen=True):
    """Of `targets` that used the same fraction, the number with each verdict by a test of `records` query records."""

    test: str
    used: float
    records: int
    targets: int
    not_forgotten: int
    forgotten: int
    inconclusive: int


class KSResult(StrictStruct, frozen=True, kw_only=True):
    """The results of the audit, with intervals of this level.

    `noise_floor` has the distances that a change of the random seed alone causes, None without rho; `rates` the error
    rates of each test, measured on the shadow models, None unless requested.
    """

    level: float
    targets: tuple[TargetResult, ...]
    noise_floor: NoiseFloor | None
    rates: tuple[Rates, ...] | None = None


@dataclass(frozen=True, eq=False)
class KSAudit:
    """The results for all targets, and the outputs of the shadow models.

    Attributes:
        target_confidences: each target's probability of each query record's ground-truth class.
        query_confidences, calibration_confidences: in full precision; no replicates without rho.
        control_confidences: of the positive controls, trained on both sets.
        sources: the papers that the tests rest on.
        form: how convolutions were computed (`kernels.convolutions`); None: as JAX has them, or there are none.
        shadows: the models that the tests used; None from `judge_outputs`.
        sampled_alike: the test whether query set and holdout are exchangeable; None if no test needed it.
    """

    result: KSResult
    target_confidences: Float[np.ndarray, "targets n"]
    query_confidences: Float[np.ndarray, "replicates n"]
    calibration_confidences: Float[np.ndarray, "replicates n"]
    control_confidences: Float[np.ndarray, "controls n"]
    labels: np.ndarray
    sources: tuple[str, ...] = ()
    models_per_batch: int | None = None
    form: str | None = None
    shadows: ShadowModels | None = None
    sampled_alike: Alike | None = None

    @property
    def targets(self) -> tuple[TargetResult, ...]:
        """One result per target, in the given order."""
        return self.result.targets

    def __str__(self) -> str:
        """The finding on each target, in a sentence."""
        return "\n".join(f"{target.name}: {target.verdict}. {target.finding.sentence}" for target in self.targets)

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        return "".join(f"<p>{escape(line)}</p>" for line in str(self).splitlines())

    def plot(self, target: int = 0) -> "Figure":
        """Confidences of one target on two axes; without rho, used fractions of all targets."""
        from jaxaudit.plots import charts as plot
        from jaxaudit.plots.style import canvas, row_height

        judged = self.targets[target]
        if not judged.ratio:
            several = max(len(target.usage) for target in self.targets) > 1
            rows = [
                (visible(target.name) + (f" ({visible(usage.method)})" if several else ""), usage)
                for target in self.targets
                for usage in target.usage
            ]
            if not rows:
                raise InputError("there is nothing to draw: add RhoTest() or a test of use, such as ShadowTest().")
            figure, axes = canvas(row_height(len(rows)) + 0.3)
            plot.draw_shares(axes, rows, fraction_name(usage.question for _, usage in rows))
            return figure
        figure, axes = canvas()
        which = typical(judged.ratio.rho)
        samples = [self.query_confidences[which], self.target_confidences[target], self.calibration_confidences[which]]
        gap = plot.widest_gap_at(samples[0], samples[1])
        plot.draw_confidences(axes, samples, gap, judged.ratio.rho.distances[which])
        return figure


def check_ks_result(result: KSResult) -> None:
    demand(bool(result.targets), "it has no target")
    for target in result.targets:
        demand(bool(target.ratio) == bool(result.noise_floor), "rho is missing, or its noise floor")
        demand(target.finding.verdict == target.tests[0].finding.verdict, "a target has two verdicts")
        names = [test.name for test in target.tests]
        demand(len(set(names)) == len(names), "a target has a test twice")
        for test in target.tests:
            demand(test.finding.verdict in get_args(Verdict), f"a verdict is none of {', '.join(get_args(Verdict))}")
            details, measured = test.details, set[str]()
            if isinstance(details, Usage):
                demand(details.method == test.name, "the numbers of a test are those of another test")
                measured = set(get_args(Measured))
            demand(
                set(test.confidences) == measured, "a test has no confidence in its numbers, or has it without numbers"
            )
        if target.ratio:
            rho = target.ratio.rho
            lengths = {len(rho.values), len(rho.distances), len(rho.calibration_distances)}
            demand(len(lengths) == 1, "replicates of rho and its distances differ in number")
            demand(lengths != {0}, "a target has no replicate")


def check_ks_arrays(result: KSResult, arrays: Mapping[str, np.ndarray]) -> None:
    shape = arrays["target_0"].shape
    for target in result.targets:
        if target.ratio:
            query = arrays["query"]
            demand(query.ndim == 2 and len(query) == len(target.ratio.rho.values), "query confidences are misshapen")
            demand(arrays["calibration"].shape == query.shape, "calibration confidences are misshapen")
            shape = query.shape[1:]
    demand(len(shape) == 1 and shape[0] > 0, "confidences are misshapen")
    for name in array_names(result):
        values = arrays[name]
        demand(not name.startswith("target_") or values.shape == shape, f"confidences called {name} are misshapen")
        fits = values.dtype.kind == "f" and bool(((values >= 0) & (values <= 1)).all())
        demand(fits, f"confidences called {name} are not probabilities")


def array_names(result: KSResult) -> tuple[str, ...]:
    """Names of the arrays of a run that charts need: of shadow models, if there is rho, and one for each target."""
    if all(target.method == SCORES for target in result.targets):
        return ()
    models = ("query", "calibration") if result.noise_floor else ()
    return (*models, *(f"target_{index}" for index in range(len(result.targets))))


def typical(rho: Rho) -> int:
    """The replicate whose rho is nearest to the median."""
    values = np.array(rho.values, float)
    if np.isnan(rho.median) or np.isnan(values).all():
        return 0
    return int(np.nanargmin(np.abs(values - rho.median)))
