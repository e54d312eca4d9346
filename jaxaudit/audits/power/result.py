"""The result of the `power` audit, which is its JSON, with the probable conclusions on a target before there is one."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from msgspec import field, structs
from scipy import special

from jaxaudit.audits.finding import Checked, Confidence, Finding, assumed, in_order
from jaxaudit.json_types import Extended, Number, StrictStruct, demand
from jaxaudit.metrics.memory import LEAST_MEMBERS
from jaxaudit.metrics.power import (
    MOST_RECORDS,
    Memory,
    Separation,
    detection_probability,
    forgotten_probability,
    memory_in_errors,
    records_needed,
    remembering,
)
from jaxaudit.metrics.usage import ALPHA, POWER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRACTIONS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Used fractions of the query set for which the detection probability is given."""
By = Literal["members and shadow models", "members", "holdout"]
"""The available evidence beside query set and holdout: known members and a calibration set, so that shadow models are
trained; known members without shadow models; or shadow models without known members."""
REMEMBERS = (1.0, 0.5, 0.25)
"""How much a target memorises, as a multiple of what the shadow models memorise; unknown beforehand."""
ALL, PART = 1.0, 0.25


class Conclusion(StrictStruct, frozen=True):
    """The probable conclusions on a target at some sizes, `by` the available evidence.

    Attributes:
        members: number of known members; 0 without any.
        remembers: how much the target memorises, as a multiple of what the shadow models memorise.
        memory: the expected difference between known members and holdout, in standard errors; None without known
            members, infinite if scores have no spread.
        forgotten: the probability that a target that never used the query set is called `forgotten`; None if that is
            impossible: without known members, or with fewer than the members test needs.
        all_used, part_used: the probability of `not forgotten` if a target used all of the query set, or a quarter.
    """

    by: By
    members: int
    remembers: float
    memory: Extended | None
    forgotten: Number
    all_used: float
    part_used: float


class Size(StrictStruct, frozen=True):
    """The power of an audit of so many query and holdout records.

    Attributes:
        given: whether these numbers were asked about.
        chances: the probability that use is detected at the 5% level, of each of the result's `fractions`.
        min_detectable: the smallest fraction that is detected with 95% probability, if any; `least_noticed` in JSON.
        conclusions: the probabilities of each verdict, with and without known members; of planned sizes alone.
    """

    query: int
    holdout: int
    given: bool
    chances: tuple[float, ...]
    min_detectable: Number = field(name="least_noticed")
    conclusions: tuple[Conclusion, ...] = ()


class PowerResult(StrictStruct, frozen=True, kw_only=True):
    """How well an audit of this size would notice that a target model used the query set.

    The holdout test compares a target's outputs on the query set with outputs on a holdout that the target never saw.
    The members test compares the query set with records that the target is known to have used.

    Attributes:
        finding: whether the given sizes suffice to detect use of `fraction` of the query set.
        separation: difference and spread of the holdout test's score, between records that a model used and others.
        sizes: power at the given sizes, and at smaller and larger sizes in the same proportion.
        holdouts: power with the given query set, and a holdout of 1, 2, 3 and 4 times its size.
        records_needed: the number of query records that detect use of `fraction` with 95% probability, given as many
            holdout records; None if no number does.
        memory: as `separation`, of the members test's score.
        fractions: the used fractions whose probability of detection each size has.
    """

    finding: Finding
    separation: Separation
    sizes: tuple[Size, ...]
    holdouts: tuple[Size, ...]
    fraction: float
    records_needed: int | None
    memory: Memory
    fractions: tuple[float, ...]

    @property
    def given(self) -> Size:
        """Power at the given sizes."""
        return next(size for size in self.sizes if size.given)


def conclusions(measured: Separation, memory: Memory, query: int, holdout: int, members: int) -> tuple[Conclusion, ...]:
    """The probable conclusions at these sizes of query set, holdout and known members, by the holdout test (`measured`)
    and the members test (`memory`). With shadow models, the holdout test detects use, also beside known members.
    """
    separations: dict[By, tuple[Separation | None, Separation]] = {
        "members and shadow models": (memory.helped, measured),
        "members": (memory.alone, memory.alone),
        "holdout": (None, measured),
    }

    def one(by: By, factor: float) -> Conclusion:
        limited, testing = separations[by]
        limited, testing = limited and remembering(limited, factor), remembering(testing, factor)
        errors = forgotten = None
        if limited:
            errors = memory_in_errors(limited, holdout, members)
            if members >= LEAST_MEMBERS:
                forgotten = forgotten_probability(limited, query, holdout, members, units=memory.units)
        used = (detection_probability(testing, query, holdout, used) for used in (ALL, PART))
        return Conclusion(by, members if limited else 0, factor, errors, forgotten, *used)

    return tuple(one(by, factor) for by in separations for factor in REMEMBERS)


