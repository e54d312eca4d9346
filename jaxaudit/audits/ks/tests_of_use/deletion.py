"""The deletion test as a test of `ks`: see `jaxaudit.metrics.memory`."""

from dataclasses import dataclass

from jaxaudit.audits.finding import Confidence
from jaxaudit.audits.ks.evidence import Evidence, TargetOutputs
from jaxaudit.audits.ks.taught import predictors_of, taught_by_records
from jaxaudit.audits.ks.tests_of_use.test import OF_P, USED, Judgement, KSTest, Words, checks_of_sets, judgement_of_use
from jaxaudit.data.examples import Role
from jaxaudit.data.outputs.checks import UNCHANGED, of_one_model
from jaxaudit.metrics.arrays import OneKey
from jaxaudit.metrics.checks import BEFORE_ON_HOLDOUT, BEFORE_OUTPUTS, HOLDOUT_APART, Check
from jaxaudit.metrics.memory import deletion_test
from jaxaudit.metrics.permutation import least_permutations
from jaxaudit.metrics.usage import ALPHA, STATED_FRACTION, Question
from jaxaudit.randomness import stream

BEYOND = (
    "The model after the deletion shows more of the query set than the model before it: the two cannot be compared, so "
    "the fraction cannot be read."
)
OF_USE = USED._replace(beyond=BEYOND)
LEFT = Words(
    "The model remembers the query set ({p}).",
    "Of the memory of the query set that the model had before the deletion, {share} is left.",
    "No memory of the query set was detected ({p}). Of the memory that the model had before the deletion, at most "
    "{most} is left ({level} upper limit); a smaller remainder is not ruled out.",
    "How much memory of the query set is left is not determined: {why}.",
    "remembers none of the query set",
    BEYOND,
)
FAINT = Confidence("none", "The model before the deletion shows no memory of the query set.")
EXCHANGED = (
    "The model before the deletion shows no memory of the query set: are the outputs before and after exchanged?"
)
OF_LATER = Confidence(
    "fair",
    "The p-value is exact if query set and holdout were drawn at random from one source. Of later records it rests on "
    "their being like those of the query set.",
)


@dataclass(frozen=True, kw_only=True)
class DeletionTest(KSTest):
    """How much of the memory of the query set is left, of what the model had before the deletion?

    The test needs the outputs of both models on the query set and on a holdout, and neither shadow models nor members.

    Attributes:
        stated: `forgotten` requires an upper limit of at most this.
        question: `left`: how much memory is left, whatever was done to the model. `used`: how much of the query set the
            model after the deletion used, if that was trained anew. The numbers are the same.
    """

    stated: float = STATED_FRACTION
    question: Question = "left"
    name = "deletion"
    title = "deletion test"
    source = "Fieller 1954"
    errors = (
        "A model that used none of the query set is called not forgotten in at most 5% of deals of the same records "
        "into query set and holdout, whatever the model is. One that remembers more than the stated share of what the "
        "model before the deletion did is called forgotten in at most 5%, if using a record has the same effect on "
        "both models; and so is one whose answers are those before, changed by one rule of the answer for all records."
    )
    assumes = (
        "Deletion test: the fraction is how much of the memory of the query set is left that the model had before the "
        "deletion. That assumes that the outputs before are of the model that used the query set, that neither model "
        "used the holdout, that holdout records are like the query set's, that using a record has the same effect on "
        "both models, and that both answer in the same way, without noise. A model that was trained anew on fewer "
        "records remembers each of them a little more: then the fraction and both ends of its interval tend to be too "
        "high, and the upper limit is safe."
    )

    roles = frozenset({Role.HOLDOUT})
    needs_before = True
    left_out = "none"

    def judge(self, key: OneKey, outputs: TargetOutputs, evidence: Evidence, common: tuple[Check, ...]) -> Judgement:
        pool, dealt_records, before = evidence.pool, evidence.dealt_records, outputs.before
        assert before is not None  # `refuse` of the audit has seen to it
        predictors = predictors_of(key, evidence, dealt_records)
        # Both at the coarser resolution.
        odds_before, at_resolution = before
        odds_after = at_resolution(outputs.log_odds[None])[0, dealt_records]
        odds_before = outputs.at_resolution(odds_before[None])[0]
        answer = deletion_test(
            stream(key, "deletion test"),
            odds_after,
            odds_before,
            evidence.queries,
            predictors,
            labels=None if pool.classless else pool.examples.labels[pool.compared[dealt_records]],
            groups=pool.groups,
            stated=self.stated,
            permutations=least_permutations(evidence.targets),
            question=self.question,
        )
        words = LEFT if self.question == "left" else OF_USE
        if of_one_model(odds_before, odds_after):
            # Its share is all, which says nothing of a deletion.
            detected, undetermined = (f"{UNCHANGED.says} {of}" for of in (words.detected, words.undetermined))
            words = Words(detected, "", UNCHANGED.says, undetermined, words.none, "")
        remembers = answer.p_memory <= ALPHA
        if not remembers:
            words = words._replace(detected=f"{words.detected} {EXCHANGED}")
        trust = Confidence(
            "fair",
            "It rests on the word that the outputs before the deletion are of the model that used the query set. That "
            f"model remembers it: query set and holdout are {answer.memory:.1f} standard errors apart.",
        )
        return judgement_of_use(
            self,
            answer.usage,
            checks_of_sets(key, evidence),
            (OF_LATER, OF_P),
            (trust if remembers else FAINT, OF_P | {HOLDOUT_APART, BEFORE_OUTPUTS, BEFORE_ON_HOLDOUT}),
            more="Give outputs on more records that neither model used."
            if remembers
            else "Request outputs that tell more, of both models: logits, or every decimal.",
            words=words,
            last=taught_by_records(key, evidence).caveats,
        )


TEST = DeletionTest
