"""The conclusion of an audit: decided once, and shown unchanged by every output.

The result of an audit is one frozen msgspec struct: it is computed, it is the JSON, its decoder and its schema, and its
`check` holds a result that was read against itself. Terminal, page and Python show its `Finding` as it
stands, and none of them compares a number with a threshold. Arrays stand beside `result`, in files of their own.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec.structs import replace

from jaxaudit.json_types import StrictStruct

Tone = Literal["good", "bad", "open"]
State = Literal["passed", "warning", "failed"]
ORDER: tuple[State, ...] = ("failed", "warning", "passed")


class Confidence(StrictStruct, frozen=True):
    """How far to trust a verdict, in one word, and why."""

    word: Literal["none", "weak", "fair", "strong"]
    why: str


class Checked(StrictStruct, frozen=True):
    """One assumption that was tested, by its name.

    Attributes:
        state: `failed` means that no verdict is given; `warning` weakens the verdict.
        message: what was measured and, if the check failed, what to do.
        affects: what depends on the assumption in place of the verdict, such as `rho`; else empty.
    """

    name: str
    state: State
    message: str
    affects: str = ""


class Finding(StrictStruct, frozen=True):
    """The conclusion of an audit about one target, classifier or method.

    Attributes:
        verdict: one or two words. `sentence`: the same as one or two sentences.
        reasons: what the verdict rests on, or why it is inconclusive.
        checks: the assumptions that were tested, failed ones first.
        caveats: assumptions that these data cannot test.
        would_change: what to do for a firmer answer, or another one.

    >>> print(Finding("inconclusive", "open", "These data do not tell.", (), Confidence("none", "Too few records.")))
    inconclusive: These data do not tell.
    confidence: none. Too few records.
    """

    verdict: str
    tone: Tone
    sentence: str
    reasons: tuple[str, ...]
    confidence: Confidence
    checks: tuple[Checked, ...] = ()
    caveats: tuple[str, ...] = ()
    would_change: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.verdict}: {self.sentence}", f"confidence: {self.confidence.word}. {self.confidence.why}"]
        lines += [f"{check.state}: {check.name}: {check.message}" for check in self.checks if check.state != "passed"]
        lines += [f"limitation: {caveat}" for caveat in self.caveats]
        return "\n".join([*lines, *(f"to do: {advice}" for advice in self.would_change)])


def sentence(words: str) -> str:
    """The words as a sentence: with a capital and a full stop."""
    return f"{words[:1].upper()}{words[1:]}."


def plural(count: int, noun: str) -> str:
    """A number of things.

    >>> plural(1, "record"), plural(2_000, "record")
    ('1 record', '2,000 records')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def no_confidence(why: str) -> Confidence:
    return Confidence("none", sentence(why))


BY_A_BANK = (
    "train models of your own kind on random halves (jaxaudit shadows train, or jaxaudit shadows plan and your own "
    "script), and attack these (jaxaudit attack)"
)


def trained_here(finding: Finding, kind: str = "", advice: str = BY_A_BANK) -> Finding:
    """The finding, its sentence saying that it is of no model of the user's, with the way on to these."""
    sentence = f"In models{kind} that jaxaudit trained here: {finding.sentence}"
    more = dict.fromkeys((*finding.would_change, f"For models of yours: {advice}."))
    return replace(finding, sentence=sentence, would_change=tuple(more))


def undecided(
    sentence: str,
    reasons: tuple[str, ...],
    why: str,
    caveats: tuple[str, ...] = (),
    would_change: tuple[str, ...] = (),
    checks: tuple[Checked, ...] = (),
) -> Finding:
    """The finding `inconclusive`; `why` says in a sentence why it has no confidence."""
    return Finding("inconclusive", "open", sentence, reasons, Confidence("none", why), checks, caveats, would_change)


UNDECIDED = Finding("inconclusive", "open", "", (), Confidence("none", ""))
"""The finding of a result before its numbers are judged."""


def assumed(name: str, holds: bool, held: str, broken: str, *, decisive: bool = False) -> Checked:
    """An assumption that holds, or a warning in other words; of a decisive one a failure."""
    return Checked(name, "passed" if holds else "failed" if decisive else "warning", held if holds else broken)


def in_order(checks: Iterable[Checked]) -> tuple[Checked, ...]:
    """The same checks, failed ones first."""
    return tuple(sorted(checks, key=lambda check: ORDER.index(check.state)))