@dataclass(frozen=True)
class PowerAudit:
    """The result of the `power` audit. `models_per_batch` is None if no model was trained; `form` is how convolutions
    were computed (`kernels.convolutions`), None: as JAX has them, or there are none.
    """

    result: PowerResult
    models_per_batch: int | None = None
    form: str | None = None

    @property
    def finding(self) -> Finding:
        """Whether the given sizes suffice for the fraction."""
        return self.result.finding

    def reduced(self, reduced: tuple[str, ...]) -> "PowerAudit":
        """The same, where these numbers were reduced to fit the effort: a limitation of the finding."""
        caveats = (*([LESS.format(reduced="; ".join(reduced))] if reduced else []), *self.finding.caveats)
        finding = structs.replace(self.finding, caveats=caveats)
        return replace(self, result=structs.replace(self.result, finding=finding))

    def plot(self) -> "Figure":
        """A Matplotlib figure: detection probability by used fraction, one line for each size."""
        from jaxaudit.plots import charts as plot
        from jaxaudit.plots.style import canvas

        figure, axes = canvas()
        plot.draw_probabilities(axes, self.result)
        return figure


def check_power_result(result: PowerResult) -> None:
    fractions = result.fractions
    demand(len(fractions) > 0 and [*fractions] == sorted({*fractions}), "its fractions do not rise")
    demand(len(result.holdouts) > 0 and sum(size.given for size in result.sizes) == 1, "a size is missing, or twice")
    counts = {len(size.chances) for size in (*result.sizes, *result.holdouts)}
    demand(counts == {len(fractions)}, "its sizes have different fractions")
    demand(not any(size.conclusions for size in result.holdouts), "conclusions are of the sizes of all sets")
    planned = [(by, factor) for by in get_args(By) for factor in REMEMBERS]
    for size in result.sizes:
        rows = [(row.by, row.remembers) for row in size.conclusions]
        demand(rows == planned, "its conclusions are not those of its sizes")


ENOUGH_MODELS = 19
"""With this many shadow models the variance between models is known well enough: the t quantile is within 6% of the
normal one."""
Measured = Literal["training", "bank", "scores"]
"""The models that power was measured on: trained for it, those of a bank, or those of a table of scores."""
MODELS: dict[Measured, str] = {
    "training": "shadow models",
    "bank": "shadow models",
    "scores": "models of the table of scores",
}
OF_SCORES = "A target must have been trained like the models of the table that used the records."
BANKED = "How much less a target with data of its own shows was not measured: a bank has no models of one draw."
CAVEATS = (
    "The target must have a network and recipe like the shadow models', about as many training records, and other "
    "data like the calibration set. A target that was also trained on other records of the query set's provider shows "
    "less.",
    "A record is assumed to be as exposed in a set of another size.",
    f"The probabilities are those of the holdout test at the {ALPHA:.0%} level, by a normal approximation. The minimum "
    "detectable fraction is by another, that of the ks audit: the two differ by some percent.",
)
MEMORY = (
    "Nobody knows how much a target remembers before it has answered on records that it did use. Its own memory "
    "decides, which is the difference between known members and holdout in standard errors, as the members test "
    "measures it: the less it remembers, the less probable is `forgotten`. All other checks of `ks` are taken to pass."
)
LESS = (
    "Measured with less than there is: {reduced}. Models of fewer records remember each of them more or, trained for "
    "fewer steps, less: a run at full effort and of all records measures it in full."
)
NEEDED = f"known members ({LEAST_MEMBERS} or more), or shadow models of the target's own recipe"
"""What a verdict `forgotten` requires."""


