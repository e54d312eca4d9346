"""The rates of `deletion_rates`, their page and their picture."""

from typing import Any

import numpy as np

from experiments.figures import panels
from experiments.memory_worlds import WORLDS
from experiments.summary import Row
from jaxaudit.metrics.over_models import clopper_pearson
from jaxaudit.metrics.usage import STATED_FRACTION

SHARES = (0.0, 0.25, 0.5, 1.0)
TRAINED_ON = "trained on"
"""What a model after a deletion used of the query set."""


def rate(count: int, of: int) -> dict[str, Any]:
    """A share with its exact 95% interval (Clopper & Pearson 1934)."""
    between = clopper_pearson(count, of, 0.95)
    return {"count": count, "of": of, "share": count / of, "low": between.low, "high": between.high}


def summarise(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Rates by share used, by the size and the seen or unseen worlds, and by recipe."""

    def of(chosen: list[dict[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for used in (*SHARES, TRAINED_ON):
            some = [answer for answer in chosen if answer.get("used") == used]
            if not some:
                continue
            verdicts = [answer["verdict"] for answer in some]
            found[str(used)] = {
                verdict: rate(verdicts.count(verdict), len(some))
                for verdict in ("not forgotten", "forgotten", "inconclusive")
            }
            if used not in (0.0, TRAINED_ON):
                covered = sum(answer["upper"] >= min(used, 1.0) - 1e-9 for answer in some)
                found[str(used)]["limit covers"] = rate(covered, len(some))
            known = [answer["fraction"] for answer in some if answer["fraction"] is not None]
            found[str(used)]["median"] = float(np.median(known)) if known else None
        again = [answer["again"] for answer in chosen if "again" in answer]
        found["level"] = rate(sum(p <= 0.05 for p in again), len(again))
        return found

    final = {name for name, setting in WORLDS.items() if setting.final}
    large = {name for name, setting in WORLDS.items() if setting.size >= 1000}
    recipes = sorted({answer["recipe"] for answer in answers})
    return {
        "all": of(answers),
        "1,000 or more": of([answer for answer in answers if answer["world"] in large]),
        "300": of([answer for answer in answers if answer["world"] not in large]),
        "looked at once": of([answer for answer in answers if answer["world"] in final]),
        "by recipe": {recipe: of([answer for answer in answers if answer["recipe"] == recipe]) for recipe in recipes},
        "worlds": sorted({answer["world"] for answer in answers}),
        "targets": sum("used" in answer for answer in answers),
    }


def shown(found: dict[str, Any]) -> str:
    return f"{100 * found['share']:.1f}% ({100 * found['low']:.1f}-{100 * found['high']:.1f}) of {found['of']:,}"


def lines(found: dict[str, Any]) -> list[str]:
    """The page."""
    page = [
        "# Verdicts on a deletion, by outputs before and after it",
        "",
        f"{found['targets']:,} targets in {len(found['worlds'])} worlds ({', '.join(found['worlds'])}): models after a "
        "deletion, each with the model before it. Nothing but the query set, a holdout of later records and the "
        "outputs of both models is given (`experiments/deletion_rates.py`). Exact 95% intervals; targets of one deal "
        "share its chance, so the intervals are too narrow.",
    ]
    titles = {"0.0": "none", "0.25": "a quarter", "0.5": "half", "1.0": "all", TRAINED_ON: "all, then trained on"}
    for group in ("looked at once", "1,000 or more", "300", "all"):
        page += [
            "",
            f"## Worlds: {group}",
            "",
            "| after: used | caught | cleared | `inconclusive` | limit covers | median |",
        ]
        page += ["|---|---|---|---|---|---|"]
        for used, title in titles.items():
            if used not in found[group]:
                continue
            row = found[group][used]
            cover = shown(row["limit covers"]) if "limit covers" in row else "-"
            median = "-" if row["median"] is None else f"{row['median']:.2f}"
            cells = [shown(row[verdict]) for verdict in ("not forgotten", "forgotten", "inconclusive")]
            page.append(f"| {' | '.join((title, *cells, cover, median))} |")
        page += ["", f"Further deals of models that used none, p <= 5%: {shown(found[group]['level'])}."]
    page += ["", "## By recipe", "", "| recipe | none used: cleared | half used: caught | all used: caught | level |"]
    page += ["|---|---|---|---|---|"]
    page += [
        f"| {recipe} | {shown(row['0.0']['forgotten'])} | {shown(row['0.5']['not forgotten'])} | "
        f"{shown(row['1.0']['not forgotten'])} | {shown(row['level'])} |"
        for recipe, row in found["by recipe"].items()
    ]
    return page


def drawing(answers: list[dict[str, Any]]) -> Any:
    """Estimates by used share: a point for each target."""
    figure, (axes,) = panels(1, 1, width=5.5, height=3.2)
    generator = np.random.default_rng(1)
    for answer in answers:
        if isinstance(answer.get("used"), float) and answer["fraction"] is not None:
            place = answer["used"] + generator.uniform(-0.03, 0.03)
            axes.plot(place, np.clip(answer["fraction"], -0.5, 1.5), ".", color="#1f5f8b", markersize=3, alpha=0.5)
    axes.plot([0, 1], [0, 1], color="#c8553d", linewidth=1)
    axes.axhline(STATED_FRACTION, color="#777", linewidth=0.8, linestyle=":")
    axes.set(xlabel="used by the model after the deletion", ylabel="estimated share of the memory left")
    return figure


def summary(result: dict[str, Any]) -> list[Row]:
    """What `deletion_rates` says of itself in `experiments/README.md`."""
    found = result["rates"]
    cells = found["all"]
    asked = {
        'none used, called "not forgotten"': cells["0.0"]["not forgotten"],
        'none used, called "forgotten"': cells["0.0"]["forgotten"],
        'half used, called "forgotten"': cells["0.5"]["forgotten"],
        'all used, called "not forgotten"': cells["1.0"]["not forgotten"],
        "none used, p <= 5% in further deals": found["all"]["level"],
    }
    sentence = f"Over {found['targets']:,} models after a deletion in {len(found['worlds'])} worlds."
    return [
        Row(
            "none",
            "Error rates by outputs before and after a deletion",
            ", ".join(asked),
            "none given",
            ", ".join(f"{cell['share']:.1%}" for cell in asked.values()),
            sentence,
            "--cache FOLDER",
        )
    ]
