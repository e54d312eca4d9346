"""What audits share on a page: numbers and texts, the sets and models of a run's provenance, charts of estimates.

A run that was read may have anything in its provenance.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec
import numpy as np
from jaxtyping import Float

from jaxaudit.errors import visible
from jaxaudit.json_types import Count
from jaxaudit.metrics.over_models import Estimate
from jaxaudit.plots import unlearn as plot
from jaxaudit.plots.attack import draw_estimates
from jaxaudit.plots.style import chart, row_height
from jaxaudit.report.kinds import demand
from jaxaudit.report.page import PageTable, Picture, table_of

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


two_decimals, four_decimals = partial(number_text, digits=2), partial(number_text, digits=4)


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


Facts = TypeVar("Facts", bound=msgspec.Struct)


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
    calibration: NamedSet | None
    holdout: NamedSet | None
    members: NamedSet | None
    reference: NamedSet | None
    shadows: UsedBank | None
    scores: UsedScores | None


def sets_of(data: Mapping[str, Any]) -> ComparedSets:
    """The sets and models that these facts of a run name; a ValueError if one is missing, or said in another form."""

    def read(role: str, kind: type[Facts], called: str = "set") -> Facts | None:
        if data.get(role) is None:
            return None
        try:
            return msgspec.convert(data[role], kind)
        except msgspec.ValidationError as error:
            raise ValueError(f"it has no {role} {called} ({error})") from error

    query, scores, shadows = (
        read("query", NamedSet),
        read("scores", UsedScores, "table"),
        read("shadows", UsedBank, "bank"),
    )
    sets_by_role = {role: read(role, NamedSet) for role in ("calibration", "holdout", "members", "reference")}
    # What takes the place of shadow models is compared with a holdout.
    needed = ["calibration"] if sets_by_role["holdout"] is None else ["holdout"]
    for role in () if scores or shadows or sets_by_role["calibration"] else needed:
        demand(sets_by_role[role] is not None, f"it has no {role} set")
    if query is None:
        raise ValueError("it has no query set")
    return ComparedSets(query=query, scores=scores, shadows=shadows, **sets_by_role)


def estimates_pictures(
    quality: Mapping[str, Estimate], lira: Mapping[str, Estimate], retraining: str, level: float
) -> tuple[Picture, ...]:
    """Charts of forgetting quality and U-LiRA of each method and reference, with the retrained models by the name
    `retraining`; none without estimates.
    """
    if not quality or not lira:
        return ()

    def picture(name: str, measured: str, which: str, estimates: Mapping[str, Estimate], better: str) -> Picture:
        across, guess = measured[0].lower() + measured[1:], {"quality": estimates[retraining].value}.get(name, 0.5)
        return Picture(
            name,
            measured + which,
            "; ".join(f"{method}: {number_text(row.value, 2)}" for method, row in estimates.items()) + ".",
            "The diamond compares models of a method with retrained models of other seeds, the bar is its "
            f"{level_text(level)} interval over models. The shaded band is what retraining once more gets, "
            f"the best there is; original are the models before unlearning. {better} is better forgetting. The dotted "
            f"line is {'retraining' if name == 'quality' else 'guessing'}.",
            chart(
                lambda axes: draw_estimates(axes, estimates, across, guess, retraining),
                row_height(len(estimates)) + 0.2,
            ),
            estimates_table(measured, "models", across, estimates),
        )

    return (
        picture("quality", "Forgetting quality F", ", of the challenge of 2023", quality, "Further right"),
        picture("u-lira", "Accuracy of U-LiRA", ", which knows the method", lira, "Further left"),
    )


def estimates_table(title: str, of: str, number: str, estimates: Mapping[str, Estimate]) -> PageTable:
    """The numbers of a chart of estimates: `of` says what a row is of, `number` what is estimated."""
    columns = {
        of: ("0", str),
        number: ("1.value", four_decimals),
        "low": ("1.low", four_decimals),
        "high": ("1.high", four_decimals),
    }
    return table_of(title, estimates.items(), columns, (of,))


def layers_picture(
    title: str,
    seen: str,
    caption: str,
    names: Sequence[str],
    models: Sequence[tuple[str, Float[np.ndarray, " layers"]]],
    thickness: float,
) -> Picture:
    """A picture and a table of the information of each layer, in the order of the network; of many, those with the
    most. `seen` ends the description for screen readers; `thickness`: inches that each set of weights adds.
    """
    most = np.stack([values for _, values in models]).max(axis=0)
    chosen = np.sort(np.argsort(-most, kind="stable")[: plot.MOST_LAYERS])
    shown = [visible(names[index]) for index in map(int, chosen)]
    drawn = [(visible(name), values[chosen]) for name, values in models]
    left = f" The {len(shown)} of {len(names)} layers with the most are shown." if len(names) > len(shown) else ""
    columns = {
        "layer": ("1", str),
        **{name: lambda layer, values=values: precise(float(values[layer[0]])) for name, values in drawn},
    }
    return Picture(
        "layers",
        title,
        f"{len(shown)} layers{seen}",
        caption + left,
        chart(lambda axes: plot.draw_layers(axes, shown, drawn), row_height(len(shown)) + thickness * len(drawn)),
        table_of("Information of the layers shown", enumerate(shown), columns, ("layer",)),
    )
