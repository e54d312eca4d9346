"""Is it known how much a target remembers? Without it, "not used" cannot be told from "used and not remembered".

Shadow models show how much *they* remember. That says something of a target if it was trained like them: by this audit,
or by the same recipe as they, which is the user's word, and which its outputs on records that it did not use must bear
out. Known members (`jaxaudit.audits.ks.tests.members`) need neither.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from jaxaudit.audits.finding import Confidence
from jaxaudit.audits.ks.evidence import Evidence, TargetOutputs
from jaxaudit.metrics.resemblance import behaves_like
from jaxaudit.metrics.usage import Usage, without_fraction

NOT_KNOWN = "how much this model remembers of what it used is not known"
TRUSTED = Confidence("fair", "It was trained by this audit, like the shadow models.")
STATED = Confidence("fair", "It rests on the word that the shadow models have the target's own recipe.")
WORD_ALONE = Confidence(
    "weak",
    "It rests on the word alone that the shadow models have the target's own recipe: no outputs on records that the "
    "target did not use were compared.",
)
NO_FRACTION = Confidence("none", "How much this model remembers of what it used is not known.")
WHAT_HELPS = (
    "Give its outputs on records that it did use. Or train shadow models by its own recipe (its own code, or a bank by "
    "your own script; if its own recipe is a built-in one, say so)"
)

IN_FULL = (
    "Train shadow models by its own recipe and in full, without a budget. Or give its outputs on records that it did "
    "use"
)


class Lack(NamedTuple):
    """What keeps a verdict from being reached.

    Attributes:
        helps: what to do about it, in sentences without the last full stop.
        reason: of the verdict, in words; empty where the numbers say it themselves.
    """

    helps: str
    reason: str = ""


class Limited(NamedTuple):
    """What of a test's numbers is known.

    Attributes:
        usage: the numbers, without the fraction where nobody knows how much the target remembers.
        trust: confidence in the fraction.
        lacks: why there is none.
    """

    usage: Usage
    trust: Confidence
    lacks: tuple[Lack, ...] = ()


def recipe_unknown(said: TargetOutputs, evidence: Evidence) -> tuple[str, Confidence]:
    """Why nobody knows that the models have the target's recipe, empty where it is said; and confidence that they do.

    The target's outputs may still contradict the word: `limited` asks them.
    """
    if said.trained_here:
        return "", TRUSTED
    if not evidence.own_recipe:
        return NOT_KNOWN, NO_FRACTION
    if evidence.reduced:
        why = reduced_words(evidence)
        return why, none_because(why)
    return "", WORD_ALONE


def limited(
    usage: Usage,
    said: TargetOutputs,
    evidence: Evidence,
    kinds: Sequence[str],
    unseen: Bool[np.ndarray, " asked"] | None,
) -> Limited:
    """The numbers without the fraction, where nobody knows how much the target remembers.

    Args:
        usage: what the test measured beside shadow models.
        said: the target's outputs.
        evidence: what all models say.
        kinds: of the shadow models.
        unseen: which of the records the target did not use; None where none is known.
    """
    why, trust = recipe_unknown(said, evidence)
    lacks = () if said.trained_here else lacks_of(evidence)
    if trust == NO_FRACTION:
        return Limited(without_fraction(usage, (f"no use was detected, and {why}",)), trust, lacks)
    if why:
        return Limited(without_fraction(usage, (why,)), trust, lacks)
    if said.trained_here or unseen is None:
        return Limited(usage, trust)
    # A bank has no outputs on known members, which are last.
    there = slice(0, int((~np.isnan(evidence.log_odds(*kinds)[0])).sum()))
    others = said.at_resolution(evidence.log_odds(*kinds)[:, there])
    apart = behaves_like(said.log_odds, others, evidence.members(*kinds)[:, there], unseen)
    if apart:
        why = f"the target does not behave like the shadow models on records that it did not use: {'; '.join(apart)}"
        return Limited(without_fraction(usage, (why,)), none_because(why))
    return Limited(usage, STATED)


def lacks_of(evidence: Evidence) -> tuple[Lack, ...]:
    """What keeps shadow models from telling how much a target of a file remembers: their recipe is not its own."""
    if evidence.reduced:
        return (Lack(IN_FULL, reduced_words(evidence)),)
    return () if evidence.own_recipe else (Lack(WHAT_HELPS),)


def reduced_words(evidence: Evidence) -> str:
    """How a plan made the shadow models others than those that were asked for."""
    return f"the shadow models are not those that were asked for, to fit the time: {'; '.join(evidence.reduced)}"


def with_reasons(usage: Usage, lacks: Sequence[Lack]) -> Usage:
    """The numbers with what is lacking among the reasons of their verdict, for a finding; `forgotten` lacks nothing."""
    if usage.verdict == "forgotten":
        return usage
    more = (lack.reason for lack in lacks if lack.reason and lack.reason not in usage.reasons)
    return usage._replace(reasons=(*usage.reasons, *more))


def helped(lacks: Sequence[Lack], more: str) -> str:
    """What to do about what is lacking, before other advice."""
    return " ".join([*(f"{lack.helps}." for lack in lacks), *([more] if more else [])])


def known_unused(said: TargetOutputs, evidence: Evidence) -> Bool[np.ndarray, " asked"] | None:
    """Which records the target did not use: those of the reference, else of the holdout; None without either.

    Not both: shadow models know the calibration set and no holdout, and a mixture would be compared with another one.
    """
    if said.unseen is not None:
        return said.unseen
    holdout = of_holdout(evidence)
    return holdout if holdout.any() else None


def of_holdout(evidence: Evidence) -> Bool[np.ndarray, " asked"]:
    """Which of the records asked about are the holdout's: no target used one."""
    places = np.arange(len(evidence.pool.asked))
    return (places >= evidence.queries) & (places < evidence.dealt.stop)


def none_because(why: str) -> Confidence:
    """No confidence, for this reason."""
    return Confidence("none", f"{why[:1].upper()}{why[1:]}.")
