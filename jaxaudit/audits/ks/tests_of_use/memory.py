"""Is it known how much a target memorises? If not, "not used" cannot be told from "used and not memorised".

Shadow models show how much *they* memorise. This holds for a target only if it was trained like them: by this audit, or
by the same recipe, which the user states and the target's outputs on records that it did not use must not contradict.

What a target remembers is measured, or not known. A query set and a holdout show that a target remembers, never that it
did not use. The limit once divided what the target shows by what the *shadow models* remember, and lay below the truth
for 44 of 80 targets that remember less than they. So a fraction, a limit and `forgotten` need one of two things. Known
members (`metrics/memory.py`): the ratio of two differences of means, of the query set and of the members against one
holdout, with Fieller's limits. It holds for any score that is blind to the sets, since a set of which a share was used
is a mixture of the other two; so it assumes no network, library or recipe, and needs no shadow model. Or the target's
own recipe: the user's word, which the target's outputs on records that it did not use must bear out, and which a plan
that reduced the recipe takes back. A third way, shadow models of recipes down to one that hardly remembers, is honest
and concludes nothing (0 of 20 targets that never used the set); it is not built. The p-value needs none of this.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from jaxaudit.audits.finding import Confidence, no_confidence
from jaxaudit.audits.ks.evidence import Evidence, TargetOutputs
from jaxaudit.metrics.shadow import behaves_like
from jaxaudit.metrics.usage import Usage, without_fraction

NOT_KNOWN = "how much this model remembers of what it used is not known"
TRUSTED = Confidence("fair", "It was trained by this audit, like the shadow models.")
STATED = Confidence("fair", "It rests on the word that the shadow models have the target's own recipe.")
WORD_ALONE = Confidence(
    "weak",
    "It rests on the word alone that the shadow models have the target's own recipe: no outputs on records that the "
    "target did not use were compared.",
)
NO_FRACTION = no_confidence(NOT_KNOWN)
WHAT_HELPS = (
    "Give its outputs on records that it did use. Or train shadow models by its own recipe (its own code, or a bank by "
    "your own script; if its own recipe is a built-in one, say so)"
)

IN_FULL = (
    "Train shadow models by its own recipe and in full, at full effort. Or give its outputs on records that it did use"
)


class Lack(NamedTuple):
    """One thing that is missing for a verdict.

    Attributes:
        helps: what the user can do about it, a sentence without its full stop.
        reason: why no verdict follows; empty if the verdict's other reasons already say so.
    """

    helps: str
    reason: str = ""


def recipe_of(outputs: TargetOutputs, evidence: Evidence) -> tuple[str, Confidence, tuple[Lack, ...]]:
    """Why the models may not have the target's recipe, else empty; confidence that they have; and what is lacking.

    The target's outputs may still contradict a statement that they have; `limited` checks them.
    """
    if outputs.trained_here:
        return "", TRUSTED, ()
    why = reduced_words(evidence) if evidence.reduced else ""
    lacks = (Lack(IN_FULL, why),) if why else () if evidence.own_recipe else (Lack(WHAT_HELPS),)
    if not evidence.own_recipe:
        return NOT_KNOWN, NO_FRACTION, lacks
    return why, no_confidence(why) if why else WORD_ALONE, lacks


def limited(
    usage: Usage,
    outputs: TargetOutputs,
    evidence: Evidence,
    kinds: Sequence[str],
    unseen: Bool[np.ndarray, " asked"] | None,
) -> tuple[Usage, Confidence, tuple[Lack, ...]]:
    """The numbers of a test of use, limited to what is known of how much the target memorises of records that it used.

    Args:
        usage: the numbers as the test gives them.
        outputs, evidence: the target's outputs, and the shadow models.
        kinds: the kinds of shadow models that the target is compared with.
        unseen: marks the compared records that the target is known not to have used; None if none are known.

    Returns:
        The numbers, without a fraction if memory is unknown; the confidence in the fraction; and what is missing.
    """
    why, trust, lacks = recipe_of(outputs, evidence)
    if why:
        reason = f"no use was detected, and {why}" if trust == NO_FRACTION else why
        return without_fraction(usage, (reason,)), trust, lacks
    if outputs.trained_here or unseen is None:
        return usage, trust, ()
    # Models of a bank have no outputs on known members, which come last.
    stored = slice(0, int((~np.isnan(evidence.log_odds(*kinds)[0])).sum()))
    shadow_odds = outputs.at_resolution(evidence.log_odds(*kinds)[:, stored])
    apart = behaves_like(outputs.log_odds, shadow_odds, evidence.members(*kinds)[:, stored], unseen)
    if apart:
        why = f"the target does not behave like the shadow models on records that it did not use: {'; '.join(apart)}"
        return without_fraction(usage, (why,)), no_confidence(why), ()
    return usage, STATED, ()


def reduced_words(evidence: Evidence) -> str:
    """How the shadow models differ from those that were requested, to fit the effort."""
    return f"the shadow models are not those that were asked for, to fit the effort: {'; '.join(evidence.reduced)}"


def helped(lacks: Sequence[Lack], more: str) -> str:
    """What to do about what is lacking, followed by other advice."""
    return " ".join([*(f"{lack.helps}." for lack in lacks), *([more] if more else [])])


def known_unused(outputs: TargetOutputs, evidence: Evidence) -> Bool[np.ndarray, " asked"] | None:
    """Known non-members of the target: of the calibration set, or else the holdout; None without either.

    Never both: the shadow models were trained on part of the calibration set and on no holdout record.
    """
    if outputs.unseen is not None:
        return outputs.unseen
    holdout = of_holdout(evidence)
    return holdout if holdout.any() else None


def of_holdout(evidence: Evidence) -> Bool[np.ndarray, " asked"]:
    """Which of the compared records are in the holdout, which no target used."""
    return np.isin(np.arange(len(evidence.pool.compared)), np.r_[evidence.queries : evidence.dealt_records.stop])