def power_finding(power: PowerResult, of: Measured) -> Finding:
    """`sufficient` if the minimum detectable fraction at the given sizes is at most the requested fraction."""
    size, measured, models = power.given, power.separation, power.separation.models
    least, wanted_text = size.min_detectable, fraction_text(power.fraction)
    sufficient = least is not None and least <= power.fraction
    sentence = f"With {size.query:,} query and {size.holdout:,} holdout records, "
    if least is None:
        sentence += f"not even use of the whole query set would be detected with {POWER:.0%} probability."
    else:
        # With as many digits as needed to differ from the requested one.
        texts = (fraction_text(least, digits) for digits in range(3, 17))
        shown = (
            fraction_text(least) if sufficient else next((text for text in texts if text != wanted_text), wanted_text)
        )
        sentence += f"use of {shown} or more of the query set would be detected with {POWER:.0%} probability."
        sentence += "" if sufficient else f" Use of {wanted_text} would not."
    sentence += forgotten_in_words(size.conclusions, of)
    reasons = (
        f"mean score of records in training less that of others: {measured.difference:.3g}, over {models} {MODELS[of]}",
        f"its standard deviation between models: {np.sqrt(measured.between):.3g}",
        f"a target with data of its own: {measured.stretch:.2f} times as far from the shadow models' mean as they are",
    )[: 3 if of == "training" else 2]
    few = models < ENOUGH_MODELS
    caveats = {"training": (), "bank": (BANKED,), "scores": (OF_SCORES,)}[of] + CAVEATS[of == "scores" :]
    caveats += (MEMORY,) if size.conclusions else ()
    why = f"A normal approximation, measured on {models} {MODELS[of]}{' only' if few else ''}."
    return Finding(
        "sufficient" if sufficient else "insufficient",
        "good" if sufficient else "bad",
        sentence,
        reasons,
        Confidence("weak" if few else "fair", why),
        _checks(measured, MODELS[of]),
        caveats,
        () if sufficient else (_what_it_takes(power, wanted_text, of),),
    )


def forgotten_in_words(conclusions: tuple[Conclusion, ...], of: Measured) -> str:
    """A sentence on whether a target that used nothing would be called `forgotten`; empty without conclusions."""
    by = "members" if of == "scores" else "members and shadow models"
    of_whole = [conclusion for conclusion in conclusions if conclusion.by == by and conclusion.remembers == 1]
    if not of_whole:
        return ""
    conclusion = of_whole[0]
    if conclusion.forgotten is None:
        return f" To call a target `forgotten` takes {NEEDED}."
    chance = (
        f" A target that never used it would be called `forgotten` with {100 * conclusion.forgotten:.0f}% probability"
    )
    if of == "scores":
        return f"{chance}, given {conclusion.members:,} known members, if it remembers what it used as these models do."
    return (
        f"{chance}, given {conclusion.members:,} known members and shadow models, if it remembers what it used as "
        "these do. Without known members, or shadow models of the target's own recipe, no target is."
    )


def fraction_text(fraction: float, digits: int = 3) -> str:
    """A fraction of the query set, with `digits` significant digits.

    >>> fraction_text(0.0684), fraction_text(0.01), fraction_text(1.0)
    ('6.84%', '1%', '100%')
    """
    return f"{100 * fraction:.{digits}g}%"


def _checks(measured: Separation, noun: str) -> tuple[Checked, ...]:
    models = f"{measured.models} {noun}"
    more = f"{models}; {ENOUGH_MODELS} or more know their variance better"
    higher = "scores of records in training are higher than those of others"
    not_higher = (
        "scores of records in training are not higher than those of others; train the shadow models as long as the "
        "target"
    )
    return in_order(
        (
            assumed("enough shadow models", measured.models >= ENOUGH_MODELS, models, more),
            assumed("membership signal", measured.difference > 0, higher, not_higher),
        )
    )


def _what_it_takes(power: PowerResult, wanted_text: str, of: Measured) -> str:
    """The number of records that would change the verdict, or why there is none."""
    measured, size = power.separation, power.given
    detects = f"would detect {wanted_text} use with {POWER:.0%} probability"
    if power.records_needed is None:
        why = f"{MOST_RECORDS:,} query records are not enough"
        if measured.difference <= 0:
            why = "scores do not separate records in training from others"
        # As the number of records grows, only the variance between models remains.
        elif measured.difference < special.ndtri(POWER) * np.sqrt(measured.between):
            why = "between-model variance is too large"
        return f"No sample size detects {wanted_text} use with {POWER:.0%} probability: {why}."
    # Shadow models enter the threshold of the holdout test, and not that of the test of scores.
    models = None if of == "scores" else measured.models
    needed = records_needed(measured, power.fraction, models=models)
    if needed is not None:
        # The two approximations differ by some percent; with this many records both are satisfied.
        return f"{max(needed, power.records_needed):,} query and as many holdout records {detects}."
    # With so few models the variance between models is too uncertain, whatever the number of records.
    if power.records_needed <= min(size.query, size.holdout):
        return f"Train more than {measured.models} shadow models."
    return (
        f"{power.records_needed:,} query and as many holdout records {detects}, with more than {measured.models} "
        "shadow models."
    )
