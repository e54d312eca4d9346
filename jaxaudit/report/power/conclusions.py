"""What could be concluded of a target, as tables: with known members, and with a holdout alone."""

from collections.abc import Sequence

from jaxaudit.audits.power.conclusions import REMEMBERS, By
from jaxaudit.audits.power.finding import NEEDED
from jaxaudit.metrics.usage import STATED_FRACTION
from jaxaudit.report.numbers import number
from jaxaudit.report.page import Cells, Where
from jaxaudit.report.power.record import Conclusion

HEAD = "What could be concluded of a target, at the sizes given"
SCALED = (
    "Called `forgotten`, if never used: with known members and shadow models, and with members alone, by how much the "
    "target remembers"
)
WITH: dict[By, str] = {
    "members and shadow models": "members and models",
    "members": "members alone",
    "holdout": "holdout only",
}
MUCH = dict(zip(REMEMBERS, ("as much", "a half", "a quarter"), strict=True))
"""Of what the shadow models remember."""
CANNOT = "cannot be"
ABOUT = (
    "It also shows what could be concluded of a target that remembers as much of what it used as the shadow models do, "
    "a half of that, or a quarter: nobody knows beforehand how much it is. "
    f"With a holdout only, `forgotten` {CANNOT} concluded: it needs {NEEDED}."
)
HOW_TO_READ = (
    f"With a holdout only, `forgotten` {CANNOT} concluded: it needs {NEEDED}. With models: shadow models are trained, "
    "too. Members alone: nothing is trained.",
    "Remembers: how much a target remembers of what it used, in what the shadow models do; nobody knows it "
    "beforehand. Memory: the difference between known members and holdout, in standard errors. Unused: the target "
    "never used the query set. `forgotten`: the upper limit of the used fraction (one-sided, 95%) is at most "
    f"{100 * STATED_FRACTION:g}%.",
)


def concluded_table(concluded: Sequence[Conclusion], on: Where) -> Cells:
    """Probabilities of each verdict by what is there and how much a target remembers, at one size."""
    columns = tuple(
        _laid(each, on)
        for each in (
            *("with", "remembers", "memory"),
            *("unused:\nforgotten", "all used:\nnot forgotten", "25% used:\nnot forgotten"),
        )
    )
    rows = (
        (
            WITH[each.by],
            MUCH.get(each.remembers, f"{each.remembers:g}"),
            number(each.memory, 1),
            CANNOT if each.forgotten is None else _percent(each.forgotten),
            _percent(each.all_used),
            _percent(each.part_used),
        )
        for each in concluded
    )
    return Cells(HEAD, columns, tuple(rows), columns[2:], on=on)


def scaled_table(every: Sequence[Conclusion], given: tuple[int, int], on: Where) -> Cells:
    """The probability of `forgotten` by numbers of records, what is there, and how much a target remembers."""
    kinds: tuple[By, ...] = ("members and shadow models", "members")
    columns = (
        *(f"{name}\nrecords" for name in ("query", "holdout", "member")),
        *(f"{short}\n{much}" for short in ("models:", "alone:") for much in MUCH.values()),
    )
    columns = tuple(_laid(each, on) for each in columns)
    found = {(each.query, each.holdout, each.by, each.remembers): each for each in every}
    sizes = dict.fromkeys((each.query, each.holdout) for each in every)
    rows = []
    for query, holdout in sizes:
        cells = [found[query, holdout, by, factor] for by in kinds for factor in REMEMBERS]
        rows.append(
            (
                f"{'*' if (query, holdout) == given else ''}{query:,}",
                f"{holdout:,}",
                f"{cells[0].members:,}",
                *(CANNOT if each.forgotten is None else _percent(each.forgotten) for each in cells),
            )
        )
    return Cells(SCALED, columns, tuple(rows), columns, on=on)


def _laid(text: str, on: Where) -> str:
    """On a page, lines break as they need."""
    return text if on == "terminal" else text.replace("\n", " ")


def _percent(chance: float) -> str:
    return f"{100 * chance:.0f}%"
