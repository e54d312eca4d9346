"""The members test as a test of `ks`: see `jaxaudit.metrics.memory`."""

from dataclasses import dataclass

import numpy as np

from jaxaudit.audits.finding import Confidence
from jaxaudit.audits.ks.evidence import Evidence, TargetOutputs
from jaxaudit.audits.ks.taught import predictors_of, taught_by_records
from jaxaudit.audits.ks.tests_of_use.test import (
    EXACT,
    OF_P,
    USED,
    Judgement,
    KSTest,
    Words,
    checks_of_sets,
    judgement_of_use,
    models_on,
    sets_alike,
)
from jaxaudit.data.examples import Role
from jaxaudit.errors import InputError
from jaxaudit.metrics.arrays import OneKey
from jaxaudit.metrics.checks import HOLDOUT_APART, MEMBERS_LIKE_QUERY, MEMBERS_OUTPUTS, Check
from jaxaudit.metrics.difficulty import residual_scores, residual_scores_of_models
from jaxaudit.metrics.exchangeability import holdout_like_query
from jaxaudit.metrics.memory import LEAST_MEMBERS, members_test
from jaxaudit.metrics.permutation import least_permutations
from jaxaudit.metrics.scores import cut, profile
from jaxaudit.metrics.usage import ALPHA, STATED_FRACTION, Question
from jaxaudit.randomness import stream
from jaxaudit.shadow_models import Pool

NEEDS = OF_P | {HOLDOUT_APART, MEMBERS_LIKE_QUERY, MEMBERS_OUTPUTS}
BEYOND = (
    "The target remembers the query set more than its known members: the two were not used alike, or their outputs are "
    "of two models or on two scales, so the fraction cannot be read."
)
OF_USE = USED._replace(beyond=BEYOND)
LEFT = Words(
    "The model remembers the query set ({p}).",
    "Of the memory that it has of the known members, {share} is left of the query set.",
    "No memory of the query set was detected ({p}). Of the memory that the model has of the known members, at most "
    "{most} is left of the query set ({level} upper limit); a smaller remainder is not ruled out.",
    "How much memory of the query set is left is not determined: {why}.",
    "remembers none of the query set",
    "The target remembers the query set more than its known members: the memory of the two faded differently, so the "
    "fraction cannot be read.",
)
FAINT = Confidence("none", "This model shows no memory of records that it did use.")
STRANGE = {
    "used": "The query set looks used, and the known members do not: their outputs may be of another model, or they "
    "were not used.",
    "left": "The query set is remembered, and the known members are not: their outputs may be of another model, or "
    "they were not used.",
}
ASSUMES = {
    "used": "Members test: 100% is what the model remembers of the known members. The number is the share that was "
    "used if all three sets were sampled alike, query records were used like the members, at the same time, and one "
    "model gave all outputs. Of a model that was trained on after the use, such as an unlearned one, it is what is "
    "left: then ask what is left.",
    "left": "Members test: 100% is what the model remembers of the known members. The number is the memory that is "
    "left if all three sets were sampled alike, query records had been used like the members, and one model gave all "
    "outputs.",
}


@dataclass(frozen=True, kw_only=True)
class MembersTest(KSTest):
    """How much of its memory of known members does the target have of the query set?

    The test needs the target's outputs on known members and on a holdout, and no shadow models. With shadow models of
    the holdout test, it uses the p-value of that test, and corrects for the difficulty of each record that they show.

    Attributes:
        stated: `forgotten` requires an upper limit of at most this.
        question: `used`: how much of the query set was used, when the members were used. `left`: how much the target
            still remembers of it after unlearning. The numbers are the same.
    """

    stated: float = STATED_FRACTION
    question: Question = "used"
    name = "members"
    title = "members test"
    source = "Fieller 1954; Carlini et al. 2022; Schilling 1986; Henze 1988"
    errors = (
        "A target that used none of the query set is called not forgotten in at most 5% of random deals, whatever the "
        "model is. One that used more than the stated share, as it used the known members, is called forgotten in at "
        "most 5%, whatever the model is."
    )
    roles = frozenset({Role.HOLDOUT, Role.MEMBERS})
    left_out = "none"

    @property
    def assumes(self) -> str:
        return ASSUMES[self.question]

    def refuse_pool(self, pool: Pool) -> None:
        members = pool.members.stop - pool.members.start
        if members < LEAST_MEMBERS:
            raise InputError(
                f"there are {members} known members; the members test needs at least {LEAST_MEMBERS} to tell what the "
                "target remembers (`members`)."
            )

    def judge(self, key: OneKey, outputs: TargetOutputs, evidence: Evidence, common: tuple[Check, ...]) -> Judgement:
        pool, member_records, dealt_records = evidence.pool, evidence.known_members, evidence.dealt_records
        members, indices = member_records.stop - member_records.start, np.r_[dealt_records, member_records]
        predictors, target_odds = predictors_of(key, evidence, indices), outputs.log_odds[indices]
        scores = residual_scores(target_odds, predictors)
        for odds, rows in models_on(evidence, indices):
            by_models = profile(cut(outputs.at_resolution(odds)), rows)
            scores = residual_scores_of_models(target_odds[None], [by_models], predictors)[0]
        answer = members_test(
            stream(key, "members test"),
            scores,
            (evidence.queries, dealt_records.stop - evidence.queries, members),
            groups=evidence.groups(indices),
            stated=self.stated,
            permutations=least_permutations(evidence.targets),
            question=self.question,
        )
        arguments = (
            stream(key, "members alike"),
            evidence,
            np.r_[member_records, dealt_records],
            members,
            pool.at_hand,
        )
        members_alike = holdout_like_query(
            evidence.once("members", lambda: sets_alike(*arguments)),
            name=MEMBERS_LIKE_QUERY,
            sets="known members and the other two sets",
        )
        remembers = answer.p_memory <= ALPHA
        return judgement_of_use(
            self,
            answer.usage,
            (*checks_of_sets(key, evidence), members_alike),
            (EXACT, OF_P),
            (measured_by(answer.memory) if remembers else FAINT, NEEDS),
            more="Give outputs on more records, of the holdout and the known members above all."
            if remembers
            else "Request outputs that tell more: logits, or every decimal; or outputs on more known members.",
            words=words_of(self.question, remembers),
            last=taught_by_records(key, evidence).caveats,
        )


TEST = MembersTest


def words_of(question: Question, remembers: bool) -> Words:
    """The sentences of a finding by known members, whose memory the target may show or not."""
    words = LEFT if question == "left" else OF_USE
    return words if remembers else words._replace(strange=STRANGE[question])


def measured_by(memory: float) -> Confidence:
    return Confidence(
        "fair",
        "The share is measured by what this model remembers of records that it did use: members and holdout are "
        f"{memory:.1f} standard errors apart.",
    )
