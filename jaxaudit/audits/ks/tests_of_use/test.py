"""The interface of a test of `ks`: its shadow models, for `train_shadows`, and its judgement, for `judge`.

Unless it is known how much a target memorises, "not used" cannot be told from "used and not memorised". Shadow models
show how much *they* memorise: a limit by them lay below the truth for 44 of 80 targets that remember less than they. So
a fraction, a limit and `forgotten` need known members (`metrics/memory.py`), which assume no network, library or
recipe; or the target's own recipe, the user's word, which its outputs on records that it did not use must bear out, and
which a plan that reduced the recipe takes back. The p-value needs neither.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np
from jaxtyping import Bool, Float

from jaxaudit.audits.finding import Confidence, Finding, Tone, no_confidence, undecided
from jaxaudit.audits.finding import sentence as as_sentence
from jaxaudit.audits.ks.evidence import AskedMask, Evidence, TargetOutputs
from jaxaudit.audits.ks.models import Rows
from jaxaudit.audits.ks.result import Details
from jaxaudit.data.examples import Examples, Role, Sets
from jaxaudit.errors import InputError, check_ranges
from jaxaudit.json_types import Number
from jaxaudit.metrics.arrays import Indices, OneKey
from jaxaudit.metrics.checks import (
    HOLDOUT_LIKE_QUERY,
    HOLDOUT_OUTPUTS,
    OUTPUTS_ON_ONE_SCALE,
    TARGET_OUTPUTS,
    Check,
)
from jaxaudit.metrics.exchangeability import NOT_MEASURED, Alike, alike, holdout_apart, holdout_like_query
from jaxaudit.metrics.scores import cut, profile
from jaxaudit.metrics.shadow import behaves_like
from jaxaudit.metrics.usage import (
    ALPHA,
    STATED_FRACTION,
    WORDING,
    Usage,
    at_most,
    is_share_known,
    without_fraction,
)
from jaxaudit.randomness import stream
from jaxaudit.shadow_models import Kind, Pool

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


Lack = tuple[str, str]
"""One thing that is missing for a verdict: what the user can do about it, a sentence without its full stop; and why no
verdict follows, empty if the verdict's other reasons already say so."""
Trust = tuple[Confidence, frozenset[str]]
"""How far to trust a number, and the names of the checks that this depends on."""


def recipe_of(outputs: TargetOutputs, evidence: Evidence) -> tuple[str, Confidence, tuple[Lack, ...]]:
    """Why the models may not have the target's recipe, else empty; confidence that they have; and what is lacking.
    `limited` checks whether the target's outputs contradict a statement that they have.
    """
    if outputs.trained_here:
        return "", TRUSTED, ()
    why = reduced_words(evidence) if evidence.reduced else ""
    lacks = ((IN_FULL, why),) if why else () if evidence.own_recipe else ((WHAT_HELPS, ""),)
    if not evidence.own_recipe:
        return NOT_KNOWN, NO_FRACTION, lacks
    return why, no_confidence(why) if why else WORD_ALONE, lacks


def limited(
    usage: Usage,
    outputs: TargetOutputs,
    evidence: Evidence,
    kinds: Sequence[str],
    unseen: AskedMask,
) -> tuple[Usage, Confidence, tuple[Lack, ...]]:
    """The numbers of a test of use, limited to what is known of how much the target memorises of records that it used;
    the confidence in the fraction; and what is missing. `kinds` are those of the shadow models that it is compared
    with, `unseen` marks records that it is known not to have used.
    """
    why, trust, lacks = recipe_of(outputs, evidence)
    if why:
        reason = f"no use was detected, and {why}" if trust == NO_FRACTION else why
        return without_fraction(usage, (reason,)), trust, lacks
    if outputs.trained_here or not unseen.any():
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
    return " ".join([*(f"{helps}." for helps, _ in lacks), *([more] if more else [])])


def of_holdout(evidence: Evidence) -> AskedMask:
    """Which of the compared records are in the holdout, which no target used."""
    return np.isin(np.arange(len(evidence.pool.compared)), np.r_[evidence.queries : evidence.dealt_records.stop])


OF_P = frozenset({HOLDOUT_LIKE_QUERY, TARGET_OUTPUTS, HOLDOUT_OUTPUTS, OUTPUTS_ON_ONE_SCALE})
EXACT = Confidence("strong", "The test is exact if the provider sampled query set and holdout alike.")


