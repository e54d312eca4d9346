"""What a test of `ks` is, so that `audit_ks` makes anybody's: which models it wants, and how it judges a target.

Every test is a file of this folder with the same storeys: its numbers of models, what it is called and assumes, what
it refuses, what it draws, how it judges.
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.finding import Confidence, Finding, Tone
from jaxaudit.audits.ks.evidence import Evidence, Said
from jaxaudit.audits.ks.models import Roles
from jaxaudit.audits.pool import Pool
from jaxaudit.data.examples import Examples
from jaxaudit.metrics.checks import TARGET_OUTPUTS, Check
from jaxaudit.metrics.ema import EMA
from jaxaudit.metrics.ks import Rho, Verdict
from jaxaudit.metrics.usage import Share, Usage, used_share

TONES: dict[Verdict, Tone] = {"forgotten": "good", "not forgotten": "bad", "inconclusive": "open"}


class Judgement(NamedTuple):
    """What one test says of one target.

    Attributes:
        test: its name; `title` in words.
        finding: the verdict; the audit adds the checks.
        rests_on: names of the checks that this verdict rests on.
        checks: those that the test itself made.
        usage: of a test of use, its numbers.
        ema: of EMA, one answer a replicate.
        rho: of rho, the ratio; `controls` that of models trained on both sets.
    """

    test: str
    title: str
    finding: Finding
    rests_on: frozenset[str]
    checks: tuple[Check, ...] = ()
    usage: Usage | None = None
    ema: tuple[EMA, ...] = ()
    rho: Rho | None = None
    controls: tuple[Rho, ...] = ()


@runtime_checkable
class KSTest(Protocol):
    """A test of whether a target used the query set.

    Attributes:
        name: letters and hyphens; names its random streams.
        title: in words.
        assumes: what no check can see, a sentence.
        references: shadow models whose spread a p-value rests on; 0 where there is none.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    assumes: ClassVar[str]

    @property
    def references(self) -> int: ...

    def training_sizes(self, query: int, calibration: int) -> tuple[tuple[int, int], ...]:
        """How many models it wants, and on how many records each is trained, for sets of these sizes."""
        ...

    def lighter(self) -> "KSTest":
        """The same test with the fewest models that it can do with."""
        ...

    def refuse(self, query: Examples, holdout: Examples | None) -> None:
        """Nothing where the test can be made.

        Raises:
            InputError: where it cannot.
        """
        ...

    def draw(self, key: Key[Array, ""], pool: Pool) -> Roles:
        """The training set of every model it wants, by role; each drawn by its role, its number and the key alone."""
        ...

    def judge(
        self, key: Key[Array, ""], said: Said, evidence: Evidence, common: tuple[Check, ...], level: float
    ) -> Judgement:
        """What it says of one target.

        Args:
            key: random key of the audit: tests take streams by their names.
            said: the target's outputs, and how others are brought to their resolution.
            evidence: what the models say.
            common: checks that all tests share.
            level: confidence level of intervals.
        """
        ...


def failed(checks: Sequence[Check], rests_on: frozenset[str]) -> Check | None:
    """The first decisive check that failed, of those that a verdict rests on."""
    return next((each for each in checks if each.decisive and not each.passed and each.name in rests_on), None)


def undecided(check: Check, assumes: str) -> Finding:
    """The finding where a check took the verdict away."""
    reason = f"{check.name}: {check.message}"
    return Finding(
        "inconclusive",
        "open",
        f"The check {check.name} failed, and the verdict would rest on it.",
        (reason,),
        Confidence("none", f"{_sentence(reason)}"),
        caveats=(assumes,),
        would_change=(f"Mend what the check {check.name} found, and repeat the audit.",),
    )


def of_use(
    test: KSTest, usage: Usage, needs: frozenset[str], checks: tuple[Check, ...], more: tuple[str, ...]
) -> Finding:
    """The finding of a test of use, from its numbers.

    Args:
        test: the test.
        usage: what it says.
        needs: names of the checks it rests on, beside the target's outputs.
        checks: all that were made so far.
        more: what would change an inconclusive answer.
    """
    check = failed(checks, needs | {TARGET_OUTPUTS})
    if check is not None:
        return undecided(check, test.assumes)
    p_unused = p_text(usage.p_never)
    if usage.verdict == "not forgotten":
        share = used_share(usage)
        shown = share and f" Estimated used fraction: {percent(share.value)} ({_between(share)})."
        sentence = f"Use of the query set was detected ({p_unused}).{shown or ''}"
        return _finding(
            usage.verdict, sentence, (f"{p_unused} for a target that used none of the query set", *usage.reasons), test
        )
    if usage.verdict == "forgotten" and usage.detectable is not None:
        least = percent(usage.detectable)
        sentence = (
            f"No use of the query set was detected ({p_unused}). Use of {least} or more would have been detected with "
            "95% probability; smaller use is not ruled out."
        )
        return _finding(usage.verdict, sentence, (f"{p_unused}; minimum detectable fraction {least}",), test)
    reasons = usage.reasons or ("the test supports neither verdict",)
    sentence = f"Whether the query set was used is not determined: {reasons[0]}."
    return Finding(
        "inconclusive",
        "open",
        sentence,
        reasons,
        Confidence("none", _sentence("; ".join(reasons))),
        caveats=(test.assumes,),
        would_change=more,
    )


def _finding(verdict: Verdict, sentence: str, reasons: tuple[str, ...], test: KSTest) -> Finding:
    confidence = Confidence("fair", "Every check that the verdict rests on passed. No check covers everything.")
    return Finding(verdict, TONES[verdict], sentence, reasons, confidence, caveats=(test.assumes,))


def percent(fraction: float) -> str:
    """A fraction for a person: two digits below 10%.

    >>> percent(0.0312), percent(0.5), percent(1.0), percent(0.0)
    ('3.1%', '50%', '100%', '0%')
    """
    return f"{100 * fraction:.0f}%" if fraction >= 0.1 or fraction == 0 else f"{100 * fraction:.1f}%"


def p_text(value: float) -> str:
    """A p-value for a person.

    >>> p_text(0.0005), p_text(0.0312), p_text(1.0)
    ('p < 0.001', 'p = 0.031', 'p = 1')
    """
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


def _between(share: Share) -> str:
    return f"{percent(share.low)} to {percent(share.high)}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def medians(emas: tuple[EMA, ...]) -> tuple[float, float]:
    """The median p-value and member share over replicates."""
    p_value, share = (float(np.median([getattr(each, name) for each in emas])) for name in ("p_value", "member_share"))
    return p_value, share
