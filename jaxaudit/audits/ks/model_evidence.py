"""What a target's scores show, and how far models of known truth may say what share of the query set was used.

Such models say it of a target that was trained like them. Data show that where there are a holdout and three of these
models; elsewhere the user may state it.
"""

from typing import NamedTuple

from jaxaudit.audits.finding import Confidence, no_confidence
from jaxaudit.audits.ks.tests_of_use.memory import NO_FRACTION, NOT_KNOWN
from jaxaudit.audits.ks.tests_of_use.test import USED, Words, p_text
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.effect import ALPHA, UNKNOWN, Limits
from jaxaudit.metrics.score_permutation import ShareLeft
from jaxaudit.metrics.usage import Question

NO_EFFECT = "models that used the query set hardly differ from models that did not"
LEFT_OF_USE = Words(
    "The model shows the effect of the query set ({p}).",
    "Of the effect that use has on models of known truth, {share} is left.",
    "No effect of the query set was detected ({p}). Of the effect that use has on models of known truth, at most "
    "{most} is left ({level} upper limit); less is not ruled out.",
    "How much effect of the query set is left is not determined: {why}.",
    "was trained without the query set",
    USED.beyond,
)
ONE_MODEL = (
    "There is one model of known truth of a kind ({kinds}): a model of another seed has other scores, and the interval "
    "does not know by how much."
)
WORD = "It rests on the word alone that the target was trained like the models of known truth."
ALIKE = "On the holdout, the target does not differ from the models of known truth more than they do from one another."
NOT_ALIKE = (
    "on the holdout, which nobody used, the target differs from the models of known truth more than they do from one "
    "another ({p} if all had one recipe), so what these remember says nothing of the target"
)
NOTHING_SHOWS = "nothing shows that the target was trained like the models of known truth"
SHOW = (
    "Give a holdout and three or more models of known truth, which show it; or a holdout and known members (set "
    "`members`), which need none. If the target was trained like these models but for the query set, say so "
    "(`same_recipe`)."
)
OWN_MODELS = (
    "Give records that the target did use (set `members`) beside the holdout, or models of known truth that were "
    "trained like the target."
)
OTHER_RECIPE = (
    "Models of known truth must be trained like the target. Beside models of another recipe limits were too low, where "
    "the comparison on the holdout missed it, too; records that the target did use (set `members`) need no such models."
)
"""Measured on fine-tunes by adapters of other rank and length (`experiments/score_rates_adapters.py`)."""


class ScoreEvidence(NamedTuple):
    """What a target's scores show.

    Attributes:
        p_never: p-value of "never used"; None if nothing tells. `p_trust`: how far to trust it.
        p_smaller: p-value of a query set that looks less used than the holdout, or than by models that never used it.
        limits: see `Usage`. `why`: why they are unknown, else empty. `trust`: how far to trust them.
        invalid: reasons why no verdict can be given. `unshown`: the same, where only the user's statement is missing.
        caveats: what a reader must know first. `strange`: of a detected use that the members contradict.
        by_members: whether the limits are by known members.
        helps: what leads to a verdict, where that is known.
        checks: of what the limits rest on.
    """

    p_never: float | None
    p_trust: Confidence
    p_smaller: float = 1.0
    p_fully: float | None = None
    limits: Limits = UNKNOWN
    why: str = NOT_KNOWN
    trust: Confidence = NO_FRACTION
    words: Words = USED
    invalid: tuple[str, ...] = ()
    unshown: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    strange: tuple[str, ...] = ()
    by_members: bool = False
    helps: str = ""
    checks: tuple[Check, ...] = ()


def _counted(models: int) -> str:
    return f"{models} model{'' if models == 1 else 's'}"


def of_models(evidence: ScoreEvidence, share: ShareLeft, unused: int, used: int, question: Question) -> ScoreEvidence:
    counted = {"without the query set": unused, "with it": used}
    single = [kind for kind, count in counted.items() if count == 1]
    low = f"{_counted(unused)} without the query set" if unused else "the holdout"
    is_known = share.p_used is not None
    of_recipe = question == "used"
    trust = Confidence(
        "weak" if single or of_recipe else "fair",
        f"{f'{WORD} ' if of_recipe else ''}It is measured between {low} and {_counted(used)} that used the query set, "
        f"which are {share.effect:.1f} standard errors apart.",
    )
    # What is left after unlearning is a share of the effect on these models, whatever the target's recipe was.
    caveats = (
        *((ONE_MODEL.format(kinds=" and ".join(single)),) if single else ()),
        *((OTHER_RECIPE,) if is_known and of_recipe else ()),
        *evidence.caveats,
    )
    return evidence._replace(
        p_fully=share.p_used,
        limits=share.limits,
        why="" if is_known else NO_EFFECT,
        trust=trust if is_known else no_confidence(NO_EFFECT),
        words=LEFT_OF_USE if question == "left" else USED,
        caveats=caveats,
    )


def of_recipe(
    evidence: ScoreEvidence, without_models: ScoreEvidence, p_alike: float | None, is_stated: bool
) -> ScoreEvidence:
    """The evidence of models of known truth, as far as data or a statement show that the target was trained like them.

    What the data contradict, no statement upholds. `p_alike` is that of `recipe_evidence`.
    """
    if evidence.why:
        return evidence
    if not (why := unlike_recipe(p_alike, is_stated)):
        basis = WORD if p_alike is None else ALIKE
        return evidence._replace(trust=Confidence(evidence.trust.word, evidence.trust.why.replace(WORD, basis)))
    helps = SHOW if p_alike is None else OWN_MODELS
    return without_models._replace(why=why, trust=no_confidence(why), helps=helps)


def unlike_recipe(p_alike: float | None, is_stated: bool) -> str:
    """Why models of known truth tell no share of a target's; empty if data show its recipe, or a statement has to."""
    if p_alike is None:
        return "" if is_stated else NOTHING_SHOWS
    return "" if p_alike > ALPHA else NOT_ALIKE.format(p=p_text(p_alike))