def checks_of_sets(key: OneKey, evidence: Evidence) -> tuple[Check, Check]:
    """Whether there is evidence that query set and holdout are not exchangeable, as far as it can be measured; and
    whether copies lie in both.
    """

    def measure() -> Alike:
        measured_anew = sets_alike(stream(key, "exchangeability"), evidence, evidence.dealt_records, evidence.queries)
        before = evidence.pool.sampled_alike
        # Labels that were compared when a bank was planned are no classes if records have none.
        labels = measured_anew.labels if before is None or evidence.pool.classless else before.labels
        return measured_anew if before is None else before._replace(difficulty=measured_anew.difficulty, labels=labels)

    alikeness = evidence.once("dealt", measure)
    return holdout_like_query(alikeness), holdout_apart(alikeness)


def sets_alike(
    key: OneKey,
    evidence: Evidence,
    indices: slice | Indices,
    size: int,
    at_hand: Examples | None = None,
) -> Alike:
    """Whether there is evidence that the first `size` of these compared records are not exchangeable with the others;
    `at_hand` has the records with their inputs, if those of the pool have none.
    """
    examples = evidence.pool.examples.take(evidence.pool.compared[indices])
    at_hand = examples if examples.inputs.size else at_hand
    inputs, copies = (at_hand.inputs, at_hand.record_hashes.view("S16")) if at_hand else (None, None)
    outside = next((profile(cut(odds), rows).outside for odds, rows in models_on(evidence, indices)), None)
    alikeness = alike(key, inputs, examples.labels, outside, copies, size, groups=examples.groups)
    return alikeness._replace(labels=NOT_MEASURED) if evidence.pool.classless else alikeness


def models_on(
    evidence: Evidence, indices: slice | Indices
) -> list[tuple[Float[np.ndarray, "models some"], Bool[np.ndarray, "models some"]]]:
    """Log-odds and training sets of the test's models on these records, one pair; or none, as on a bank's members."""
    odds = evidence.log_odds(Kind.MIXED)[:, indices]
    has_odds = len(odds) and not np.isnan(odds[0]).any()
    return [(odds, evidence.members(Kind.MIXED)[:, indices])] if has_odds else []


TONES: dict[str, Tone] = {"forgotten": "good", "not forgotten": "bad", "inconclusive": "open"}
NOT_SAID: Trust = (Confidence("none", "The test does not say."), frozenset())


class Judgement(NamedTuple):
    """The result of one test for one target.

    Attributes:
        test: name of the test. `title`: its name in words.
        finding: the verdict; the audit adds the checks.
        rests_on: names of the checks that it depends on. `weakened_by`: those that only weaken it when they fail.
        checks: the checks that the test itself made.
        details: the numbers of a test of use, or of rho, as the result has them. `numbers`: further ones, by name.
        p, fraction: how far to trust `p_never`, and the fraction with its limits; by default as for the verdict.
        again: gives the finding for other numbers, such as an adjusted p-value, and the checks that it depends on.
    """

    test: str
    title: str
    finding: Finding
    rests_on: frozenset[str]
    checks: tuple[Check, ...] = ()
    details: Details = None
    weakened_by: frozenset[str] = frozenset()
    p: Trust = NOT_SAID
    fraction: Trust = NOT_SAID
    again: Callable[[Usage], tuple[Finding, frozenset[str]]] | None = None
    numbers: Mapping[str, Number] = MappingProxyType({})

    def of(self, usage: Usage) -> "Judgement":
        """The judgement for these numbers of the same target."""
        finding, rests_on = (self.finding, self.rests_on) if self.again is None else self.again(usage)
        return self._replace(finding=finding, rests_on=rests_on, details=usage)


Judgements = tuple[Judgement, ...]
"""On one target, by each test."""
NEEDED = {
    Role.HOLDOUT: "a holdout: records of the query set's provider that no model in question was trained on",
    Role.MEMBERS: "known members: records that the target did use",
}


TrainingSizes = tuple[tuple[int, int], ...]
"""Numbers of models, and of the training records of each."""


