"""The verdict of the `power` audit: do the given records suffice to detect the requested fraction?"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy import special

from jaxaudit.audits.finding import Checked, Confidence, Finding, in_order
from jaxaudit.audits.power.result import Conclusion, PowerResult
from jaxaudit.metrics.effect import ALPHA, POWER
from jaxaudit.metrics.members import LEAST_MEMBERS
from jaxaudit.metrics.power import MOST_RECORDS, Separation, records_needed

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
    "The target must have a design like one of the shadow models', about as many training records, and other data like "
    "the calibration set. A target that was also trained on other records of the query set's provider shows less.",
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


def power_finding(power: PowerResult, of: Measured, reduced: Sequence[str] = ()) -> Finding:
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
    sentence += forgotten_in_words(power.concluded, of)
    reasons = (
        f"mean score of records in training less that of others: {measured.difference:.3g}, over {models} {MODELS[of]}",
        f"its standard deviation between models: {np.sqrt(measured.between):.3g}",
        f"a target with data of its own: {measured.stretch:.2f} times as far from the shadow models' mean as they are",
    )[: 3 if of == "training" else 2]
    few = models < ENOUGH_MODELS
    caveats = {"training": (), "bank": (BANKED,), "scores": (OF_SCORES,)}[of] + CAVEATS[of == "scores" :]
    caveats += (MEMORY,) if power.concluded else ()
    if reduced:
        caveats = (LESS.format(reduced="; ".join(reduced)), *caveats)
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


def forgotten_in_words(concluded: tuple[Conclusion, ...], of: Measured) -> str:
    """A sentence on whether a target that used nothing would be called `forgotten`; empty without conclusions."""
    by = "members" if of == "scores" else "members and shadow models"
    conclusion = next(
        (conclusion for conclusion in concluded if conclusion.by == by and conclusion.remembers == 1), None
    )
    if conclusion is None:
        return ""
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
    models, higher = measured.models, measured.difference > 0
    enough = models >= ENOUGH_MODELS
    return in_order(
        (
            Checked(
                "enough shadow models",
                "passed" if enough else "warning",
                f"{models} {noun}" + ("" if enough else f"; {ENOUGH_MODELS} or more know their variance better"),
            ),
            Checked(
                "membership signal",
                "passed" if higher else "warning",
                "scores of records in training are higher than those of others"
                if higher
                else "scores of records in training are not higher than those of others; train the shadow "
                "models as long as the target",
            ),
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
