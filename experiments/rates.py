"""Rates of right and wrong answers with exact 95% intervals, and the tables that pages have of them.

A *way* is what a test was given; a *measure* is a rate by its name. Cells are rates by way and measure: of all answers,
or of one world, size or recipe each.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from scipy import stats

Answer = dict[str, Any]
Rate = dict[str, Any]
Cells = Mapping[str, Mapping[str, Rate]]
Condition = Callable[[Answer], bool]
VERDICTS = ("not forgotten", "forgotten", "inconclusive")
HIGH_IS_WORSE = ("false alarms", "wrong forgotten", "at stated", "inconclusive")
"""Of all other measures a low rate is worse."""


class Measure(NamedTuple):
    """The words of a rate, the answers that it is of, and what is counted."""

    words: str
    asked: Condition
    holds: Condition


def share_of(count: int, total: int) -> Rate:
    """A share, with Clopper & Pearson's 95% interval."""
    if not total:
        return {"count": 0, "of": 0, "share": None, "low": 0.0, "high": 1.0}
    interval = stats.binomtest(count, total).proportion_ci(0.95, "exact")
    numbers = {"share": count / total, "low": interval.low, "high": interval.high}
    return {"count": count, "of": total} | {name: round(float(number), 5) for name, number in numbers.items()}


def total(parts: Iterable[Rate]) -> Rate:
    """The rate of several together."""
    counts = [(part["count"], part["of"]) for part in parts]
    return share_of(sum(count for count, _ in counts), sum(of for _, of in counts))


def rate(answers: Sequence[Answer], holds: Condition) -> Rate:
    return share_of(sum(map(holds, answers)), len(answers))


def rates(answers: Sequence[Answer], measures: Mapping[str, Measure]) -> dict[str, Rate]:
    """Every measure of these answers."""
    return {
        name: rate([answer for answer in answers if measure.asked(answer)], measure.holds)
        for name, measure in measures.items()
    }


def of(answers: Sequence[Answer], **fields: Any) -> list[Answer]:
    return [answer for answer in answers if all(answer.get(name) == value for name, value in fields.items())]


def says(verdict: str) -> Condition:
    return lambda answer: answer["verdict"] == verdict


def used(share: float) -> Condition:
    return lambda answer: answer["used"] == share


def covers(answer: Answer) -> bool:
    """The upper limit is at or above the truth; answers are rounded to five decimals."""
    return answer["upper"] >= answer["used"] - 1e-5


def shown(found: Rate) -> str:
    """A rate with its interval and its count."""
    if found["share"] is None:
        return "-"
    return f"{found['share']:.1%} ({found['low']:.1%}-{found['high']:.1%}; {found['count']} of {found['of']})"


def interval(found: Rate) -> str:
    """A rate with its interval."""
    return "-" if found["share"] is None else f"{found['share']:.1%} ({found['low']:.1%}-{found['high']:.1%})"


def brief(found: Rate) -> str:
    return "-" if found["share"] is None else f"{found['share']:.0%} ({found['count']}/{found['of']})"


def percent(found: Rate, digits: int = 0) -> str:
    return "-" if found["share"] is None else f"{found['share']:.{digits}%}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


class Layout(NamedTuple):
    """The ways and measures of an experiment, by their names with their words.

    Attributes:
        unlimited: ways that give no limit: nothing shows how much use would change.
        of_limits: measures that no such way has.
    """

    ways: Mapping[str, str]
    measures: Mapping[str, Measure]
    unlimited: tuple[str, ...]
    of_limits: tuple[str, ...]

    def has(self, way: str, name: str) -> bool:
        return way not in self.unlimited or name not in self.of_limits

    def cell(self, cells: Cells, way: str, name: str, how: Callable[[Rate], str] = shown) -> str:
        return how(cells[way][name]) if self.has(way, name) else "-"

    def table(self, cells: Cells, how: Callable[[Rate], str] = shown) -> list[str]:
        """The rates of all ways."""
        return self.grid(lambda way, name: self.cell(cells, way, name, how))

    def grid(self, words: Callable[[str, str], str]) -> list[str]:
        """A line a measure and a column a way, or the other way round where there are more ways."""
        titles = [measure.words for measure in self.measures.values()]
        rows = [[words(way, name) for way in self.ways] for name in self.measures]
        if len(self.ways) > len(titles):
            columns = zip(*rows, strict=True)
            return table(
                ["", *titles], ([title, *cells] for title, cells in zip(self.ways.values(), columns, strict=True))
            )
        return table(["", *self.ways.values()], ([title, *cells] for title, cells in zip(titles, rows, strict=True)))

    def worst(self, by_cell: Mapping[str, Cells], way: str, name: str) -> tuple[str, Rate] | None:
        """The world, size or recipe whose rate is the worst, and the rate; None where there is none."""
        known = [(cell, ways[way][name]) for cell, ways in by_cell.items() if ways[way][name]["share"] is not None]
        if not known or not self.has(way, name):
            return None
        if len({found["share"] for _, found in known}) == 1:
            return "every one", total(found for _, found in known)
        sign = 1 if name in HIGH_IS_WORSE else -1
        return max(known, key=lambda cell: sign * cell[1]["share"])

    def worst_table(self, by_cell: Mapping[str, Cells]) -> list[str]:
        """The worst of each way and measure."""

        def words(way: str, name: str) -> str:
            found = self.worst(by_cell, way, name)
            return "-" if found is None else f"{found[0]}: {brief(found[1])}"

        return self.grid(words)

    def breakdown(self, what: str, by_cell: Mapping[str, Cells]) -> list[str]:
        """A table a measure: a line a world, size or recipe, a column a way that has it."""
        lines: list[str] = []
        for name, measure in self.measures.items():
            ways = [way for way in self.ways if self.has(way, name)]
            rows = ([cell, *(brief(found[way][name]) for way in ways)] for cell, found in by_cell.items())
            lines += ["", f"## By {what}: {measure.words}", ""]
            lines += table([what, *(self.ways[way] for way in ways)], rows)
        return lines

    def overview(self, counted: str, found: Mapping[str, Any], parts: str, words: str) -> list[str]:
        """The worst part, the worlds that were looked at only once, and all worlds."""
        between = ", " if parts == "by cell" else "; "
        return [
            "## All together",
            "",
            f"{counted}; with 95% intervals. First the worst of {len(found[parts])} {words}:",
            "",
            *self.worst_table(found[parts]),
            "",
            f"The worlds that were looked at only once ({between.join(found['final'])}):",
            "",
            *self.table(found["looked at once"], interval),
            "",
            "All worlds:",
            "",
            *self.table(found["all worlds"], interval),
            "",
        ]