@runtime_checkable
class KSTest(Protocol):
    """A test of whether a target used the query set. What inherits from this class needs no models unless it says so.

    Attributes:
        name: letters and hyphens, unique among an audit's tests; it names the test's random streams. `title`: in words.
        assumes: assumptions that no check can test, in a sentence.
        roles: the sets that the test needs beside the query set; a target from a file then has outputs on them, too.
        of_classes: the test compares probabilities of classes, which texts do not have.
        compares_calibration: the test also compares outputs on the calibration set, where targets have them.
        needs_before: the test compares outputs before a deletion with those after it.
        of_guess: models of none of its own `kinds` are trained for the test, as for rho; their masks are drawn before
            those of targets.
        left_out: the models that serve as targets of known truth, when error rates are measured: those that used a
            known share of the query set, those that were dealt query set and holdout at random, or none.
        least: the fields that are numbers of models, one for each of `kinds` in this order, and the fewest models of
            each. Of models that exist already, such as those of a bank, these fields become the numbers there are.

    Options of the command line reach every test that is a dataclass with a field of the name `stated`, `question`,
    `never`, `half` or `fully`; `targets` is the number of targets. A field that is not at its default stays. A test may
    name its papers in `source`, such as `Efron 1979; Holm 1979`, and say in `errors` how often its verdicts are wrong.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    assumes: ClassVar[str]
    roles: ClassVar[frozenset[Role]] = frozenset()
    of_classes: ClassVar[bool] = False
    compares_calibration: ClassVar[bool] = False
    needs_before: ClassVar[bool] = False
    of_guess: ClassVar[bool] = False
    left_out: ClassVar[Literal["by share", "dealt", "none"]] = "by share"
    least: ClassVar[Mapping[str, int]] = MappingProxyType({})

    def training_sizes(self, sizes: Sets[int]) -> TrainingSizes:
        """Numbers of models, and their numbers of training records, for sets of so many records."""
        return ()

    def lighter(self) -> "KSTest":
        """The test with the fewest models that give it a meaning; the same test if it needs all of them."""
        return self

    def refuse(self, sets: Sets[Examples]) -> None:
        """Refuses (`InputError`) sets that the test cannot be made with, such as those without one of its `roles`."""
        check_ranges("(0, 1)", stated=getattr(self, "stated", STATED_FRACTION))
        for role in Role:
            if role in self.roles and role not in sets:
                raise InputError(f"the {self.title} needs {NEEDED.get(role, role.words)} (`{role}`).")

    def refuse_targets(self, targets: int) -> None:
        """Refuses (`InputError`) so many targets that it could find use in none of them, where it is the only test."""

    def refuse_pool(self, pool: Pool) -> None:
        """Refuses (`InputError`) records of all sets together that the test cannot be made with."""

    def kinds(self) -> tuple[str, ...]:
        """Kinds of the models that it uses. A test of your own may name kinds that no other test uses: then its models
        are trained by the audit, and no bank has them.
        """
        return ()

    def draw(self, key: OneKey, pool: Pool) -> Rows:
        """The membership masks of its models, by kind; each mask depends only on the key, its kind and its number.
        Records of a bank have no inputs. Models of rho (`query`, `calibration`, `control`) are trained if `RhoTest` is
        among the tests; other tests may use them without drawing them.
        """
        return {}

    def judge(self, key: OneKey, outputs: TargetOutputs, evidence: Evidence, common: tuple[Check, ...]) -> Judgement:
        """The judgement on one target from the numbers alone.

        The audit adds the checks to the finding, and gives no verdict if a decisive check that it depends on failed.

        Args:
            key: random key of the audit; every test uses the stream of its name.
            outputs: the target's outputs, and the function that rounds other outputs to their resolution.
            evidence: the outputs of the models. `common`: checks that all tests share.
        """
        ...


class Words(NamedTuple):
    """A test's sentences; `{p}`, `{share}`, `{most}`, `{level}` are filled in. `strange`: a caveat of detected use."""

    detected: str = "Use of the query set was detected ({p})."
    share: str = "Estimated used fraction: {share}."
    limit: str = (
        "No use of the query set was detected ({p}). At most {most} of it was used ({level} upper limit); smaller use "
        "is not ruled out."
    )
    undetermined: str = "Whether the query set was used is not determined: {why}."
    none: str = "used none of the query set"
    beyond: str = (
        "The target shows more of the query set than shadow models that used all of it: it was not trained like them, "
        "so the used fraction cannot be read, and its interval means nothing."
    )
    strange: str = ""


