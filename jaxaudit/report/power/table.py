"""The `power` answer for a person at a terminal."""

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from jaxaudit.audits.ks.settle import percent
from jaxaudit.audits.power.audit import FRACTIONS, Power


def power_table(power: Power) -> RenderableType:
    """A row a size with the chance to notice each used share, and what the share asked about takes."""
    table = Table(
        title="How likely is the use of a part of the query set noticed?",
        title_justify="left",
        title_style="bold",
        box=SIMPLE,
        pad_edge=False,
    )
    for name in ("query\nrecords", "holdout\nrecords", *(f"{percent(f)}\nused" for f in FRACTIONS), "least\nnoticed"):
        table.add_column(name, justify="right", no_wrap=True)
    for index, row in enumerate(power.rows):
        chances = (f"{100 * chance:.0f}%" for chance in row.chances)
        style = "bold" if index == power.given else None
        table.add_row(f"{row.query:,}", f"{row.holdout:,}", *chances, _share(row.least), style=style)
    given = power.rows[power.given]
    told = ", ".join(f"{_share(least)} with {models}" for models, least in power.by_models)
    needed = (
        f"no number of records makes sure of noticing {percent(power.fraction)}: models differ too much in what they "
        "give away"
        if power.needed is None
        else f"to notice the use of {percent(power.fraction)} 19 times of 20: {power.needed:,} query records and as "
        "many in the holdout"
    )
    lines = [
        needed,
        f"least share noticed of {given.query:,} and {given.holdout:,} records by number of shadow models: {told}",
        "chances are of the holdout test at 5%; the least share is noticed 19 times of 20. Both suppose a target built "
        "and trained like the shadow models, and records that give away as much in a set of another size.",
    ]
    return Group(table, *(Padding(line, (0, 0, 0, 1)) for line in lines))


def _share(least: float | None) -> str:
    return "none" if least is None else percent(least)
