"""What audits share on a page: numbers and texts, and the sets and models of a run's provenance.

A run that was read may have anything in its provenance.
"""

import math
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Protocol, runtime_checkable

import msgspec

from jaxaudit.errors import visible
from jaxaudit.json_types import Count, demand

NONE = "none"
DIGITS_GIVEN = 8
"""A number with more digits was computed, not typed by a user."""


def number_text(value: float | None, digits: int = 3) -> str:
    """A number with `digits` decimals; `none` if it is not available.

    >>> number_text(0.12345), number_text(None), number_text(math.inf), number_text(12345.6, 1)
    ('0.123', 'none', 'infinite', '12,345.6')
    """
    if value is None or math.isnan(value):
        return NONE
    if value == math.inf:
        return "infinite"
    return f"{value:,.{digits}f}"


two_decimals = partial(number_text, digits=2)


def count_text(count: int) -> str:
    return f"{count:,}"


def precise(value: float | None) -> str:
    """A number with four significant digits, for tables of the numbers in charts.

    >>> precise(0.000123456), precise(12.0), precise(None)
    ('0.0001235', '12', 'none')
    """
    return number_text(value) if value is None or not math.isfinite(value) else f"{value:.4g}"


def share(value: float) -> str:
    """A proportion in percent.

    >>> share(0.5), share(0.0), share(0.0004), share(1.0)
    ('50%', 'none', 'under 0.1%', 'all')
    """
    if value in (0, 1):
        return "all" if value else NONE
    return "under 0.1%" if value < 0.001 else f"{100 * value:.3g}%"


@runtime_checkable
class _Interval(Protocol):
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def span(estimate: _Interval, digits: int = 2) -> str:
    """The interval of a number as `low to high`; empty if there is none."""
    if NONE in (number_text(estimate.low), number_text(estimate.high)):
        return ""
    return f"{number_text(estimate.low, digits)} to {number_text(estimate.high, digits)}"


def level_text(value: float) -> str:
    """A share or a level in percent: as given, or, if computed, with two digits of it or of its difference to 100%.

    >>> [level_text(level) for level in (0.95, 0.9999999, 18 / 77, 1 / 3000)]
    ['95%', '99.99999%', '23%', '0.033%']
    """
    shown = Decimal(str(value))
    if len(shown.as_tuple().digits) > DIGITS_GIVEN:
        least = min(shown, 1 - shown)
        shown = round(shown, 1 - least.adjusted()) if least > 0 else shown
    return f"{(100 * shown).normalize():f}%"


def text(value: Any) -> str:
    """Any value of a result on one line, safe to show.

    >>> text(None), text(True), text([1, "a"]), text({}), text(0.5)
    ('none', 'yes', '1, a', 'none', '0.5')
    """
    if value is None or value == [] or value == {}:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(text(single) for single in value)
    if isinstance(value, dict):
        return ", ".join(f"{visible(str(name))}: {text(single)}" for name, single in value.items())
    return visible(f"{value:,}" if isinstance(value, int) else str(value))


class NamedSet(msgspec.Struct, frozen=True):
    name: str
    records: Count


class UsedBank(msgspec.Struct, frozen=True):
    """A bank, and how many shadow models of it were used."""

    name: str
    models: Count


class UsedScores(msgspec.Struct, frozen=True):
    """A table of scores, and how many models of each role it has."""

    name: str
    models: dict[str, Count]


class ComparedSets(msgspec.Struct, frozen=True):
    """What a run of `ks` or `power` compared: sets (the reference are known non-members), the bank of its shadow
    models, or the table of scores in place of models; None for what the run did not have.
    """

    query: NamedSet
    calibration: NamedSet | None = None
    holdout: NamedSet | None = None
    members: NamedSet | None = None
    reference: NamedSet | None = None
    shadows: UsedBank | None = None
    scores: UsedScores | None = None


def compared_sets(data: Mapping[str, Any]) -> ComparedSets:
    """The sets and models that these facts of a run name; a ValueError if one is missing, or said in another form."""
    try:
        sets = msgspec.convert(data, ComparedSets)
    except msgspec.ValidationError as error:
        raise ValueError(f"its sets have another form ({error})") from error
    # What takes the place of a calibration set is compared with a holdout.
    compared = sets.scores or sets.shadows or sets.calibration or sets.holdout
    demand(compared is not None, "it has no calibration set")
    return sets
