"""Runs to a page: each on its own, and all of them side by side."""

from collections import Counter
from collections.abc import Callable, Sequence

from jaxaudit.errors import InputError
from jaxaudit.report.attack.pictures import estimate_row, estimates_picture
from jaxaudit.report.attack.view import attack_part, best_attack
from jaxaudit.report.efficacy.view import drawn_weights, efficacy_part
from jaxaudit.report.glossary import chosen, papers
from jaxaudit.report.ks.pictures import rho_picture, rho_rows
from jaxaudit.report.ks.view import ks_part
from jaxaudit.report.numbers import level_of
from jaxaudit.report.page import Cells, Page, Part, Picture
from jaxaudit.report.pdtp.pictures import shares_picture
from jaxaudit.report.pdtp.view import pdtp_part
from jaxaudit.report.run import Run, named
from jaxaudit.report.unlearn.view import drawn_methods, efficacies_picture, unlearn_part

MOST_RUNS = 24
PARTS: dict[str, Callable[[Run], Part]] = {
    "ks": ks_part,
    "pdtp": pdtp_part,
    "attack": attack_part,
    "efficacy": efficacy_part,
    "unlearn": unlearn_part,
}


def build(runs: Sequence[Run]) -> Page:
    """The page of these runs, in this order.

    Raises:
        InputError: there is none, or more than fit a page.
    """
    if len(runs) < 1 or len(runs) > MOST_RUNS:
        raise InputError(f"a report shows 1 to {MOST_RUNS} runs, and {len(runs)} were given.")
    runs = _apart(runs)
    parts = [PARTS[run.kind](run) for run in runs]
    several = len(parts) > 1
    terms = chosen(term for part in parts for term in part.terms)
    return Page(
        "Runs side by side" if several else parts[0].question,
        tuple(parts),
        _together(parts) if several else None,
        tuple(_compared(runs)) if several else (),
        terms,
        papers(source for _, _, source in terms),
    )


def _apart(runs: Sequence[Run]) -> list[Run]:
    """The runs with names of their own."""
    counts = Counter(run.name for run in runs)
    seen: Counter[str] = Counter()
    found = []
    for run in runs:
        seen[run.name] += 1
        found.append(run._replace(name=f"{run.name} ({seen[run.name]})") if counts[run.name] > 1 else run)
    return found


def _together(parts: Sequence[Part]) -> Cells:
    return Cells(
        "All answers",
        ("run", "question", "about", "verdict", "measure", "number", "interval", "confidence"),
        tuple(
            (
                part.name,
                part.question,
                answer.about,
                answer.alone or answer.verdict,
                answer.measure,
                answer.number,
                answer.interval or "none",
                answer.confidence.word,
            )
            for part in parts
            for answer in part.answers
        ),
        ("number",),
    )


def _compared(runs: Sequence[Run]) -> list[Picture]:
    """A chart of all runs of one kind, for every kind with several."""
    of_kind = {kind: [run for run in runs if run.kind == kind] for kind in PARTS}
    found = []
    if len(of_kind["ks"]) > 1:
        rows = [row for run in of_kind["ks"] for row in rho_rows(run, f"{named(run)}: ", controls=False)]
        found.append(rho_picture("compared-rho", rows, level_of(of_kind["ks"][0].result["provenance"])))
    if len(of_kind["pdtp"]) > 1:
        found.append(shares_picture("compared-pdtp", of_kind["pdtp"]))
    if len(of_kind["attack"]) > 1:
        rows = []
        for run in of_kind["attack"]:
            best = best_attack(run.result)
            rows.append(estimate_row(f"{named(run)}: {best['name']}", best["accuracy"]))
        level = level_of(of_kind["attack"][0].result["provenance"])
        found.append(estimates_picture("compared-accuracy", rows, level)._replace(title="Accuracy of the best attack"))
    left = [(run, drawn_methods(run.result)) for run in of_kind["unlearn"]]
    left += [(run, drawn_weights(run.result)) for run in of_kind["efficacy"]]
    if len(left) > 1:
        methods = [each._replace(name=f"{named(run)}: {each.name}") for run, drawn in left for each in drawn]
        found.append(efficacies_picture("compared-efficacy", methods, None))
    return found