USED = Words()


def judgement_of_use(
    test: Any,
    usage: Usage,
    checks: tuple[Check, ...],
    p: Trust,
    fraction: Trust,
    *,
    more: str = "",
    lacks: Sequence[Lack] = (),
    words: Words = USED,
    first: tuple[str, ...] = (),
    last: tuple[str, ...] = (),
) -> Judgement:
    """The judgement that follows from the numbers of a test of use, and from numbers adjusted for several targets.

    Args:
        p: confidence in the p-value, and the checks that a detected use depends on. `fraction`: in the fraction, and
            the checks that any other verdict depends on.
        more: what would change an inconclusive verdict. `lacks`: what prevents one.
        first, last: further caveats.
    """

    def decide(usage: Usage) -> tuple[Finding, frozenset[str]]:
        detected = usage.verdict == "not forgotten"
        reasons = () if usage.verdict == "forgotten" else (reason for _, reason in lacks)
        shown = msgspec.structs.replace(usage, reasons=tuple(dict.fromkeys(filter(None, (*usage.reasons, *reasons)))))
        trust, needs = p if detected else fraction
        finding = of_use(test, shown, more, trust, words)
        strange = (words.strange,) if detected and words.strange else ()
        return msgspec.structs.replace(finding, caveats=(*first, *strange, *finding.caveats, *last)), needs

    return Judgement(test.name, test.title, *decide(usage), checks, usage, p=p, fraction=fraction, again=decide)


def of_use(test: Any, usage: Usage, more: str, trust: Confidence, words: Words = USED) -> Finding:
    """The finding of a test of use, from its numbers."""
    p_unused = p_text(usage.p_never)
    if usage.p_never_adjusted is not None:
        p_unused = f"{p_text(usage.p_never_adjusted)}, adjusted for all targets"
    if usage.verdict == "not forgotten":
        sentence, is_known = words.detected.format(p=p_unused), is_share_known(usage)
        if words.share and is_known:
            share, low, high = map(percent_text, (usage.fraction, usage.fraction_low, usage.fraction_high))
            sentence += " " + words.share.format(share=f"{share} ({low} to {high})")
        reasons = (f"{p_unused} for a target that {words.none}", *usage.reasons)
        beyond = (words.beyond,) if words.beyond and is_known and usage.fraction_low == 1 < usage.fraction else ()
        return Finding(usage.verdict, "bad", sentence, reasons, trust, caveats=(*beyond, test.assumes))
    if usage.verdict == "forgotten":
        most, level = at_most(usage.upper), f"{1 - ALPHA:.0%}"
        least = "none" if usage.detectable is None else percent_text(usage.detectable)
        sentence = words.limit.format(p=p_unused, most=most, level=level)
        fraction = WORDING[usage.question].fraction
        reason = f"{p_unused}; {level} upper limit of the {fraction} {most}; minimum detectable fraction {least}"
        return Finding(usage.verdict, "good", sentence, (reason,), trust, caveats=(test.assumes,))
    reasons = usage.reasons or ("the test supports neither verdict",)
    sentence = words.undetermined.format(why="; ".join(reasons))
    return undecided(sentence, reasons, as_sentence("; ".join(reasons)), (test.assumes,), (more,))


def percent_text(fraction: float, digits: int = 1) -> str:
    """A fraction as text: below 10% with so many decimals; outside 0% to 100%, where intervals are cut, no number.

    >>> percent_text(0.0312), percent_text(0.0312, 0), percent_text(0.5), percent_text(-1.07), percent_text(1.2)
    ('3.1%', '3%', '50%', '<0%', '>100%')
    """
    if not 0 <= round(100 * fraction) <= 100:
        return "<0%" if fraction < 0 else ">100%"
    return f"{100 * fraction:.{digits if 0 < fraction < 0.1 else 0}f}%".removeprefix("-")


def p_text(value: float) -> str:
    """A p-value as text.

    >>> p_text(0.0005), p_text(0.0312), p_text(1.0)
    ('p < 0.001', 'p = 0.031', 'p = 1')
    """
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"
